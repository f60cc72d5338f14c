"""Where a model's thinking ends and its answer begins, for servers that leave both in one text."""

from __future__ import annotations

import re

_OPENING = re.compile(r"\s*<think(?:ing)?>", re.IGNORECASE)
_CLOSING = re.compile(r"</think(?:ing)?>\s*", re.IGNORECASE)
# Its end without its beginning, which the chat template had written: alone on a line, or before an empty one.
_LONE_END = re.compile(
    r"(?im)(?:^[ \t]*</think(?:ing)?>[ \t\r]*(?:\n\s*|\Z)|</think(?:ing)?>[ \t\r]*(?:\n[ \t\r]*\n\s*|\Z))"
)
_ANY_OPENING = re.compile(r"<think(?:ing)?>", re.IGNORECASE)


def without_thinking(text: str) -> str:
    """text without the think blocks that it begins with; "" while one is not closed.

    A tag further on, or one that a sentence begins with ("<think> opens …"), is part of the answer. A lone
    `</think>` ends the thinking if an answer follows; else what stands before it is the text.
    """
    rest = text
    while opening := _OPENING.match(rest):
        closing = _CLOSING.search(rest, opening.end())
        if closing is None:
            return rest if is_spoken_of(rest, opening.end()) else ""
        rest = rest[closing.end() :]
    end = _LONE_END.search(rest) if rest is text else None
    if end is None or _ANY_OPENING.search(rest, 0, end.start()):
        return rest
    return rest[end.end() :] or rest[: end.start()].rstrip()


def answer_so_far(text: str) -> str:
    """Likewise of a text that is still coming, without blanks before it; "" while it may yet turn out to be
    thinking. What only its end can tell (a lone `</think>`, a tag that is spoken of) is left to the whole."""
    rest = text.lstrip()
    while opening := _OPENING.match(rest):
        closing = _CLOSING.search(rest, opening.end())
        if closing is None:
            return ""
        rest = rest[closing.end() :].lstrip()
    return "" if "<thinking>".startswith(rest[:10].lower()) else rest


def is_spoken_of(text: str, position: int) -> bool:
    """Whether what follows the tag reads like a sentence about it: thinking starts on a new line."""
    line = text[position:].partition("\n")
    return line[0][:1] in (" ", "`", "，", "、", "(", "（") and bool(line[0].strip()) and not line[1]
