"""`python3 -m checks.acceptance`: the article's query on a real local Qwen, as a user would ask it.

Brings the model server up itself where none answers (the first time, that installs it), so it takes
minutes; it is not part of `python3 -m checks`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

from checks.support import harness
from packages.qianchat import connection
from packages.qianchat.server.local_qwen import local_qwen


class TheRealModel(unittest.TestCase):
    """One server for both steps, which find it at the base URL."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.enterClassContext(local_qwen(connection.base_url()))

    def step(self, name: str) -> dict[str, Any]:
        """Run a step with --local-qwen, require that it answered, return its record."""
        with tempfile.TemporaryDirectory() as folder:
            record = Path(folder, "record.json")
            command = [sys.executable, "-m", f"examples.{name}", "--local-qwen", "--record", str(record)]
            done = subprocess.run(command, capture_output=True, encoding="utf-8")
            print(done.stdout, done.stderr, flush=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            document: dict[str, Any] = json.loads(record.read_bytes())
            return document

    def require_answer_from_the_file(self, record: dict[str, Any]) -> None:
        """The three figures are in the answer, and the listed path was read."""
        answer = record["outcome"]["text"]
        for figure in ("128", "9600"):
            self.assertIn(figure, answer.replace(",", ""))
        self.assertRegex(answer, r"2026-09-06|2026\s*年\s*0?9\s*月\s*0?6\s*日")
        items = [item for turn in record["turns"] for item in turn["response"]["output"]]
        calls = [item for item in items if item["type"] == "function_call"]
        asked = {(call["name"], json.loads(call["arguments"])["path"]) for call in calls}
        self.assertIn(("read_file", "reports/daily-2026-09-06.json"), asked)

    def test_step_4_answers_from_the_file_that_it_listed_and_read(self) -> None:
        self.require_answer_from_the_file(self.step("step04_agent_loop"))

    def test_step_5_lists_first_because_it_must_and_answers_from_the_file(self) -> None:
        record = self.step("step05_required_tool")
        self.require_answer_from_the_file(record)
        first = record["turns"][0]["response"]["output"]
        self.assertEqual([item["name"] for item in first if item["type"] == "function_call"], ["list_files"])


if __name__ == "__main__":
    raise SystemExit(harness.main())
