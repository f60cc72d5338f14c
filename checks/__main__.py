"""`python3 -m checks`: every module below in a process of its own, as many at a time as there are cores."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from packages.qianchat.arguments import Parser

MODULES = (
    "loop_boundaries",
    "pi_agent.tools",
    "pi_agent.schema",
    "pi_agent.answer",
    "pi_agent.conversation",
    "pi_agent.replay",
    "pi_ai.responses",
    "pi_ai.protocol_cases",
    "pi_ai.payload",
    "pi_ai.transport",
    "pi_ai.streaming",
    "pi_ai.proxies",
    "pi_ai.secrets_hidden",
    "pi_coding_agent.project_files",
    "qianchat.server",
    "qianchat.prefix",
    "examples.steps",
    "qianchat.chat",
    "examples.show",
    "examples.evidence",
    "examples.lessons",
    "support.compatibility_verdicts",
    "support.help",
    "architecture",
)


def run_all(program: str, modules: Sequence[str], workers: int) -> int:
    """The command `python3 -m program`: run checks.NAME for each name, print its closing line (or all of it, if it failed) and the sum."""
    parser = Parser(
        prog=f"python3 -m {program}",
        description="运行各组检查，每组一行；最后一行是总数 N passed, N failed。全部通过时退出码为 0。"
        "一组里的几个：python3 -m checks.pi_ai.transport 词 ……",
    )
    parser.parse_args()
    totals = [0, 0, 0]
    with ThreadPoolExecutor(workers) as pool:
        for name, (status, output) in zip(modules, pool.map(_run, modules), strict=True):
            last = (output.rstrip().splitlines() or [""])[-1]
            counted = re.fullmatch(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?", last)
            passed, failed, skipped = [int(n or 0) for n in counted.groups()] if counted else [0, 1, 0]
            if status != 0:
                failed = max(failed, 1)
            totals = [a + b for a, b in zip(totals, (passed, failed, skipped), strict=True)]
            print(output if failed else f"checks.{name}: {last}", flush=True)
    skips = f", {totals[2]} skipped" if totals[2] else ""
    print(f"{totals[0]} passed, {totals[1]} failed{skips}")
    return 0 if totals[1] == 0 else 1


def _run(name: str) -> tuple[int, str]:
    """One module as a process: its exit status, and what it printed."""
    command = [sys.executable, "-X", "dev", "-m", f"checks.{name}"]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="backslashreplace",
    )
    return done.returncode, done.stdout


if __name__ == "__main__":
    raise SystemExit(run_all("checks", MODULES, workers=os.cpu_count() or 2))
