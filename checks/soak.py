"""`python3 -m checks.soak`: the long races and the fuzz runs, one module after the other; minutes, not seconds."""

from __future__ import annotations

from checks.__main__ import run_all

MODULES = ("soak_files", "soak_arguments")

if __name__ == "__main__":
    raise SystemExit(run_all(MODULES, workers=1))
