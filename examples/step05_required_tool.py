"""Step 5: the same query, but the program demands that the directory is listed first (article, part 8)."""

from argparse import Namespace
from dataclasses import replace

from examples.common import MAX_FILE_BYTES, connect, report, run
from packages.pi_agent import run_agent
from packages.pi_coding_agent.tools import ProjectFiles, create_project_tools
from packages.qianchat.terminal import printable


def step(args: Namespace) -> str:
    """Step 4 with one setting more."""
    client, config = connect(args)
    config = replace(config, required_tool_names=("list_files",))

    with ProjectFiles(args.project, MAX_FILE_BYTES) as files:
        answer = run_agent(client, create_project_tools(files), config, args.question, report)

    print(f"\n{printable(answer)}")
    return answer


if __name__ == "__main__":
    raise SystemExit(run(step))
