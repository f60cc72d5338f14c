"""Which text is an answer, and which is only a tool call that was written as text.

Models write the call into the text when the server's chat template or tool parser does not fit them;
the loop must not hand that to the user as the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence

from ..pi_ai import AgentRunError, JsonObject
from .history import circle

# What may stand around a call. The text is the model's, and must not make a pattern run for ever: what
# could match in two ways is possessive (*+), its parts are bounded.
_AROUND = (
    r"(?:```[\w+-]{0,20}"  # ```json
    r"|\[/?(?:END_)?(?:TOOL_[A-Z]{1,20}|ARGS)\]"  # [TOOL_CALLS]
    r"|[\s,;`\[\]}]"  # white space, commas, the brackets of a list, a brace too many
    r"|<[^<>]{0,40}[|｜]>|</s>"  # <|python_tag|>
    r"|</?[^<>\s=\"'/]{0,30}(?:tool|function|call|invoke|action)[^<>\s=\"']{0,30}>"  # <tool_call>, </tools>
    r"|(?:action|tool|function|call|arguments)(?:[ _](?:calls?|input))?[:：]"  # Action:
    r"|(?:工具|工具调用|调用工具|动作|参数)[:：]"
    r"|(?:assistant|commentary|json)(?=[\s<{])|to=)*+"  # gpt-oss
)
_SKIP = re.compile(_AROUND, re.I)
# <function=f>…</function>, <invoke name="f">…</invoke>, <f><path>…</path></f>
_TAGGED = re.compile(
    r"<(?:[^<>\s=\"']{0,20}[:|｜])?(function|invoke|tool)(?:_call)?(?:=|\s{1,9}name=)[\"']?([\w.-]{1,99})"
    r".*?(?:</[^<>\s]{0,20}\1(?:_call)?>|\Z)|<([\w.-]{1,99})>.*?(?:</\3>|\Z)",
    re.I | re.S,
)
# f(path="…"), f<arg_key>…, and f before a JSON object; functions.f:0 is the same f
_NAMED = re.compile(
    r"(?:functions?(?:\.|<[^<>]{1,40}>))?([\w.-]+)(?::\d{1,9})?\s*+"
    r"(?:\((?:[\"')]|\w{1,40}=)[^()\n]*\)?|(?:<arg_key>.*?(?:</arg_value>|\Z)\s*)+|(?=</tool_call>)"
    rf"|{_AROUND}(?={{))",
    re.I | re.S,
)
# JSON that is cut off, or not quite JSON
_BROKEN = re.compile(
    r"\{\s*[\"'](?:name|function|tool)[\"']\s*:\s*(?:\{\s*[\"']name[\"']\s*:\s*)?[\"']([\w.-]+)[\"']"
    r"(?=[\s},]*\Z|\s*,\s*[\"'](?:arguments|parameters|args|input))"
)
_JSON = json.JSONDecoder(strict=False)
_CALLEE = ("name", "function", "tool", "tool_name", "action", "function_call", "tool_call", "tool_calls")
_BESIDE = {"arguments", "parameters", "args", "input", "action_input", "tool_input", "type", "id", "call_id"}


def final_answer(text: str, pending: Sequence[str], tool_names: Collection[str]) -> str:
    """Return text as the answer of the run, or raise AgentRunError: half a product is none."""
    if not re.sub("</?tool_calls?>", "", text).strip():
        reason = "模型既没有返回文本，也没有调用工具。请重试，或检查模型与服务器的 chat template。"
    elif name := written_call(text, tool_names):
        reason = (
            f"模型把对 {name} 的调用写成了普通文本，服务器没有识别出来。"
            "请检查服务器的 chat template 或 tool parser（llama-server 需要 --jinja）。"
        )
    elif pending:
        reason = (
            f"必选工具 {pending[0]} 还没有成功执行，模型就给出了回答。"
            "请检查服务器是否支持 tool_choice，或换用工具调用能力更强的模型。"
        )
    else:
        return text
    raise AgentRunError(reason)


def after_all_turns(history: Sequence[JsonObject]) -> str:
    """What to do when the turns are used up: more of them help nobody who goes in circles."""
    found = circle(history)
    if found is None:
        return "可以调大 max_turns（--max-turns）后重试。"
    calls, count = found
    named = " 和 ".join(call if len(call) <= 200 else call[:200] + "…" for call in calls)
    how = "轮流重复" if len(calls) > 1 else "重复"
    return f"模型在{how}调用 {named}，最后连续 {count} 次。请换一种问法，检查工具说明和返回的结果，或换用更强的模型。"


def written_call(text: str, tool_names: Collection[str]) -> str | None:
    """The registered tool that text calls (the first of several) and does nothing else, else None.

    A call is JSON, a tagged name, or a name with its arguments, closed or not. Fences, special tokens
    and labels around it are nothing of substance; any other word is.
    """
    first, position = None, 0
    while (position := _skip(text, position)) < len(text):
        names, position = _calls_at(text, position)
        if not names or not all(name in tool_names for name in names):
            return None
        first = first or names[0]
    return first


def _skip(text: str, position: int) -> int:
    return _SKIP.match(text, position).end()  # type: ignore[union-attr]  # it matches nothing as well


def _calls_at(text: str, position: int) -> tuple[list[str | None], int]:
    """The names called at this position, and where their calls end."""
    if tagged := _TAGGED.match(text, position):
        return [tagged[2] or tagged[3]], tagged.end()
    named = _NAMED.match(text, position)
    if named and not text.startswith("{", named.end()):
        return [named[1]], named.end()
    try:
        value, end = _JSON.raw_decode(text, named.end() if named else position)
        return [named[1]] if named else _called(value), end
    except (ValueError, RecursionError):
        found = named or _BROKEN.match(text, position)
        return [found and found[1]], len(text)


def _called(value: object) -> list[str | None]:
    """The name in each object that has a call's keys and no others; None for what is no call."""
    if isinstance(value, list):
        return [name for each in value for name in _called(each)]
    if isinstance(value, dict):
        for key in _CALLEE:
            if key in value and value.keys() <= {key, *_BESIDE}:
                return [value[key]] if isinstance(value[key], str) else _called(value[key])
    return [None]
