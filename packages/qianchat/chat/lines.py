"""Where the chat's lines come from: keys at a terminal, or a pipe."""

from __future__ import annotations

import locale
import os
import sys
from types import ModuleType

from ...pi_ai import MiniPiError

# What a terminal puts around pasted text once it was told to (readline's enable-bracketed-paste).
PASTE_BEGINS, PASTE_ENDS = "\x1b[200~", "\x1b[201~"
# Without readline the kernel keeps the line, and drops what is longer: 4096 bytes on Linux, 1024 on macOS.
KERNEL_LINE_BYTES = 4095 if sys.platform == "linux" else 1023


class PipedLines:
    """Lines of a stdin that is no terminal. What stands between the marks of a paste is one line."""

    def next(self, prompt: str) -> str:
        """The next line without blanks around it, prompt being shown if a terminal is there. Raises EOFError."""
        line = self._read(prompt)
        while line.rfind(PASTE_BEGINS) > line.rfind(PASTE_ENDS):
            try:
                line += "\n" + self._read("")
            except EOFError:
                break
        for mark in (PASTE_BEGINS, PASTE_ENDS):
            line = line.replace(mark, "")
        return line.removeprefix("\ufeff").strip()

    def was_begun(self) -> bool:
        """Whether something stood in the line that Ctrl-C broke off."""
        return False

    def _read(self, prompt: str) -> str:
        return input()


class TerminalLines(PipedLines):
    """Lines of a terminal, edited with readline where Python has it. Pasted lines are one then."""

    def __init__(self) -> None:
        self._readline = _readline()

    def was_begun(self) -> bool:
        """Likewise. Without readline the kernel has thrown it away unseen."""
        return bool(self._readline and self._readline.get_line_buffer().strip())

    def _read(self, prompt: str) -> str:
        line = input(prompt)
        if self._readline is None and len(line.encode("utf-8", "surrogatepass")) >= KERNEL_LINE_BYTES:
            raise MiniPiError(
                f"这一行太长，终端截断了它（上限 {KERNEL_LINE_BYTES} 字节），没有发送。"
                "请分成几问，或把它写进一个文件，用管道输入：chat < 文件。"
            )
        return line


def _readline() -> ModuleType | None:
    """readline, set up for UTF-8 and for pasted lines; None where there is none, or none that keeps UTF-8."""
    if sys.stdin.encoding.lower().replace("-", "") == "utf8" and not _set_utf8_locale():
        return None
    try:
        import readline
    except ImportError:
        return None
    if "libedit" not in (readline.__doc__ or ""):
        readline.parse_and_bind("set enable-bracketed-paste on")  # which Python turns off
    return readline


def _set_utf8_locale() -> bool:
    """Let C functions, which readline calls, read UTF-8, and return whether they do: in the locale of LC_ALL=C
    readline drops all Chinese, although Python itself reads it."""
    for name in ("", "C.UTF-8", "en_US.UTF-8"):
        try:
            locale.setlocale(locale.LC_CTYPE, name)
        except locale.Error:
            continue
        if locale.nl_langinfo(locale.CODESET).upper() == "UTF-8":
            if name:
                os.environ["LC_ALL"] = name  # readline looks there before each line
            return True
    return False
