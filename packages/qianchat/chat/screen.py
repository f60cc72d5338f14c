"""A run of the loop as a person watches it: text while it is made, a line per tool call, the sources."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath

from ...pi_agent import AgentEvent, ToolResult
from ...pi_ai import FunctionCall, answer_so_far
from ...pi_coding_agent.tools import EMPTY_FILE
from ..terminal import Thinking, dim, one_line, printable

# Characters at the start of a text that wait for what follows: it may turn out to be <think>, and
# llama-server lets the first letters of a call through as text before it knows the call.
HELD_BACK = 8


class Screen:
    """An event sink that prints to stdout. Text beside a tool call stays above that call's line."""

    def __init__(self) -> None:
        self._text = StreamedText()
        self._thinking = Thinking()
        self._turn_began = 0.0
        self._in_line = False
        self._sources: list[str] = []

    @contextmanager
    def question(self) -> Iterator[None]:
        """Around one question: when it was answered, a line names the files that were read for it."""
        self._sources = []
        self._new_turn()
        try:
            yield
        finally:
            self._end_line()
        sources = "、".join(map(printable, self._sources)) or "这一问没有读取文件"
        print(dim(f"来源：{sources}") + "\n", flush=True)

    def __call__(self, event: AgentEvent) -> None:
        if event.type == "text_delta" and event.text:
            self._delta(event.text)
        elif event.type == "assistant_text" and event.text:
            self._whole(event.text.strip())
        elif event.type == "tool_result" and event.call and event.result:
            self._tool(event.call, event.result)
        elif event.type == "turn_end":
            self._new_turn()

    def _new_turn(self) -> None:
        self._text, self._turn_began = StreamedText(), time.monotonic()

    def _delta(self, delta: str) -> None:
        text = self._text.add(delta)
        if text:
            self._write(text)
        else:
            self._thinking.start(self._turn_began)

    def _whole(self, text: str) -> None:
        """Print what the stream left out; the whole text is the truth where the two disagree."""
        rest = self._text.rest(text)
        if rest is None:
            self._end_line()
            print(dim("（以上与完整的响应不一致，以下面为准）"))
        self._write(text if rest is None else rest)
        self._end_line()

    def _tool(self, call: FunctionCall, result: ToolResult) -> None:
        self._end_line()
        path = call.arguments.get("path")
        asked = path if isinstance(path, str) else json.dumps(call.arguments, ensure_ascii=False)
        print(dim(f"{one_line(call.name, 60)} {one_line(asked, 200)} → {outcome(call, result)}"), flush=True)
        if call.name == "read_file" and not result.is_error:
            source = str(PurePosixPath(call.arguments["path"]))
            self._sources += [source] if source not in self._sources else []

    def _write(self, text: str) -> None:
        self._thinking.stop()
        if text:
            print(printable(text), end="", flush=True)
            self._in_line = not text.endswith("\n")

    def _end_line(self) -> None:
        self._thinking.stop()
        if self._in_line:
            print(flush=True)
        self._in_line = False


class StreamedText:
    """A turn's text as it comes. Blanks and a think block before it are left out, as by output_text."""

    def __init__(self) -> None:
        self._held = ""
        self._shown: list[str] = []

    def add(self, delta: str) -> str:
        """What can be shown now that delta is there."""
        self._held += delta
        text = self._held
        if not self._shown:
            text = answer_so_far(text)
            text = text if len(text) >= HELD_BACK else ""
        text = text.removesuffix("\r")  # it may be half of a line end
        if text:
            self._held = "\r" if self._held.endswith("\r") else ""
            self._shown.append(text)
        return text

    def shown(self) -> str:
        """All that add has returned, without blanks at the end."""
        return "".join(self._shown).rstrip()

    def rest(self, whole: str) -> str | None:
        """What add has left out of the whole text, None when that is another one."""
        if self.shown() == whole:
            return ""
        shown = "".join(self._shown)
        return whole[len(shown) :] if whole.startswith(shown) else None


def outcome(call: FunctionCall, result: ToolResult) -> str:
    """What a tool gave back, in a few words."""
    if result.is_error:
        return f"失败：{one_line(result.content.partition('。')[0], 100)}"
    if call.name == "list_files":
        lines = result.content.split("\n")
        more = lines[-1].startswith("（目录 ")  # of a listing's notes
        return f"{len(lines) - more} 项"
    if result.content == EMPTY_FILE.format(path=call.arguments.get("path")):
        return "0 字节"
    return f"{len(result.content.encode('utf-8', 'replace'))} 字节"
