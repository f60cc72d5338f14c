"""`python3 -m checks.first_answer`: how long the first answer takes after a start of the local Qwen, beside the second.

Starts the server from nothing running (port 8031), asks the article's question twice, each in a history of its
own, and stops it. The target: the first takes at most 1.5 times the second.
"""

from __future__ import annotations

import os
import sys
import time

from examples.common import MAX_FILE_BYTES, QUESTION, SAMPLE_PROJECT
from packages.pi_agent import Conversation
from packages.pi_ai import JsonObject, MiniPiError
from packages.pi_coding_agent.tools import ProjectFiles, create_project_tools
from packages.qianchat.arguments import Parser, whole_number
from packages.qianchat.connection import connect
from packages.qianchat.server.local_qwen import start_server

TARGET = 1.5


def main() -> int:
    """Print the figures; exit status 0 when the target is reached, 1 when not or when something failed."""
    parser = Parser(
        prog="python3 -m checks.first_answer", description="本机 Qwen 起动后的第一个回答要等多久。"
    )
    parser.add_argument(
        "--port", type=whole_number(1, 65535), default=8031, help="起动服务的端口（默认 %(default)s）"
    )
    port = parser.parse_args().port
    begin = time.monotonic()
    try:
        with start_server(port) as server:
            os.environ |= {"QWEN_BASE_URL": server.base_url, "QWEN_MODEL": server.model}
            print(f"起动到就绪：{time.monotonic() - begin:.1f} 秒", flush=True)
            first, second = asked("第一个回答"), asked("第二个回答")
    except MiniPiError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("已中断。", file=sys.stderr)
        return 130
    print(f"第一个是第二个的 {first / second:.2f} 倍（目标不超过 {TARGET}）")
    return 0 if first <= TARGET * second else 1


def asked(name: str) -> float:
    """Ask the article's question and return the seconds until its answer."""
    client, config = connect()
    with ProjectFiles(SAMPLE_PROJECT, MAX_FILE_BYTES) as files:
        conversation = Conversation(client, create_project_tools(files), config)
        begin = time.monotonic()
        conversation.ask(QUESTION)
    seconds = time.monotonic() - begin
    usages: list[JsonObject] = [usage for usage in conversation.usage if usage]
    read = sum(usage["input_tokens"] for usage in usages)
    cached = sum((usage.get("input_tokens_details") or {}).get("cached_tokens", 0) for usage in usages)
    first = (usages[0].get("input_tokens_details") or {}).get("cached_tokens", 0)
    print(
        f"{name}：{seconds:.1f} 秒，{len(usages)} 轮，读入 {read} token，其中 {cached / read:.0%} 来自缓存"
        f"（第一轮 {first} / {usages[0]['input_tokens']}）",
        flush=True,
    )
    return seconds


if __name__ == "__main__":
    raise SystemExit(main())
