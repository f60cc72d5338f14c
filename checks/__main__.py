"""`python3 -m checks`: every module below in a process of its own, two at a time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

MODULES = ("architecture",)


def run(name: str) -> tuple[str, int, str]:
    """One module as a process: its name, exit status and output."""
    command = [sys.executable, "-X", "dev", "-m", f"checks.{name}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return name, done.returncode, done.stdout


def main() -> int:
    totals = [0, 0, 0]
    with ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        for name, status, output in pool.map(run, MODULES):
            lines = output.rstrip().splitlines() or [""]
            counted = re.fullmatch(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?", lines[-1])
            numbers = [int(n or 0) for n in counted.groups()] if counted else [0, 1, 0]
            if status != 0 and numbers[1] == 0:
                numbers[1] = 1
            totals = [a + b for a, b in zip(totals, numbers, strict=True)]
            print(f"checks.{name}: {lines[-1]}" if status == 0 else output, flush=True)
    skipped = f", {totals[2]} skipped" if totals[2] else ""
    print(f"{totals[0]} passed, {totals[1]} failed{skipped}")
    return 0 if totals[1] == 0 else 1


if __name__ == "__main__":
    raise SystemExit(main())
