"""The lessons quote the files as they are, and both languages teach the same."""

from __future__ import annotations

import re
import unittest
from pathlib import Path

from checks.support import harness

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
LESSONS = ("README.md", "README.zh-CN.md")


def sections(name: str) -> list[tuple[str, str]]:
    """File and quoted lines of each lesson."""
    text = (EXAMPLES / name).read_text("utf-8")
    return re.findall(r"## \[[^]]*\]\(([^)]*\.py)\).*?\n```python\n(.*?)\n```", text, re.DOTALL)


class Lessons(unittest.TestCase):
    def test_each_quote_stands_in_its_file(self) -> None:
        for name in LESSONS:
            self.assertEqual(len(sections(name)), 6)
            for file, quoted in sections(name):
                with self.subTest(name=name, file=file):
                    self.assertIn(quoted, (EXAMPLES / file).read_text("utf-8"))

    def test_each_line_of_the_loop_stands_in_it(self) -> None:
        loop = (EXAMPLES.parent / "packages/pi_agent/loop.py").read_text("utf-8")
        for name in LESSONS:
            rows = re.findall(r"(?m)^\| ([\d, ]+) \| `(.*)` \|$", (EXAMPLES / name).read_text("utf-8"))
            numbers = [number for row in rows for number in row[0].split(", ")]
            self.assertEqual(sorted(numbers), [str(number) for number in range(1, 8)])
            for _, line in rows:
                with self.subTest(name=name, line=line):
                    self.assertIn(f" {line}\n", loop)

    def test_both_languages_have_the_same_lessons(self) -> None:
        english, chinese = map(sections, LESSONS)
        self.assertEqual(english, chinese)

    def test_each_step_has_its_lesson(self) -> None:
        steps = sorted(path.name for path in EXAMPLES.glob("step*.py"))
        self.assertEqual([file for file, _ in sections(LESSONS[0])], [*steps, "own_tool.py"])


if __name__ == "__main__":
    raise SystemExit(harness.main())
