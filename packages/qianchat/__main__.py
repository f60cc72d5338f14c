"""`python3 -m packages.qianchat serve | chat`: a real Qwen at http://127.0.0.1:8021, and a chat with it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .. import __version__
from ..pi_ai.errors import MiniPiError
from .arguments import Parser, whole_number
from .chat.prompt import add_chat
from .server.local_qwen import DEFAULT_CONTEXT, DEFAULT_PORT, exit_error, start_server
from .terminal import ended_by_signals, lost_output


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 ended as asked, 1 failed, 2 wrong usage, 130 interrupted before it was ready."""
    as_command = Path(sys.argv[0]).name == "qianchat"
    parser = Parser(
        prog="qianchat" if as_command else f"python3 -m {__package__}",
        description="本机的 Qwen：起动模型服务，或就一个项目的文件对话。",
    )
    parser.add_argument("--version", action="version", version=f"mini_pi {__version__}", help="显示版本")
    commands = parser.add_subparsers(title="命令", required=True, metavar="命令")
    add_serve(commands.add_parser("serve", help="在本机起动一个真实的 Qwen 服务，直到 Ctrl-C"))
    add_chat(commands.add_parser("chat", help="在终端里就项目的文件连续提问"))
    args = parser.parse_args(argv)
    try:
        return int(args.run(args))
    except MiniPiError as error:
        print(error, file=sys.stderr)
        return 1


def add_serve(parser: argparse.ArgumentParser) -> None:
    """The flags of `serve`."""
    port = whole_number(1, 65535)
    parser.add_argument("--port", type=port, default=DEFAULT_PORT, help="端口（默认 %(default)s）")
    parser.add_argument("--gguf", type=Path, metavar="FILE", help="自己的 GGUF 模型文件（默认下载 Qwen2.5）")
    parser.add_argument("--llama-server", type=Path, metavar="FILE", help="现成的 llama-server 程序")
    context = whole_number(256, 1 << 20)
    parser.add_argument(
        "--ctx", type=context, default=DEFAULT_CONTEXT, help="上下文的 token 数（默认 %(default)s）"
    )
    parser.add_argument("--threads", type=whole_number(1, 1024), metavar="N", help="CPU 线程数（默认自动）")
    parser.set_defaults(run=serve)


def serve(args: argparse.Namespace) -> int:
    """Bring the server up, print how to use it, and stay in front until Ctrl-C or SIGTERM."""
    ready = False
    try:
        with (
            ended_by_signals(),
            start_server(
                args.port, gguf=args.gguf, llama_server=args.llama_server, ctx=args.ctx, threads=args.threads
            ) as server,
        ):
            ready = True
            print("Qwen 已就绪，Ctrl-C 停止。在另一个终端里：", file=sys.stderr, flush=True)
            print(f"export QWEN_BASE_URL={server.base_url}")
            print(f"export QWEN_MODEL={server.model}")
            print("export QWEN_REASONING=none")
            # A quarter of the context at most: the rest is for the conversation.
            print(f"export QWEN_MAX_OUTPUT_TOKENS={min(2048, server.ctx // 4)}", flush=True)
            status = server.child.wait()
            raise exit_error(status or 0, server.log)
    except (KeyboardInterrupt, SystemExit):
        print("已停止。" if ready else "已中断；下载好的部分会保留，重新运行时接着来。", file=sys.stderr)
        return 0 if ready else 130
    except OSError as error:
        lost_output(error, "没有人读标准输出，export 的几行写不出去。请去掉管道，或把输出重定向到文件。")
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
