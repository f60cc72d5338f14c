"""`python3 -m checks.compatibility URL`: does a model server of your own give the loop what it needs?

Each probe sends one or two real requests and prints what works, what is ignored without a word, and
what to set. It judges the server together with its model and chat template, since that is what answers.
Exit status: 0 when the loop can run there, 1 when not, 2 wrong usage.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from packages.pi_ai import (
    FunctionCall,
    JsonObject,
    MiniPiError,
    ModelRequestError,
    ResponsesClient,
    output_text,
    parse_function_calls,
    response_output,
)
from packages.qianchat.arguments import Parser
from packages.qianchat.connection import api_key, timeout
from packages.qianchat.record import check_writable, command_line, write_record
from packages.qianchat.server.local_qwen import LOCAL_MODEL
from packages.qianchat.terminal import printable, short_error, soft_streams

FIRST = "先解决上一项"
WORKS, IGNORED, FAILS, UNSEEN = "可用", "被忽略", "不可用", "没有出现"

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "城市名，例如 北京"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: JsonObject = {
    "type": "function",
    "name": "get_weather",
    "description": "查询一个城市现在的天气。",
    "parameters": CITY,
    "strict": True,
}
TIME: JsonObject = {**WEATHER, "name": "get_time", "description": "查询一个城市现在的时间。"}
CAP = 16  # the smallest that OpenAI takes
QUESTION = "北京现在的天气怎么样？"


class Finding(NamedTuple):
    """What a probe saw; advice is empty where there is nothing to do."""

    verdict: str
    detail: str
    advice: str = ""


class Server:
    """The server under question, asked in the way in which the loop asks."""

    def __init__(self, client: ResponsesClient, model: str) -> None:
        self.client, self.model = client, model
        effort = os.environ.get("QWEN_REASONING", "none")
        self.reasoning: JsonObject = {"reasoning": {"effort": effort}} if effort else {}
        self.advice = ""  # for a field that the examples send and that is refused here
        self.refusals: list[str] = []  # what well-formed requests were answered with

    def ask(
        self, text: str, *items: JsonObject, on_text: Callable[[str], None] | None = None, **fields: Any
    ) -> JsonObject:
        """One request: the question, further history items, and fields over the loop's own."""
        payload: JsonObject = {
            "model": self.model,
            "instructions": "需要实时数据时调用工具；工具结果里有答案时，直接用文字回答。",
            "tools": [],
            "tool_choice": "auto",
            "parallel_tool_calls": False,
            "store": False,
            "max_output_tokens": 256,
            "temperature": 0,
            **self.reasoning,
            **fields,
            "input": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]},
                *items,
            ],
        }
        try:
            return self.client.create(payload, on_text) if on_text else self.client.create(payload)
        except ModelRequestError as error:
            if "reasoning" not in self.reasoning or "QWEN_REASONING=" not in str(error):
                self.refusals.append(str(error))
                raise
        self.reasoning = {}
        self.advice = "这个服务不接受 reasoning：请设置 QWEN_REASONING=（空），否则例子和对话都会失败"
        return self.ask(
            text, *items, on_text=on_text, **{k: v for k, v in fields.items() if k != "reasoning"}
        )

    def calls(self, text: str, **fields: Any) -> tuple[list[JsonObject], list[FunctionCall]]:
        """The output items and the calls in them."""
        output = response_output(self.ask(text, **fields))
        return output, parse_function_calls(output)


def plain_answer(server: Server) -> Finding:
    response = server.ask("用一句话介绍你自己。")
    text = output_text(response_output(response), response)
    if not text:
        return Finding(FAILS, "没有文本", "检查模型和 chat template")
    return Finding(WORKS, text[:40], server.advice)


def tool_call(server: Server) -> Finding:
    output, calls = server.calls(QUESTION, tools=[WEATHER, TIME])
    if calls:
        return Finding(WORKS, f"{calls[0].name} {calls[0].arguments}")
    advice = "检查 chat template 或 tool parser（llama-server：--jinja；vLLM：--tool-call-parser）"
    return Finding(FAILS, f"没有识别出调用，文本是：{output_text(output, {})[:60]}", advice)


