"""Every error that mini_pi raises on purpose, and who is to blame for it.

    MiniPiError                 catching this one is enough
    ├── ModelRequestError       the server: not reached, too slow, or it refused (.status)
    │   └── ContextFullError    the history no longer fits the model's context window
    ├── ProtocolError           the server: it answered, but not in the Responses protocol
    ├── AgentRunError           the model: a whole run without an answer worth returning
    │   └── CutOffCallError     its tool call stops half-way; a ProtocolError as well
    └── ToolError               a tool: the model reads it as the tool's output

A plain MiniPiError is the caller's own: a setting that was refused before any request.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

# What documentation tells people to set where no key is needed: it would be found in many an innocent text.
_PLACEHOLDERS = {"lm-studio", "not-needed", "no-key-needed", "no-key-required", "sk-no-key-required"}
_PLACEHOLDERS |= {"not-required", "placeholder", "dummy-key", "your-api-key", "anything"}


class MiniPiError(Exception):
    """Root of the tree. Raised out of a run, it carries what happened until then.

    history: every item so far, each tool call paired with one output; None outside a run.
    turn: the turn (one model request) that failed, counted from 1; None outside a run.
    usage: one usage dict or None per answered request of this run.
    """

    history: list[dict[str, Any]] | None = None
    turn: int | None = None
    usage: list[dict[str, Any] | None] | None = None

    def during_turn(self, turn: int, history: list[dict[str, Any]], usage: list[Any]) -> None:
        """Add the turn to the message, and what happened to the error; the object stays the same."""
        self.args = (f"第 {turn} 轮：{self}",)
        self.turn, self.history, self.usage = turn, history, usage


class ModelRequestError(MiniPiError):
    """The request got no usable answer.

    status: the HTTP status, or the 429 that an error object spoke of; None when there was none.
    retry_after: seconds after which asking again makes sense, 0 where the server named none; None when
    asking again makes no sense. timed_out: whether the timeout ended it.
    """

    retry_after: float | None = None
    timed_out: bool = False

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ContextFullError(ModelRequestError):
    """The server refused the request for its length. Nothing is trimmed: what to forget is the user's choice."""

    def during_turn(self, turn: int, history: list[dict[str, Any]], usage: list[Any]) -> None:
        """Also say how long the history is."""
        read = [each["input_tokens"] for each in usage if each and each.get("input_tokens")]
        tokens = f"，上一轮读入了 {read[-1]} 个 token" if read else ""
        self.args = (f"{self}历史现有 {len(history)} 项{tokens}。",)
        super().during_turn(turn, history, usage)


class ProtocolError(MiniPiError):
    """The answer is not what the Responses protocol promises; nothing is guessed from it."""


class AgentRunError(MiniPiError):
    """The run ended without an answer: half a product is never returned as a whole one."""


class CutOffCallError(AgentRunError, ProtocolError):
    """A tool call whose arguments stop in the middle of the JSON: cut off, and not executable."""


class ToolError(MiniPiError):
    """Raise it in a handler: its text, which should name the next step, goes to the model."""


def without_secret(value: Any, secret: str | None) -> Any:
    """A JSON value with *** for secret in its strings, also where it is escaped in JSON, HTML or a URL.

    What cannot be one is left alone: a well-known placeholder, and what is as short as a word (under 8
    characters, or under 4 where it has letters and digits).
    """
    shortest = 4 if re.search("[0-9]", secret or "") and re.search("[A-Za-z]", secret or "") else 8
    if not secret or len(secret) < shortest or secret.lower() in _PLACEHOLDERS:
        return value
    if isinstance(value, str):
        return _spelled(secret).sub("***", value)
    if isinstance(value, dict):
        return {without_secret(key, secret): without_secret(item, secret) for key, item in value.items()}
    return [without_secret(item, secret) for item in value] if isinstance(value, list) else value


@lru_cache(maxsize=4)
def _spelled(secret: str) -> re.Pattern[str]:
    """All spellings of secret, with or without the dots that it ends in, which errors lose."""
    from html.entities import html5

    def spellings(char: str) -> str:
        code, names = ord(char), [name for name, text in html5.items() if text == char]
        entities = "|".join([f"#0*{code};?", f"#x0*{code:x};?", *map(re.escape, names)])
        escapes = rf"\\+u00{code:02x}|%(?:25)*{code:02x}|&(?:amp;)*(?:{entities})"
        return rf"(?:\\*{re.escape(char)}|{escapes})"

    core = secret.rstrip(".") or secret
    dots = "".join(f"{spellings(dot)}?" for dot in secret[len(core) :])
    return re.compile("".join(map(spellings, core)) + dots, re.IGNORECASE)
