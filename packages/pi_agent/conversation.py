"""The same loop over a history that is kept between questions, and can be saved and taken up again."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Sequence
from typing import Any

from ..pi_ai import JsonObject, MiniPiError, parse_function_calls, strict_json
from .config import AgentLoopConfig, check_settings
from .history import close_open_calls, unpaired
from .loop import AgentEvent, EventSink, ModelClient, Usage, run_agent
from .tools import AgentTool
from .whole_file import regular_file, write_whole

VERSION = 1


class Conversation:
    """Questions that build on each other. Not for several threads at once: one conversation each.

    Raises MiniPiError at once for settings that run_agent would refuse.
    """

    def __init__(
        self,
        client: ModelClient,
        tools: Sequence[AgentTool],
        config: AgentLoopConfig,
        emit: EventSink | None = None,
    ) -> None:
        check_settings(tools, config)
        self._client, self._tools, self._config, self._emit = client, tools, config, emit
        self._history: list[JsonObject] = []
        self._usage: Usage = []
        self._seen: dict[
            str, bytes
        ] = {}  # by path: the digest of what this conversation last read or wrote there

    @property
    def history(self) -> list[JsonObject]:
        """A copy of every item so far; each tool call in it has its output, be it that it is still running."""
        history = copy.deepcopy(self._history)
        close_open_calls(history)
        return history

    @property
    def usage(self) -> Usage:
        """What the server reported for each turn since this object was made; None where it did not."""
        return copy.deepcopy(self._usage)

    def ask(self, question: str) -> str:
        """Answer question with all that went before in mind; what it raises is run_agent's.

        After an error or Ctrl-C the history is whole, and the next ask works.
        """
        return run_agent(
            self._client, self._tools, self._config, question, self._watch, history=self._history
        )

    def forget_last(self) -> None:
        """Drop the last question and all that came of it. MiniPiError when there is none."""
        asked = [index for index, item in enumerate(self._history) if item.get("role") == "user"]
        if not asked:
            raise MiniPiError("还没有可以撤回的问题。请先提问。")
        del self._history[asked[-1] :]
        close_open_calls(self._history)  # should a server have sent an item of that role after a call

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the history as one JSON document, readable by its owner only (mode 0600).

        What is saved can be loaded, also in the middle of a turn. A crash leaves the old file or the new one,
        never half; where path is a link, its target is written. Raises MiniPiError, also when the file is
        another one by now than this conversation was loaded from, or last saved as.
        """
        try:
            target = os.path.realpath(path)
            if target in self._seen and regular_file(target) and self._seen[target] != _digest(_read(target)):
                raise ValueError("它已经变了（另一个对话也存到了这里），没有改动它")
            document = {"version": VERSION, "history": self.history}
            text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1) + "\n"
            self._seen[target] = _digest(write_whole(target, text, 0o600))
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise MiniPiError(f"无法保存对话到 {path}：{_why(error)}。请换一个可写的路径。") from None

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        client: ModelClient,
        tools: Sequence[AgentTool],
        config: AgentLoopConfig,
        emit: EventSink | None = None,
    ) -> Conversation:
        """Take up a saved conversation. MiniPiError when the file cannot be used; it is left alone."""
        conversation = cls(client, tools, config, emit)
        try:
            content = _read(path)
            conversation._history = _checked_history(strict_json(content.decode("utf-8")))
            conversation._seen[os.path.realpath(path)] = _digest(content)
        except (OSError, ValueError, MiniPiError) as error:
            raise MiniPiError(
                f"对话文件 {path} 不能用，没有改动它：{_why(error)}。请检查路径，或换一个文件。"
            ) from None
        return conversation

    def _watch(self, event: AgentEvent) -> None:
        if event.type == "turn_end":
            self._usage.append(event.usage)
        if self._emit is not None:
            self._emit(event)


def _checked_history(document: Any) -> list[JsonObject]:
    """The history in a saved document, if it can be sent again. Raises ValueError or ProtocolError."""
    version = document.get("version") if isinstance(document, dict) else None
    if type(version) is not int or version != VERSION:
        raise ValueError(f"版本是 {version!r}，这里只认识 {VERSION}")
    history = document.get("history")
    if not isinstance(history, list) or not all(isinstance(item, dict) for item in history):
        raise ValueError("里面没有 history 列表")
    for item in history:
        parse_function_calls([item])
    if alone := unpaired(history):
        raise ValueError(f"工具调用和结果没有配对：{'、'.join(map(str, alone))}")
    return history


def _read(path: str | os.PathLike[str]) -> bytes:
    from pathlib import Path  # here, as hashlib below: neither is needed to ask a question

    return Path(path).read_bytes()


def _digest(content: bytes) -> bytes:
    import hashlib

    return hashlib.sha256(content).digest()


def _why(error: Exception) -> str:
    """The system's own words, without the path that the message names already."""
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return "不是完整的 JSON"
    return str(getattr(error, "strerror", None) or error).rstrip("。")