def replay(server: Server) -> Finding:
    output, calls = server.calls(QUESTION, tools=[WEATHER])
    if not calls:
        return Finding(FAILS, "没有调用可以回放", FIRST)
    items = [
        {"type": "function_call_output", "call_id": call.call_id, "output": "晴，23 度"} for call in calls
    ]
    response = server.ask(QUESTION, *output, *items, tools=[WEATHER])
    answer = response_output(response)
    text = output_text(answer, response)
    if "23" in text:
        return Finding(WORKS, text[:40])
    seen = text[:40] or f"又一次调用：{[call.name for call in parse_function_calls(answer)]}"
    return Finding(
        FAILS, f"回答没有用上工具结果：{seen}", "检查 chat template 怎样渲染工具结果，或换一个模型"
    )


def reasoning_items(server: Server) -> Finding:
    response = server.ask("1 加 1 等于几？", reasoning={"effort": "low"})
    output = response_output(response)
    if not any(item.get("type") == "reasoning" for item in output):
        return Finding(UNSEEN, "这个模型没有给出 reasoning 项")
    again = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "再加 1 呢？"}]}
    response_output(server.ask("1 加 1 等于几？", *output, again))
    return Finding(WORKS, "原样回放，服务器接受")


def _forced(server: Server, tool_choice: object, advice: str) -> Finding:
    # The greeting needs no tool, so that a call proves that the field was obeyed.
    _, calls = server.calls("你好。", tools=[TIME], tool_choice=tool_choice)
    if calls:
        return Finding(WORKS, f"{calls[0].name} {calls[0].arguments}")
    return Finding(IGNORED, "没有报错，也没有调用", advice)


def required_tool(server: Server) -> Finding:
    return _forced(server, "required", "必选工具在这里靠不住：循环会报错，不会冒充成功")


def named_tool(server: Server) -> Finding:
    advice = '保持默认的 required_tool_choice="required"'
    try:
        return _forced(server, {"type": "function", "name": "get_time"}, advice)
    except ModelRequestError as error:
        return Finding(FAILS, _one_line(error), advice)


def no_tool(server: Server) -> Finding:
    output, calls = server.calls(QUESTION, tools=[WEATHER], tool_choice="none")
    if calls:
        return Finding(IGNORED, "tool_choice none 时仍然调用", "不想要调用时，不要发送 tools")
    return Finding(WORKS, output_text(output, {})[:40])


def streaming(server: Server) -> Finding:
    pieces: list[str] = []
    response = server.ask("从 1 数到 10。", on_text=pieces.append)
    text = output_text(response_output(response), response)
    if len(pieces) < 2:
        return Finding(IGNORED, f"文本分 {len(pieces)} 次到达", "可以使用，只是要等到整段写完")
    same = "与最终文本一致" if "".join(pieces).strip() == text.strip() else "与最终文本不同，以最终的为准"
    return Finding(WORKS, f"文本分 {len(pieces)} 次到达，{same}")


def cut_off(server: Server) -> Finding:
    response = server.ask("写一篇两百字的文章，介绍长城。", max_output_tokens=CAP)
    usage = response.get("usage") or {}
    used = usage.get("output_tokens", 0)
    if used > CAP + 1:  # one more, the end of the text, is counted by some
        return Finding(
            IGNORED, f"上限是 {CAP}，却写了 {used} 个 token", "不能靠 QWEN_MAX_OUTPUT_TOKENS 限制长度"
        )
    if response.get("status") == "incomplete":
        return Finding(WORKS, f"status incomplete：{response.get('incomplete_details')}")
    if used >= CAP:
        return Finding(WORKS, f"status {response.get('status')}，从 usage.output_tokens 看得出")
    return Finding(IGNORED, "截断不会报告", "调大 QWEN_MAX_OUTPUT_TOKENS，短回答要自己核对")


def error_body(server: Server) -> Finding:
    before = list(server.refusals)
    try:
        server.ask("你好。", max_output_tokens="many", tools="none")
    except ModelRequestError as error:
        if error.status and str(error) in before:
            return Finding(UNSEEN, "正常的请求也得到同样的一句，看不出错误是否有说明")
        return Finding(WORKS if error.status else FAILS, _one_line(error))
    return Finding(IGNORED, "错误的字段没有报错", "拼错的参数不会有提示")


