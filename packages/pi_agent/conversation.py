"""The same loop over a history that is kept between questions, and can be saved and taken up again."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..pi_ai import JsonObject, MiniPiError, strict_json
from .loop import (
    AgentEvent,
    AgentLoopConfig,
    EventSink,
    ModelClient,
    Usage,
    check_settings,
    open_calls,
    run_agent,
)
from .tools import AgentTool

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

    @property
    def history(self) -> list[JsonObject]:
        """A copy of every item so far; each tool call in it has its output."""
        return copy.deepcopy(self._history)

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
        for index in range(len(self._history) - 1, -1, -1):
            if self._history[index].get("role") == "user":
                del self._history[index:]
                return
        raise MiniPiError("还没有可以撤回的问题。")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the history as one JSON document, readable by its owner only (mode 0600).

        A crash leaves the old file or the new one, never half. Raises MiniPiError.
        """
        import tempfile

        document = {"version": VERSION, "history": self._history}
        # A lone surrogate becomes \udXXX, which inside a JSON string is its very escape.
        data = (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "backslashreplace")
        target, temporary = Path(path), None
        try:
            descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(descriptor)
            Path(temporary).replace(target)
        except OSError as error:
            if temporary is not None:
                Path(temporary).unlink(missing_ok=True)
            raise MiniPiError(f"无法保存对话到 {path}：{error.strerror}。请换一个可写的路径。") from None

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
            document = strict_json(Path(path).read_bytes().decode("utf-8"))
        except OSError as error:
            raise MiniPiError(f"无法读取对话文件 {path}：{error.strerror}。请检查路径。") from None
        except (ValueError, MiniPiError):
            raise MiniPiError(f"对话文件 {path} 不是完整的 JSON，文件没有改动。请换一个文件。") from None
        conversation._history = _checked_history(document, path)
        return conversation

    def _watch(self, event: AgentEvent) -> None:
        if event.type == "turn_end":
            self._usage.append(event.usage)
        if self._emit is not None:
            self._emit(event)


def _checked_history(document: Any, path: str | os.PathLike[str]) -> list[JsonObject]:
    version = document.get("version") if isinstance(document, dict) else None
    if type(version) is not int or version != VERSION:
        raise MiniPiError(
            f"对话文件 {path} 的版本是 {version!r}，这里只认识版本 {VERSION}。请用写它的程序打开。"
        )
    history = document.get("history")
    if not isinstance(history, list) or not all(isinstance(item, dict) for item in history):
        raise MiniPiError(f"对话文件 {path} 里没有 history 列表，文件没有改动。请换一个文件。")
    try:
        waiting = open_calls(history)
    except KeyError:
        waiting = ["（缺少 call_id）"]
    if waiting:
        raise MiniPiError(f"对话文件 {path} 里的工具调用没有配对的结果：{'、'.join(waiting)}。请换一个文件。")
    return history
