"""Which text is an answer, and which is only a tool call that was written as text.

Small local models write the call into the text when the server's chat template or tool parser does
not fit them; the loop must not hand that to the user as the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence

from ..pi_ai import AgentRunError

_FENCE = re.compile(r"```[\w+-]*")
_LABEL = re.compile(
    r"^\s*(?:action|tool[ _]calls?|function[ _]calls?|工具调用|调用工具|动作)\s*[:：]", re.I | re.M
)
_TAG = re.compile(
    r"</?\|?(?:tool|tools|tool_calls?|function_calls?|toolcall|call)\b[^<>]{0,80}>|\[/?TOOL_CALLS?\]", re.I
)
_XML_CALL = re.compile(r"<(?:function|invoke|tool)\s*(?:=|\s+name\s*=)\s*[\"']?([\w.-]+)[\"']?\s*>?", re.I)
_XML_END = re.compile(r"</(?:function|invoke|tool)>", re.I)
_OPEN_JSON = re.compile(
    r"[\s\[]*\{\s*\"(?:name|function|tool)\"\s*:\s*(?:\{\s*\"name\"\s*:\s*)?\"([\w.-]+)\""
)
_CALL_KEYS = {"name", "function", "tool", "arguments", "parameters", "args", "input", "type", "id", "call_id"}


def final_answer(text: str, pending: Sequence[str], tool_names: Collection[str]) -> str:
    """Return text as the answer of the run, or raise AgentRunError: half a product is none."""
    if not text.strip():
        raise AgentRunError(
            "模型既没有返回文本，也没有调用工具。请重试，或检查模型与服务器的 chat template。"
        )
    if pending:
        raise AgentRunError(
            f"必选工具 {pending[0]} 还没有成功执行，模型就给出了回答。"
            "请检查服务器是否支持 tool_choice，或换用工具调用能力更强的模型。"
        )
    name = written_call(text, tool_names)
    if name is not None:
        raise AgentRunError(
            f"模型把对 {name} 的调用写成了普通文本，服务器没有识别出来。"
            "请检查服务器的 chat template 或 tool parser（llama-server 需要 --jinja）。"
        )
    return text


def written_call(text: str, tool_names: Collection[str]) -> str | None:
    """Name the registered tool that text calls and does nothing else, else None.

    Known forms: JSON, bare or fenced or tagged or after a label like `Action:`, and
    `<function=name>…</function>`; closed or not, one or several.
    """
    body = _LABEL.sub("", _FENCE.sub("", text))
    xml = _XML_CALL.match(body.strip()) or _XML_CALL.match(_TAG.sub("", body).strip())
    if xml:
        rest = _XML_END.split(body)[-1] if _XML_END.search(body) else ""
        return _registered([xml[1]], tool_names) if not _TAG.sub("", rest).strip() else None
    body = _TAG.sub("", body).strip()
    names: list[str | None] = []
    while body:
        try:
            value, end = json.JSONDecoder().raw_decode(body)
        except (ValueError, RecursionError):
            opened = _OPEN_JSON.match(body)
            names.append(opened[1] if opened else None)
            break
        names += [_called(each) for each in (value if isinstance(value, list) else [value])]
        body = body[end:].lstrip(" \t\r\n,;")
    return _registered(names, tool_names)


def _called(value: object) -> str | None:
    """The name in an object that has a call's keys and no others."""
    if not isinstance(value, dict) or not value.keys() <= _CALL_KEYS:
        return None
    name = value.get("name") or value.get("function") or value.get("tool")
    if isinstance(name, dict):
        return _called(name)
    return name if isinstance(name, str) else None


def _registered(names: Sequence[str | None], tool_names: Collection[str]) -> str | None:
    return names[0] if names and all(name in tool_names for name in names) else None
