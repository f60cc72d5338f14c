"""What the five steps share: flags, connection, the printed run, and how a run ends."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from packages.pi_agent import AgentEvent, AgentLoopConfig, ToolResult
from packages.pi_ai import AgentRunError, FunctionCall, JsonObject, MiniPiError, unfinished
from packages.pi_coding_agent.tools import ProjectFiles
from packages.qianchat import connection
from packages.qianchat.arguments import Parser, whole_number
from packages.qianchat.record import Recorder, check_writable, command_line, write_record
from packages.qianchat.server.local_qwen import local_qwen
from packages.qianchat.terminal import (
    ended_by_signals,
    lost_output,
    one_line,
    printable,
    short_error,
    soft_streams,
)

QUESTION = "帮我看看 reports 目录里的日报，告诉我这份日报的日期、订单数和营收。"
SAMPLE_PROJECT = Path(__file__).parent.parent / "sample_project"
MAX_FILE_BYTES = 32 * 1024

UNFINISHED = "模型还需要工具，任务尚未完成"


def options(arguments: list[str] | None = None, question: str = QUESTION) -> Namespace:
    """The flags that every step takes; wrong usage ends the program with status 2."""
    parser = Parser(
        prog=f"python3 -m {module_name()}",
        description="连接由环境变量决定：QWEN_BASE_URL、QWEN_MODEL、QWEN_REASONING、"
        "QWEN_MAX_OUTPUT_TOKENS、QWEN_API_KEY。",
    )
    add = parser.add_argument
    add("--project", type=Path, default=SAMPLE_PROJECT, metavar="DIR", help="项目目录（默认 sample_project）")
    add("--question", default=question, metavar="TEXT", help="要问的话")
    add("--max-turns", type=whole_number(1, 1000), default=8, metavar="N", help="模型请求的上限（默认 8）")
    add("--local-qwen", action="store_true", help="没有服务时，在本机起动一个真实的 Qwen")
    add("--record", type=Path, metavar="FILE", help="把这次运行的完整记录写成 JSON")
    args = parser.parse_args(arguments)
    if not args.question.strip():
        parser.error("--question 不能为空")
    return args


def connect(args: Namespace) -> tuple[Recorder, AgentLoopConfig]:
    """The client and configuration of the environment; the client also keeps the record of the run."""
    client, config = connection.connect(args.max_turns)
    args.recorder = Recorder(client)
    return args.recorder, config


def report(event: AgentEvent) -> None:
    """Print what happens as it happens. It is for watching: the history is what the model gets."""
    if event.type == "assistant_text" and event.text:
        show_text(event.turn, event.text)
    elif event.type == "tool_call" and event.call:
        show_call(event.turn, event.call)
    elif event.type == "tool_result" and event.result:
        show_result(event.result)


def show_text(turn: int, text: str) -> None:
    """What the model said in a turn."""
    print(f"\n[第 {turn} 轮模型文本]\n{printable(text)}", flush=True)


def show_call(turn: int, call: FunctionCall) -> None:
    """What the model asked for; nothing has been run yet."""
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    print(f"[第 {turn} 轮调用] {one_line(call.name)} {printable(arguments)}")
    print(f"  call_id={one_line(call.call_id)}", flush=True)


def show_result(result: ToolResult) -> None:
    """What the tool gave back."""
    print("[工具失败]" if result.is_error else "[工具成功]")
    print(printable(result.content).removesuffix("\n"), flush=True)


def user_item(question: str) -> JsonObject:
    """The first item of a history, as the article writes it."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": question}]}


def check_whole(response: JsonObject, output: list[JsonObject], config: AgentLoopConfig) -> None:
    """Raise AgentRunError for half a product: a response that was refused, filtered or cut off."""
    reason = unfinished(response, output, config.request_options.get("max_output_tokens"))
    if reason is not None:
        raise AgentRunError(reason)


def run(step: Callable[[Namespace], str], question: str = QUESTION) -> int:
    """Run a step as a program and return its exit status. question: asked where --question is not given.

    The step returns the answer (or UNFINISHED). 0: it came to its end, 1: the run failed, 2: wrong
    usage, 130: Ctrl-C. Errors go to stderr in at most three lines; stdout holds the run alone.
    """
    soft_streams()
    args = options(question=question)
    outcome: JsonObject
    try:
        with ended_by_signals():
            _check_first(args)
            with local_qwen(connection.base_url()) if args.local_qwen else nullcontext():
                print(f"[问题] {printable(args.question)}", flush=True)
                answer = step(args)
                print(end="", flush=True)
        status = 0
        outcome = {"status": "unfinished" if answer == UNFINISHED else "answered", "text": answer}
    except MiniPiError as error:
        print(short_error(error), file=sys.stderr)
        status, outcome = 1, {"status": "failed", "error": str(error), "kind": type(error).__name__}
    except KeyboardInterrupt:
        print("已中断。", file=sys.stderr)
        status, outcome = 130, {"status": "interrupted"}
    except SystemExit as ended:
        status, outcome = int(str(ended.code)), {"status": "interrupted"}
    except OSError as error:
        said = lost_output(error) or str(error)
        status, outcome = 1, {"status": "failed", "error": said, "kind": type(error).__name__}
    return max(status, _record(args, outcome))


def _check_first(args: Namespace) -> None:
    """Say before a model is fetched and asked, not after it, that the run could not succeed."""
    connection.connect(args.max_turns)
    with ProjectFiles(args.project, MAX_FILE_BYTES):
        pass
    if args.record:
        check_writable(args.record)


def _record(args: Namespace, outcome: JsonObject) -> int:
    if not args.record or "recorder" not in args:
        return 0
    command = command_line(module_name(), sys.argv[1:])
    try:
        write_record(args.record, args.recorder.document(command, outcome), connection.api_key())
    except MiniPiError as error:
        print(short_error(error), file=sys.stderr)
        return 1
    return 0


def module_name() -> str:
    """The name under which Python was told to run the step, such as examples.step04_agent_loop."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name if spec else Path(sys.argv[0]).stem
