"""A record of a run as it really was: what each request newly carried, what came back, how it ended."""

from __future__ import annotations

import copy
import errno
import json
import os
import shlex
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from ..pi_agent import ModelClient
from ..pi_agent.whole_file import regular_file, write_whole
from ..pi_ai import JsonObject, MiniPiError
from .terminal import thinking

VERSION = 1


class Recorder:
    """A ModelClient around another one, which keeps every exchange and shows that the model is at work.

    The history in a payload is the caller's own growing list: what joins it after the last request is
    found there when the record is written.
    """

    def __init__(self, client: ModelClient) -> None:
        self._client = client
        self._history: list[JsonObject] = []
        self._sent: list[JsonObject] = []
        self.settings: JsonObject = {}
        self.turns: list[JsonObject] = []

    def create(self, payload: JsonObject, on_text: Callable[[str], None] | None = None) -> JsonObject:
        """Pass payload on; whatever comes back, or goes wrong, is kept and passed on as it is."""
        self._history = payload["input"]
        items = copy.deepcopy(self._history)
        known = self._sent == items[: len(self._sent)]
        settings = copy.deepcopy({name: value for name, value in payload.items() if name != "input"})
        self.settings = self.settings or settings
        turn: JsonObject = {
            "new_items": items[len(self._sent) :] if known else items,
            "changed_settings": {
                name: settings.get(name)  # null: no longer sent
                for name in self.settings | settings
                if self.settings.get(name) != settings.get(name)
            },
        }
        if not known:
            turn["history_replaced"] = True
        self.turns.append(turn)
        self._sent = items
        start = time.monotonic()
        try:
            response = self._ask(payload, on_text, turn, start)
        except Exception as error:
            turn["error"] = str(error)
            raise
        finally:
            turn["seconds"] = round(time.monotonic() - start, 3)
        turn["response"] = copy.deepcopy(response)
        return response

    def _ask(
        self, payload: JsonObject, on_text: Callable[[str], None] | None, turn: JsonObject, start: float
    ) -> JsonObject:
        with thinking() as line:
            if on_text is None:
                return self._client.create(payload)

            def first_text_ends_the_line(text: str) -> None:
                line.stop()
                turn.setdefault("first_text_seconds", round(time.monotonic() - start, 3))
                on_text(text)

            return self._client.create(payload, on_text=first_text_ends_the_line)  # type: ignore[call-arg]

    def document(self, command: str, outcome: JsonObject) -> JsonObject:
        """The record as JSON values. outcome: status (answered, unfinished, failed or interrupted) and
        what came of it."""
        return {
            "version": VERSION,
            "command": command,
            "recorded_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "settings": self.settings,
            "turns": self.turns,
            "added_after_last_request": copy.deepcopy(self._history[len(self._sent) :]),
            "outcome": outcome,
            "usage": [turn.get("response", {}).get("usage") for turn in self.turns],
        }


def write_record(path: Path, document: JsonObject, secret: str | None = None) -> None:
    """Write document to path as JSON, without secret, which a server may have sent back. Raises MiniPiError."""
    text = json.dumps(document, ensure_ascii=False, indent=2) + "\n"
    if secret:
        text = text.replace(json.dumps(secret)[1:-1], "***")
    try:
        write_whole(path, text)
    except OSError as error:
        raise MiniPiError(f"无法写入记录 {path}：{error.strerror}。请换一个可写的路径。") from None


def command_line(module: str, arguments: list[str]) -> str:
    """The command to run again, without a path of this machine: of an absolute path only the name stays."""
    return " ".join(["python3 -m", module, *(shlex.quote(_without_folder(each)) for each in arguments)])


def _without_folder(argument: str) -> str:
    flag, equals, value = argument.partition("=") if argument.startswith("--") else ("", "", argument)
    path = Path(value)
    if not path.is_absolute():
        return argument
    try:
        return flag + equals + str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return flag + equals + path.name


def check_writable(path: Path) -> None:
    """Say before a long run, not after it, that its record could not be written. Raises MiniPiError."""
    try:
        if regular_file(path) and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        tempfile.TemporaryFile(dir=Path(os.path.realpath(path)).parent).close()
    except OSError as error:
        raise MiniPiError(f"无法写入记录 {path}：{error.strerror}。请换一个可写的路径。") from None
