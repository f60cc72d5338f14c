"""The history: the items that the loop adds itself, and the rule that each call has exactly one output."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..pi_ai import JsonObject, ProtocolError, foreign_call, parse_function_calls, response_output


def user_item(question: str) -> JsonObject:
    """A question, as one input_text part: not every server reads a plain string. The type is required by the
    Open Responses schema."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": question}]}


def output_item(call_id: str, output: str) -> JsonObject:
    """What a call came to, paired with it by call_id alone (article, part 4)."""
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def unpaired(history: Sequence[JsonObject]) -> list[Any]:
    """The call_ids of calls without an output, and of outputs without a call before them.

    Paired in order, since some servers use an id again in a later turn.
    """
    waiting: list[Any] = []
    strays: list[Any] = []
    for item in history:
        kind, call_id = item.get("type"), item.get("call_id")
        if kind == "function_call":
            waiting.append(call_id)
        elif kind == "function_call_output" and call_id in waiting:
            waiting.remove(call_id)
        elif kind == "function_call_output":
            strays.append(call_id)
    return waiting + strays


def close_open_calls(history: list[JsonObject]) -> None:
    """Give each call left without an output one that says so: servers refuse a history with a gap."""
    for call_id in unpaired(history):
        history.append(output_item(call_id, "这次调用没有完成：运行被中断，结果未知。"))


def items_of(response: JsonObject) -> list[JsonObject]:
    """The output items. Raises ProtocolError also for a tool's output among them: tools run here."""
    output = response_output(response)
    if any(item.get("type") == "function_call_output" for item in output):
        raise ProtocolError("响应里夹带了 function_call_output，而工具在这里执行。请检查模型服务器。")
    return output


def replayable(output: list[JsonObject]) -> list[JsonObject]:
    """All of output, or nothing where servers would refuse it ever after: with half a call, a call that nobody
    answers, or reasoning that nothing follows (OpenAI: "without its required following item")."""
    try:
        parse_function_calls(output)
    except ProtocolError:
        return []
    only_reasoning = all(item.get("type") == "reasoning" for item in output)
    return [] if only_reasoning or foreign_call(output) else output


def circle(history: Sequence[JsonObject]) -> tuple[list[str], int] | None:
    """What the last calls since the question went round in: the call, or the two that took turns, as text,
    and how many calls in a row it was; None when the last calls were different ones."""
    asked = max((index for index, item in enumerate(history) if item.get("role") == "user"), default=0)
    calls = [
        f"{call.name} {json.dumps(call.arguments, ensure_ascii=False, sort_keys=True)}"
        for item in history[asked:]
        for call in parse_function_calls([item])
    ]
    for length in (1, 2):
        last, count = calls[-length:], length
        while count < len(calls) and calls[-1 - count] == calls[length - 1 - count]:
            count += 1
        if count >= 2 * length:
            return last, count
    return None
