"""Which text is an answer, and which is only a tool call that was written as text.

Models write the call into the text when the server's chat template or tool parser does not fit them;
the loop must not hand that to the user as the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ..pi_ai import AgentRunError, JsonObject
from .history import circle
from .tools import AgentTool

# What may stand around a call. The text is the model's, and must not make a pattern run for ever: what
# could match in two ways is possessive (*+), its parts are bounded.
_AROUND = (
    r"(?:```[\w+-]{0,20}"  # ```json
    r"|\[/?(?:END_)?(?:TOOL_[A-Z]{1,20}|ARGS)\]"  # [TOOL_CALLS]
    r"|[\s,;`\[\]})]"  # white space, commas, the brackets of a list, a brace too many
    r"|<[^<>]{0,40}[|｜]>|</s>|</?[a-z_]{1,20}\Z"  # <|python_tag|>, </tool at the end
    r"|print\((?=[\w.]{1,99}\()"  # print(f(…))
    r"|</?[^<>\s=\"'/]{0,30}(?:tool|function|call|invoke|action)[^<>\s=\"']{0,30}>"  # <tool_call>, </tools>
    r"|(?:action|tool|function|call|arguments)(?:[ _](?:calls?|input))?[:：]"  # Action:
    r"|(?:工具|工具调用|调用工具|动作|参数)[:：]"
    r"|(?:assistant|commentary|json)(?=[\s<{])|to=)*+"  # gpt-oss
)
_SKIP = re.compile(_AROUND, re.I)
# <function=f>…</function>, <invoke name="f">…</invoke>, <f><path>…</path></f>, <name>f</name><arguments>…</arguments>
_TAGGED = re.compile(
    r"<(?:[^<>\s=\"']{0,20}[:|｜])?(function|invoke|tool)(?:_call)?(?:=|\s{1,9}name=)[\"']?([\w.-]{1,99})"
    r".*?(?:</[^<>\s]{0,20}\1(?:_call)?>|\Z)"
    r"|<(?:tool_)?name>\s*+([\w.-]{1,99})\s*+</(?:tool_)?name>\s*+"
    r"(?:<(arguments|parameters|args|input)>.*?(?:</\4>|\Z))?"
    r"|<([\w.-]{1,99})>.*?(?:</\5>|\Z)",
    re.I | re.S,
)
# f(path="…"), f<arg_key>…, and f before a JSON object; functions.f:0 is the same f
_NAMED = re.compile(
    r"(?:functions?(?:\.|<[^<>]{1,40}>)|default_api\.|tools?\.)?([\w.-]+)(?::\d{1,9})?\s*+"
    r"(?:\((?:[\"')]|\w{1,40}=)[^()\n]*\)?|\(\s*+(?={)|(?:<arg_key>.*?(?:</arg_value>|\Z)\s*)+|(?=</tool_call>)"
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
_ARGUMENTS = ("arguments", "parameters", "args", "input", "action_input", "tool_input")
_BESIDE = {*_ARGUMENTS, "type", "id", "call_id"}
_TYPES = (None, "function", "function_call", "tool", "tool_call", "tool_use")

# A name that was called, and its arguments where they could be read.
Called = tuple[str | None, Mapping[str, Any] | None]
Tools = Mapping[str, AgentTool] | Collection[str]


def final_answer(text: str, pending: Sequence[str], tools: Tools) -> str:
    """Return text as the answer of the run, or raise AgentRunError: half a product is none."""
    if not re.sub("</?tool_calls?>", "", text).strip():
        reason = "模型既没有返回文本，也没有调用工具。请重试，或检查模型与服务器的 chat template。"
    elif name := written_call(text, tools):
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


def written_call(text: str, tools: Tools) -> str | None:
    """The registered tool that text calls (the first of several) and does nothing else, else None.

    A call is JSON, Python, a tagged name, or a name with its arguments, closed or not. Fences, special tokens
    and labels around it are nothing of substance; any other word is. Arguments that could be read, and that
    the tool's own schema refuses, make no call: `{"name": "price", "type": "number"}` is somebody's data.
    """
    calls = _python_calls(text, tools)
    position = 0 if calls is None else len(text)
    calls = calls or []
    while (position := _skip(text, position)) < len(text):
        found, position = _calls_at(text, position, tools)
        if not found or not all(_is_call(call, tools) for call in found):
            return None
        calls += found
    return calls[0][0] if calls and all(_is_call(call, tools) for call in calls) else None


def _is_call(call: Called, tools: Tools) -> bool:
    name, arguments = call
    if name is None or name not in tools:
        return False
    return arguments is None or not isinstance(tools, Mapping) or tools[name].accepts(arguments)


def _skip(text: str, position: int) -> int:
    return _SKIP.match(text, position).end()  # type: ignore[union-attr]  # it matches nothing as well


def _calls_at(text: str, position: int, tools: Tools) -> tuple[list[Called], int]:
    """What is called at this position, and where the calls end."""
    if tagged := _TAGGED.match(text, position):
        return [(tagged[2] or tagged[3] or tagged[5], None)], tagged.end()
    named = _NAMED.match(text, position)
    if named and not text.startswith("{", named.end()):
        return [(named[1], {} if named[0].endswith("()") else None)], named.end()
    try:
        value, end = _JSON.raw_decode(text, named.end() if named else position)
        if named:
            return [(named[1], value if isinstance(value, dict) else None)], end
        return list(_called(value, tools)), end
    except (ValueError, RecursionError):
        found = named or _BROKEN.match(text, position)
        return [(found and found[1], None)], len(text)


def _called(value: object, tools: Tools) -> Iterator[Called]:
    """What each object calls that has a call's keys and no others; None for what is no call."""
    if isinstance(value, list):
        for each in value:
            yield from _called(each, tools)
        return
    key = next((key for key in _CALLEE if key in value), None) if isinstance(value, dict) else None
    if not isinstance(value, dict) or value.get("type") not in _TYPES:
        yield None, None
    elif key is not None and value.keys() <= {key, *_BESIDE}:
        if isinstance(value[key], str):
            yield value[key], _arguments(value)
        else:
            yield from _called(value[key], tools)
    else:
        yield _by_its_tool(value, key, tools)


