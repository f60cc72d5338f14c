"""The state of the prompt's beginning: computed once, restored afterwards, never trusted when it is not whole."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
import time
import unittest
from http.client import RemoteDisconnected
from pathlib import Path
from typing import Any
from unittest import mock

from checks.support import harness
from packages.qianchat.connection import INSTRUCTIONS
from packages.qianchat.server import local_qwen, prefix

QUESTION = {"model": "m", "input": "。"}
STATE = b"state" * 100


class Server:
    """Answers as llama-server does: a save writes the file, a restore wants it to be there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked = folder, list[str]()
        self.status = {"save": 200, "restore": 200, "responses": 200}
        self.written: bytes | None = STATE
        self.error: BaseException | None = None

    def __call__(
        self, host: str, port: int, method: str, path: str, timeout: float, body: str
    ) -> tuple[int, str, Any]:
        action = path.rpartition("=")[2] if "=" in path else "responses"
        self.asked.append(action)
        if self.error is not None:
            raise self.error
        if action == "save" and self.written is not None:
            (self.folder / json.loads(body)["filename"]).write_bytes(self.written)
        return self.status[action], "llama.cpp", {"n_written": len(STATE)}


class Prefix(unittest.TestCase):
    def setUp(self) -> None:
        self.cache = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.folder = self.cache / "prefix"
        self.assertEqual(
            prefix.folder_flags(self.cache, "--slot-save-path PATH"), [prefix.FLAG, f"{self.folder}/"]
        )
        self.server = Server(self.folder)
        self.enterContext(mock.patch.object(prefix, "request", self.server))
        self.stderr = self.enterContext(contextlib.redirect_stderr(io.StringIO()))

    def start(self, name: str = "a.state") -> list[str]:
        """What a start asks of the server."""
        self.server.asked = []
        prefix.prepare(1, self.cache, name, QUESTION)
        return self.server.asked

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def test_it_is_computed_once_and_restored_afterwards(self) -> None:
        self.assertEqual(self.start(), ["responses", "save"])
        self.assertIn("预先计算", self.stderr.getvalue())
        self.assertEqual(self.names(), ["a.sha256", "a.state"])
        self.assertEqual(self.start(), ["restore"])
        self.assertEqual(self.start(), ["restore"])

    def test_one_that_is_broken_or_that_the_server_refuses_is_made_anew(self) -> None:
        self.start()
        state, stamp = self.folder / "a.state", self.folder / "a.sha256"
        for path, content in ((state, STATE[:-1]), (state, b""), (stamp, b"\xff"), (stamp, b"")):
            path.write_bytes(content)
            self.assertEqual(self.start(), ["responses", "save"])
            self.assertEqual(self.start(), ["restore"])
        stamp.unlink()
        self.assertEqual(self.start(), ["responses", "save"])
        self.server.status["restore"] = 400
        self.assertEqual(self.start(), ["restore", "responses", "save"])
        self.assertEqual(self.names(), ["a.sha256", "a.state"])

    def test_what_belongs_to_nothing_any_more_is_removed(self) -> None:
        self.start()
        (self.folder / "old.partial").touch()
        os.utime(self.folder / "old.partial", (time.time() - 7200,) * 2)
        (self.folder / "of another process.partial").touch()
        self.assertEqual(self.start("b.state"), ["responses", "save"])
        self.assertEqual(self.names(), ["b.sha256", "b.state", "of another process.partial"])

    def test_half_a_state_is_never_put_in_place(self) -> None:
        self.server.written = STATE[:7]
        self.start()
        self.assertEqual(self.names(), [])
        self.server.written = None
        self.start()
        self.assertEqual(self.names(), [])

    def test_a_server_that_saves_none_works_as_before(self) -> None:
        for action in ("save", "responses"):
            self.server.status[action] = 501
            self.start()
            self.assertEqual(self.names(), [])
        self.server.error = RemoteDisconnected("")
        self.start()
        self.assertEqual(self.names(), [])

    def test_without_the_flag_or_the_folder_nothing_is_asked_for(self) -> None:
        self.assertEqual(prefix.folder_flags(self.cache, "--jinja"), [])
        self.assertEqual(prefix.folder_flags(self.cache / "missing", "--slot-save-path PATH"), [])

    def test_a_full_or_read_only_disk_is_told_and_leaves_nothing(self) -> None:
        with mock.patch("shutil.disk_usage", return_value=mock.Mock(free=1000)):
            self.assertEqual(self.start(), [])
        self.assertIn("磁盘空间不足", self.stderr.getvalue())
        with mock.patch.object(Path, "replace", side_effect=PermissionError(13, "Permission denied")):
            self.start()
        self.assertIn("不影响使用", self.stderr.getvalue())
        self.assertEqual(self.names(), [])

    def test_where_nothing_could_be_kept_nothing_is_computed(self) -> None:
        with mock.patch("os.access", return_value=False):
            self.assertEqual(self.start(), [])
        self.assertEqual(self.stderr.getvalue(), "")

    def test_ctrl_c_leaves_nothing_that_is_trusted(self) -> None:
        for function in ("_digest", "_slot"):
            with mock.patch.object(prefix, function, side_effect=KeyboardInterrupt):
                self.assertRaises(KeyboardInterrupt, self.start)
            self.assertEqual(self.names(), [])
        with (
            mock.patch.object(Path, "write_text", side_effect=KeyboardInterrupt),
            self.assertRaises(KeyboardInterrupt),
        ):
            self.start()
        self.assertEqual(self.names(), ["a.state"])
        self.assertEqual(self.start(), ["responses", "save"])

    def test_the_name_depends_on_model_template_program_and_beginning(self) -> None:
        program = self.cache / "program"
        program.write_bytes(b"1")
        names = {
            prefix.state_name("m", b"t", program, QUESTION),
            prefix.state_name("n", b"t", program, QUESTION),
            prefix.state_name("m", b"u", program, QUESTION),
            prefix.state_name("m", b"t", program, {**QUESTION, "input": "!"}),
        }
        moved = self.cache / "moved"
        moved.write_bytes(b"1")
        os.utime(moved, ns=(program.stat().st_atime_ns, program.stat().st_mtime_ns))
        self.assertIn(prefix.state_name("m", b"t", moved, QUESTION), names)
        program.write_bytes(b"22")
        names.add(prefix.state_name("m", b"t", program, QUESTION))
        self.assertEqual(len(names), 5)

    def test_the_question_begins_as_those_of_the_examples(self) -> None:
        question = local_qwen._first_question("m")
        self.assertEqual(question["instructions"], INSTRUCTIONS)
        self.assertEqual([tool["name"] for tool in question["tools"]], ["list_files", "read_file"])


if __name__ == "__main__":
    raise SystemExit(harness.main())
