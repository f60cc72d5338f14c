"""One line that says how far a long step is: percent, MB, elapsed time."""

from __future__ import annotations

import sys
import time

from .cache import megabytes


class Progress:
    """A line on stderr, used as a context manager around the step.

    A terminal sees it rewritten in place; anything else gets a plain line per tenth, or per half minute.
    """

    def __init__(self, label: str) -> None:
        self.label = label
        self.terminal = sys.stderr.isatty()
        self.start = time.monotonic()
        self.tenth, self.printed = -1, self.start
        self.fraction, self.line = 0.0, ""

    def show(self, fraction: float, size: int) -> None:
        """fraction: 0 to 1, never shown to go back; size: bytes so far."""
        now = time.monotonic()
        self.fraction = min(1.0, max(self.fraction, fraction))
        self.line = f"{self.label} {int(self.fraction * 100):3d}%  {megabytes(size)}  {self.elapsed()}"
        if self.terminal:
            print(f"\r{self.line}\x1b[K", end="", file=sys.stderr, flush=True)
        elif int(self.fraction * 10) > self.tenth or now - self.printed >= 30:
            self.tenth, self.printed = int(self.fraction * 10), now
            print(self.line, file=sys.stderr, flush=True)

    def elapsed(self) -> str:
        """Minutes and seconds since the step began."""
        seconds = int(time.monotonic() - self.start)
        return f"{seconds // 60}:{seconds % 60:02d}"

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.terminal and self.line:
            print(file=sys.stderr, flush=True)