def _arguments(value: JsonObject) -> Mapping[str, Any] | None:
    given: Any = next((value[key] for key in _ARGUMENTS if key in value), {})
    if isinstance(given, str):
        try:
            given = _JSON.decode(given or "{}")
        except (ValueError, RecursionError):
            return None
    return given if isinstance(given, dict) else None


def _by_its_tool(value: JsonObject, key: str | None, tools: Tools) -> Called:
    """{"f": {…}}, or {"tool": "f", "path": …}: a call only if f declares just these arguments."""
    rest = {name: item for name, item in value.items() if name != key}
    if key not in (None, "name") and isinstance(value[key], str) and _declares(tools, value[key], rest):
        return value[key], rest
    if len(value) == 1:
        [(name, arguments)] = value.items()
        if isinstance(arguments, dict) and _declares(tools, name, arguments):
            return name, arguments
    return None, None


def _declares(tools: Tools, name: str, arguments: JsonObject) -> bool:
    if not isinstance(tools, Mapping) or name not in tools:
        return False
    return arguments.keys() <= set(tools[name].parameters.get("properties", {}))


def _python_calls(text: str, tools: Tools) -> list[Called] | None:
    """The calls, if text is Python that does nothing else: over several lines, printed, or kept in a name."""
    code = re.sub(r"\A\s*```\w*\n|\n?```\s*\Z", "", text).strip("` \t\r\n")
    if (
        not re.match(r"(?:[\w ]{1,99}=\s*)?(?:await |print\(|\[)*\s*[\w.]{1,99}\s*\(", code)
        or len(code) > 100_000
    ):
        return None
    import ast  # here: hardly any text gets this far
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a backslash in the model's string
            statements = ast.parse(code).body
        calls = [call for each in statements for call in _python_call(each, ast)]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    return [_placed(call, tools) for call in calls]


def _python_call(node: Any, ast: Any) -> Iterator[Any]:
    """(name, positional, named) of each call in node. Raises ValueError for anything else."""
    if isinstance(node, ast.Expr | ast.Assign | ast.Await):
        yield from _python_call(node.value, ast)
    elif isinstance(node, ast.List | ast.Tuple):
        for each in node.elts:
            yield from _python_call(each, ast)
    elif not isinstance(node, ast.Call):
        raise ValueError
    elif isinstance(node.func, ast.Name) and node.func.id == "print" and len(node.args) == 1:
        if not isinstance(node.args[0], ast.Name):  # print(result)
            yield from _python_call(node.args[0], ast)
    else:
        named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords}
        yield ast.unparse(node.func), [ast.literal_eval(each) for each in node.args], named


def _placed(call: Any, tools: Tools) -> Called:
    """The call with each positional argument under its name, where the tool's declaration tells it."""
    name, positional, named = call
    if name not in tools:
        name = re.sub(r"\A(?:functions?|tools?|default_api)\.", "", name)
    if not positional:
        return name, named
    if len(positional) == 1 and isinstance(positional[0], dict) and not named:
        return name, positional[0]
    if not isinstance(tools, Mapping) or name not in tools:
        return name, None
    names = list(tools[name].parameters.get("properties", {}))
    return name, dict(zip(names, positional, strict=False)) | named
