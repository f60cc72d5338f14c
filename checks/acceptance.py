"""`python3 -m checks.acceptance`: the article's query, and a tool of one's own, on a real local Qwen, as a user would ask.

Brings the model server up itself where none answers (the first time, that installs it), so it takes
minutes; it is not part of `python3 -m checks`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import unittest
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from checks.support import harness
from examples.own_tool import today
from packages.pi_coding_agent import ProjectFiles
from packages.pi_coding_agent.tools import create_project_tools
from packages.qianchat import connection
from packages.qianchat.server import port
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

    def test_a_tool_of_one_s_own_is_called_and_answered_from(self) -> None:
        record = self.step("own_tool")
        items = [item for turn in record["turns"] for item in turn["response"]["output"]]
        self.assertIn("today", [item.get("name") for item in items])
        day = date.today()
        self.assertRegex(record["outcome"]["text"], rf"{day.month}\s*(月|-)\s*0?{day.day}|{day.isoformat()}")


class TheChatTemplate(unittest.TestCase):
    """An example in it is rendered as a real turn is: the same conversation, asked, looks the same."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.enterClassContext(local_qwen(connection.base_url()))

    def prompt(self, tools: list[Any], turns: list[dict[str, Any]]) -> str:
        """What llama-server makes of a conversation with these tools."""
        functions = [
            {
                "type": "function",
                "function": {key: tool.schema()[key] for key in ("name", "description", "parameters")},
            }
            for tool in tools
        ]
        body = {"messages": turns, "tools": functions}
        address = urlsplit(connection.base_url())
        host, number = str(address.hostname), address.port or 80
        _, _, answer = port.request(host, number, "POST", "/apply-template", 30, json.dumps(body))
        assert isinstance(answer, dict), "llama-server has /apply-template"
        return str(answer["prompt"])

    def looks_like_an_example(
        self, tools: list[Any], question: str, *steps: tuple[str, dict[str, Any], str]
    ) -> None:
        turns: list[dict[str, Any]] = [{"role": "user", "content": question}]
        for number, (name, arguments, result) in enumerate(steps):
            function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
            call = {"id": f"c{number}", "type": "function", "function": function}
            turns.append({"role": "assistant", "content": "", "tool_calls": [call]})
            turns.append({"role": "tool", "tool_call_id": f"c{number}", "content": result})
        before, real = self.prompt(tools, turns).rsplit(f"user\n{question}<|im_end|>", 1)
        example = before.split(f"user\n{question}<|im_end|>", 1)[1]
        self.assertGreater(len(real), 100)
        self.assertTrue(example.startswith(real), f"{real!r}\nis not the beginning of\n{example[:800]!r}")

    def test_an_invented_tool_s_turns(self) -> None:
        self.looks_like_an_example(
            [today],
            "What does the cake cost?",
            ("price", {"item": "cake"}, "没有 cake。有：green tea、black tea"),
        )

    def test_turns_about_files(self) -> None:
        with ProjectFiles("sample_project", 32_768) as files:
            self.looks_like_an_example(
                create_project_tools(files),
                "旧价格表里，红茶多少钱？",
                (
                    "read_file",
                    {"path": "prices/old.txt"},
                    "路径不存在：prices/old.txt。目录 prices 中有：prices/2019.csv、prices/tea.csv",
                ),
                ("read_file", {"path": "prices/2019.csv"}, "tea,price\n红茶,9\n绿茶,11"),
            )


if __name__ == "__main__":
    raise SystemExit(harness.main())
