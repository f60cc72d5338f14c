"""What a person sees: text made safe to print, and a line that shows the model at work."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def printable(text: str) -> str:
    """text with control and direction characters shown as escapes, so that neither a model nor a
    file can steer the terminal. Line ends and tabs stay, and so do the joiners of emoji and Persian."""
    return "".join(
        c if c in "\n\t\u200c\u200d" or unicodedata.category(c) not in ("Cc", "Cf", "Cs") else _escape(c)
        for c in text.replace("\r\n", "\n")
    )


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def short_error(error: BaseException) -> str:
    """An error in at most three lines."""
    lines = [line for line in printable(str(error) or type(error).__name__).splitlines() if line.strip()]
    return "\n".join([*lines[:2], " ".join(lines[2:])[:600]] if len(lines) > 2 else lines)


def one_line(text: str, limit: int = 500) -> str:
    """text in one line of at most limit characters, safe to print."""
    line = printable(" ".join(text[: limit + 1].splitlines()))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def dim(text: str) -> str:
    """text in a quieter colour, where stdout is a terminal and NO_COLOR (no-color.org) is not set."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[2m{text}\x1b[0m"


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP (a closed terminal) end the block as SystemExit(128 + n), so that what is to be
    done at the end is done. One that is ignored, as under nohup, stays so. For the main thread only."""
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    ours = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]

    def end(number: int, _: object) -> None:
        for each in ours:  # a closed terminal sends more than one: none is to break off the end
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def lost_output(error: OSError, nobody_reads: str = "") -> str:
    """Print no more to a stdout whose reader has left, as `head` does, or that is full, not even at exit.
    Returns the line that says so, once it is on stderr: nobody_reads where the reader has left."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    said = f"无法读取输入或写出结果：{error.strerror}。请检查标准输出的重定向、管道或磁盘空间后重试。"
    if isinstance(error, BrokenPipeError):
        said = nobody_reads
    with suppress(OSError):  # of a terminal that was closed
        print(said, end="\n" if said else "", file=sys.stderr, flush=True)
    return said


def soft_streams() -> None:
    """Let what a stream cannot hold be seen there, instead of ending the program: on the way out a
    character as its escape, on the way in a byte as a lone surrogate. A stream that was closed
    (2>&-) becomes an empty one; print would fall back to another."""
    for name, mode, errors in (
        ("stdin", "r", "surrogateescape"),
        ("stdout", "w", "backslashreplace"),
        ("stderr", "w", "backslashreplace"),
    ):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115, PTH123
        reconfigure = getattr(getattr(sys, name), "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors=errors)


class Thinking:
    """A line on stderr that says that the model is at work and for how long, where that is a terminal."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, since: float | None = None) -> None:
        """Show the line with the seconds since then (time.monotonic; None: now), if it is not there yet."""
        if self._thread is None and sys.stderr.isatty():
            self._done.clear()
            self._thread = threading.Thread(target=self._run, args=(since or time.monotonic(),), daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Take the line away; nothing happens where there is none."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._done.set()
            thread.join()
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _run(self, start: float) -> None:
        while not self._done.wait(0.2):
            seconds = int(time.monotonic() - start)
            print(f"\r模型思考中…… {seconds} 秒\x1b[K", end="", file=sys.stderr, flush=True)


@contextmanager
def thinking() -> Iterator[Thinking]:
    """Show the line for as long as the block runs."""
    line = Thinking()
    line.start()
    try:
        yield line
    finally:
        line.stop()
