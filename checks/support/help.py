"""Every command of checks/ has --help in the project's own style."""

from __future__ import annotations

import subprocess
import sys
import unittest

from checks.support import harness
from checks.support.harness import table

COMMANDS = (
    "checks",
    "checks.acceptance",
    "checks.architecture",
    "checks.compatibility",
    "checks.first_answer",
    "checks.loop_boundaries",
    "checks.model_queries",
    "checks.model_tasks",
    "checks.overhead",
    "checks.runtime",
    "checks.soak",
)


@table([(name.replace(".", "_"), name) for name in COMMANDS])
class Help(unittest.TestCase):
    def row(self, name: str) -> None:
        command = [sys.executable, "-m", name, "--help"]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(done.stdout.startswith(f"用法：python3 -m {name} "), done.stdout)
        self.assertIn("显示这份说明", done.stdout)


if __name__ == "__main__":
    raise SystemExit(harness.main())