def cached_tokens(server: Server) -> Finding:
    text = "请记住这些数字：" + "、".join(str(number) for number in range(200, 300)) + "。回答：好。"
    details: JsonObject = {}
    for _ in range(2):
        usage = server.ask(text, max_output_tokens=64).get("usage") or {}
        details = usage.get("input_tokens_details") or {}
    cached = details.get("cached_tokens")
    if not isinstance(cached, int):
        return Finding(UNSEEN, "usage 里没有 cached_tokens")
    share = cached / max(1, usage.get("input_tokens", 0))
    verdict = WORKS if share >= 0.5 else IGNORED
    return Finding(
        verdict, f"重复请求时 {share:.0%} 的输入来自缓存", "" if share >= 0.5 else "打开前缀缓存会快很多"
    )


# The first three are what the loop cannot do without.
PROBES: tuple[tuple[str, Callable[[Server], Finding]], ...] = (
    ("普通回答", plain_answer),
    ("工具调用", tool_call),
    ("回放调用与结果", replay),
    ("reasoning 项", reasoning_items),
    ("必选工具 required", required_tool),
    ("必选工具 对象形式", named_tool),
    ("不调用 none", no_tool),
    ("流式输出", streaming),
    ("截断报告", cut_off),
    ("错误说明", error_body),
    ("缓存的 token", cached_tokens),
)
NEEDED = 3


def probe_all(server: Server) -> list[tuple[str, Finding]]:
    """Ask one thing after another; a probe that fails is a finding too."""
    findings: list[tuple[str, Finding]] = []
    for name, probe in PROBES:
        try:
            finding = probe(server)
        except MiniPiError as error:
            finding = Finding(FAILS, _one_line(error))
        finding = _in_view_of(dict(findings), name, finding)
        findings.append((name, finding))
        print(f"{name}：{finding.verdict}。{printable(_one_line(finding.detail))}", flush=True)
        if finding.advice:
            print(f"    → {finding.advice}", flush=True)
    return findings


def _in_view_of(before: dict[str, Finding], name: str, finding: Finding) -> Finding:
    """The finding without advice that an earlier one contradicts."""
    if name == "必选工具 对象形式" and before["必选工具 required"].verdict != WORKS:
        works = finding.verdict == WORKS
        return finding._replace(advice='设置 required_tool_choice="named"' if works else "")
    if name == "回放调用与结果" and finding.advice == FIRST and before["工具调用"].verdict == WORKS:
        return finding._replace(advice="调用时有时无：换一个模型，或检查 chat template")
    return finding


def _one_line(text: object) -> str:
    return " ".join(str(text).split())[:300]


def main() -> int:
    """Ask, print and record; the exit status is told above."""
    soft_streams()
    parser = Parser(prog="python3 -m checks.compatibility", description="检查一个模型服务能不能带动循环。")
    parser.add_argument("url", help="服务地址，例如 http://127.0.0.1:11434")
    parser.add_argument(
        "--model",
        default=os.environ.get("QWEN_MODEL") or LOCAL_MODEL,
        metavar="NAME",
        help="模型名（默认 %(default)s）",
    )
    parser.add_argument(
        "--label", default="", metavar="TEXT", help="写进记录的说明，例如所用的 chat template"
    )
    parser.add_argument("--record", type=Path, metavar="FILE", help="把结果写成 JSON")
    args = parser.parse_args()
    try:
        if args.record:
            check_writable(args.record)
        client = ResponsesClient(args.url, api_key(), timeout())
        server = Server(client, args.model)
        require_an_answer(server)
        findings = probe_all(server)
        if args.record:
            document = {
                "version": 1,
                "command": command_line("checks.compatibility", sys.argv[1:]),
                "model": args.model,
                "label": args.label,
                "findings": [{"name": name, **finding._asdict()} for name, finding in findings],
            }
            write_record(args.record, document, api_key())
    except MiniPiError as error:
        print(short_error(error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("已中断。", file=sys.stderr)
        return 130
    usable = all(finding.verdict == WORKS for _, finding in findings[:NEEDED])
    print("循环可以在这里运行。" if usable else "循环在这里还不能运行：请先解决前三项里不可用的。")
    return 0 if usable else 1


def require_an_answer(server: Server) -> None:
    """Raise ModelRequestError where nobody answers: it would be the answer to each probe."""
    try:
        server.ask("你好。", max_output_tokens=CAP)
    except ModelRequestError as error:
        if error.status is None and not error.timed_out:
            raise
    except MiniPiError:
        pass  # it answers; what is wrong with that, the probes tell


if __name__ == "__main__":
    raise SystemExit(main())
