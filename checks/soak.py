"""`python3 -m checks.soak`: the long races and the fuzz runs, one module after the other; minutes, not seconds."""

from __future__ import annotations

from checks.__main__ import run_all

MODULES = ("pi_coding_agent.soak_files", "pi_agent.soak_arguments")

if __name__ == "__main__":
    raise SystemExit(run_all("checks.soak", MODULES, workers=1))
