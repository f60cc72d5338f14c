"""Reading what a server sent: strict JSON, server-sent events, and its words when it refuses."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

from .errors import ProtocolError

JsonObject = dict[str, Any]

MAX_NESTING = 100
_OVERFLOW = re.compile(
    r"exceed_context_size|context_length_exceeded|context (?:size|length|window)|max_model_len"
    r"|maximum context|(?:prompt|input) is too long|too many (?:input )?tokens",
    re.IGNORECASE,
)


def strict_json(text: str) -> Any:
    """Parse JSON by the standard, which Python's json goes beyond.

    Raises json.JSONDecodeError for what is no JSON, ProtocolError for NaN and Infinity, numbers too
    large to keep, a key twice in one object, and more than MAX_NESTING levels.
    """
    try:
        level = [_DECODER.decode(text)]
    except json.JSONDecodeError:
        raise
    except (ValueError, RecursionError):
        raise ProtocolError("JSON 嵌套过深，或数字过长。") from None
    value = level[0]
    for _ in range(MAX_NESTING):
        level = [
            child
            for parent in level
            if isinstance(parent, dict | list)
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
        if not level:
            return value
    raise ProtocolError(f"JSON 嵌套超过 {MAX_NESTING} 层。")


def _object(pairs: list[tuple[str, Any]]) -> JsonObject:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ProtocolError("JSON 对象里有重复的键。")
    return value


def _constant(name: str) -> float:
    raise ProtocolError(f"{name} 不是 JSON。")


def _float(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _constant(digits[:20])


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)


def events(pieces: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """Name and data of each server-sent event, as soon as its blank line is there.

    By the WHATWG standard: CRLF, LF or CR ends a line, a line `: …` is a comment, several data lines
    make one event, an event without data or without its blank line is none.
    """
    name, data = "", []
    for line in _lines(pieces):
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
        elif not line:
            if data:
                yield name, "\n".join(data)
            name, data = "", []


def _lines(pieces: Iterable[bytes]) -> Iterator[str]:
    """Whole lines only, so that no character is decoded before all its bytes are there."""
    line, after_cr, first = bytearray(), False, True
    for piece in pieces:
        if after_cr:
            piece = piece.removeprefix(b"\n")
        after_cr = piece.endswith(b"\r")
        start, *more = re.split(rb"\r\n|\n|\r", piece)
        line += start
        for following in more:
            text = line.decode("utf-8", "replace")
            yield text.removeprefix("\ufeff") if first else text
            line, first = bytearray(following), False


def explain(body: object, otherwise: str, secret: str | None = None) -> str:
    """What the server said, without secret, and what to do: about the context window where that is full."""
    said = _said(body)
    if secret:
        said = said.replace(secret, "***")
    said = said[:500] or "服务器没有说明原因"
    if _OVERFLOW.search(str(body)[:10_000]):
        return f"上下文超出模型的窗口（{said}）。请缩短问题或开始新的对话，或加大服务器的上下文（--ctx）。"
    return f"{said}。{otherwise}"


def _said(body: object) -> str:
    """The text in any of {"error": {"message"}}, {"error"}, {"detail": [{"loc", "msg"}]}, {"message"}."""
    if isinstance(body, list):
        return "；".join(filter(None, map(_said, body[:5])))
    if isinstance(body, dict):
        loc = body.get("loc")
        where = ".".join(map(str, loc)) + ": " if isinstance(loc, list) else ""
        keys = ("error", "detail", "message", "msg", "type", "code")
        return next((where + said for key in keys if (said := _said(body.get(key)))), "")
    if body is None or isinstance(body, bool):
        return ""
    printable = (c if c.isprintable() else " " for c in str(body)[:5_000])  # no terminal escapes
    return " ".join("".join(printable).split()).rstrip("。.")
