"""Reading what a server sent: strict JSON, server-sent events, its own words when it refuses."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

from .errors import ContextFullError, ModelRequestError, ProtocolError

JsonObject = dict[str, Any]
MAX_NESTING = 100
# The words of OpenAI, llama.cpp, vLLM, SGLang, TGI, Gemini, Anthropic, Mistral, xAI, Groq, LM Studio, Moonshot, Qwen.
_CONTEXT_FULL = re.compile(
    r"exceed_context_size|context.?(?:length|size|window|limit)|context the overflows|max_model_len"
    r"|maximum (?:context|(?:model|prompt|input|sequence) length)"
    r"|(?:prompt|input)\b.{0,60} (?:is|are) (?:too long|too large|longer than)|(?:prompt|input) exceeds max"
    r"|exceeds? the (?:model's )?maximum (?:allowed (?:input )?length|(?:number of )?(?:input )?tokens?)"
    r"|too many (?:input |prompt )?tokens|model token limit|reduce the length of (?:the|your) (?:messages|prompt|input)"
    r"|inputs. (?:tokens \+|must have less)|range of input length",
    re.IGNORECASE,
)
_A_LINK = re.compile(r"\bhttps?://\S+|\s/[\w-]+(?:/[\w-]+)+", re.IGNORECASE)
_A_FIELD = re.compile(
    r"(?:unsupported|unknown|unrecognized|unexpected|invalid|extra) (?:\w+ )?(?:parameter|argument|field|key|input)",
    re.IGNORECASE,
)
_ABOUT_LENGTH = (
    None,
    400,
    413,
    422,
    500,
)  # a 401, a 404 or a 429 that only mentions it is about something else


def whole_characters(text: str) -> str:
    """text with the halves of surrogate pairs joined, and a replacement character for one alone: no UTF-8
    has them, and no file, terminal or server takes them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def strict_json(text: str) -> Any:
    """Parse JSON by the standard, which Python's json goes beyond.

    Raises json.JSONDecodeError for what is no JSON; ProtocolError for NaN, Infinity and numbers that
    Python cannot hold, for a key twice in one object, and for more than MAX_NESTING levels.
    """
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError:
        raise
    except (ValueError, RecursionError):
        raise ProtocolError("JSON 里的数字太长，或嵌套太深。") from None
    level = [value]
    if text.count("[") + text.count("{") > MAX_NESTING:
        for _ in range(MAX_NESTING):
            parents = [node.values() if isinstance(node, dict) else node for node in level]
            level = [node for nodes in parents for node in nodes if isinstance(node, dict | list)]
        if level:
            raise ProtocolError(f"JSON 嵌套超过 {MAX_NESTING} 层。")
    return value


def _object(pairs: list[tuple[str, Any]]) -> JsonObject:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ProtocolError("JSON 对象里有重复的键。")
    return value


def _number(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ProtocolError(f"{digits[:20]} 不是 JSON 的数。")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_number, parse_constant=_number)


def events(pieces: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """Name and data of each server-sent event, given as soon as the blank line behind it is there.

    By the WHATWG standard: CRLF, LF or CR ends a line, `: …` is a comment, several data lines make
    one event, and an event without data, or without its blank line, is none.
    """
    name, data = "", list[str]()
    for line in _lines(pieces):
        field, _, value = line.partition(":")
        if field == "data":
            data.append(value.removeprefix(" "))
        elif field == "event":
            name = value.removeprefix(" ")
        elif not line:
            if data:
                yield name, "\n".join(data)
            name, data = "", []


def _lines(pieces: Iterable[bytes]) -> Iterator[str]:
    """Whole lines only, so that no character is decoded before all of its bytes are there."""
    line, after_cr, bom = bytearray(), False, "\ufeff"
    for piece in filter(None, pieces):
        first, *more = re.split(rb"\r\n|\n|\r", piece.removeprefix(b"\n") if after_cr else piece)
        after_cr = piece.endswith(b"\r")
        line += first
        for following in more:
            yield line.decode("utf-8", "replace").removeprefix(bom)
            line, bom = bytearray(following), ""


def refusal(what: str, body: object, otherwise: str, status: int | None = None) -> ModelRequestError:
    """The error for what the server said (body), and what to do; a full context has its own."""
    said = _said(body)[:500] or "服务器没有说明原因"
    words = _A_LINK.sub(" ", str(body)[:10_000])
    if status in _ABOUT_LENGTH and _CONTEXT_FULL.search(words) and not _A_FIELD.search(words):
        advice = "请缩短问题或开始新的对话，或加大服务器的上下文（--ctx）。"
        return ContextFullError(f"{what}：上下文超出模型的窗口（{said}）。{advice}", status)
    return ModelRequestError(f"{what}：{said}。{otherwise}", status)


def _said(body: object) -> str:
    """The text in any of {"error": {"message"}}, {"error"}, {"detail": [{"loc", "msg"}]}, {"message"}."""
    if isinstance(body, list):
        return "；".join(filter(None, map(_said, body[:5])))
    if isinstance(body, dict):
        where = ".".join(map(str, loc)) + ": " if isinstance(loc := body.get("loc"), list) else ""
        keys = ("error", "errors", "detail", "message", "msg", "reason", "type", "code", "status")
        return next((where + said for key in keys if (said := _said(body.get(key)))), "")
    text = "" if body is None else str(body)[:5_000]
    return " ".join("".join(c if c.isprintable() else " " for c in text).split()).rstrip("。.")
