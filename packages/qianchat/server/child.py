"""A child process that never outlives us, however we end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_SUPERVISOR = str(Path(__file__).with_name("supervisor.py"))


class Child:
    """A running program (under supervisor.py), its output in a log; leaving the `with` block ends it.

    It has a session of its own, so Ctrl-C in the terminal reaches us alone and we end it, once.
    """

    grace = 5.0  # seconds between the request to end and SIGKILL

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        supervised = [sys.executable, "-I", "-S", _SUPERVISOR, str(os.getpid()), str(self.grace), *command]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                supervised,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if env is None else {**os.environ, **env},
                start_new_session=True,
            )

    def wait(self, timeout: float | None = None) -> int | None:
        """The exit status (128 + n after signal n), or None when it still runs after timeout seconds."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> None:
        """Ask it to end, wait, and insist if it does not."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        status = self.wait(self.grace + 5)
        if status is None or status < 0:  # the supervisor hangs, or was itself killed
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def run(
    command: Sequence[str], log: Path, tick: Callable[[], None], env: Mapping[str, str] | None = None
) -> int:
    """Run a program to its end, calling tick() twice a second; returns its exit status."""
    with Child(command, log, env) as child:
        while (status := child.wait(0.5)) is None:
            tick()
    return status


def answers(command: Sequence[str]) -> str | None:
    """What a command such as `cmake --version` prints, or None when it does not run to a good end."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def last_words(log: Path) -> str:
    """The line of a log's end that says best what went wrong: the last one that speaks of an error."""
    lines = [line.strip() for line in end_of(log).splitlines() if line.strip()]
    for sign in ("error:", "error", "fail", ""):
        found = [line for line in lines if sign in line.lower()]
        if found:
            return found[-1][:300]
    return "（没有输出）"


def end_of(log: Path, size: int = 8192) -> str:
    """The last size bytes of a log as text; empty when there is no log yet."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
