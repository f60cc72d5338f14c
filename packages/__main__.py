"""`python3 -m mini_pi`: what there is, and where to begin."""

from __future__ import annotations

import sys

from . import __version__

ABOUT = f"""\
mini_pi {__version__}：一口气能读完的 Agent Loop。
  qianchat serve    在本机起动一个真实的 Qwen
  qianchat chat     在终端里就一个项目的文件连续提问
在代码里：
  from mini_pi.pi_ai import ResponsesClient
  from mini_pi.pi_agent import AgentTool, Conversation, run_agent
  from mini_pi.pi_coding_agent.tools import ProjectFiles, create_project_tools
五个逐步的例子在源代码的 examples/ 里；qianchat --help 看各个参数。"""


def main() -> int:
    """Print it."""
    print(f"mini_pi {__version__}" if sys.argv[1:] == ["--version"] else ABOUT)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
