"""Command lines whose help and errors are in Chinese; argparse itself speaks English."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from .terminal import one_line

_ERRORS = (
    (r"unrecognized arguments: (.*)", r"不认识的参数：\1"),
    (r"the following arguments are required: (.*)", r"缺少参数：\1"),
    (r"argument (\S+): expected one argument", r"\1 后面缺少一个值"),
    (r"argument (\S+): ignored explicit argument (.*)", r"\1 后面不能有值，收到 \2"),
    (r"argument (\S+): invalid choice: (.*) \(choose from (.*)\)", r"\1 只能是 \3，收到 \2"),
    (r"argument (\S+): (.*)", r"\1：\2"),
)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser for people who read Chinese. Wrong usage: two lines on stderr, exit status 2."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, add_help=False, allow_abbrev=False, formatter_class=_Formatter)
        self._optionals.title = "选项"
        self.add_argument("-h", "--help", action="help", help="显示这份说明")

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where the help is, and end the program."""
        for english, chinese in _ERRORS:
            found = re.fullmatch(english, message, re.DOTALL)
            if found:
                message = found.expand(chinese)
                break
        self.exit(2, f"{one_line(message)}\n用法见 {self.prog} --help\n")


class _Formatter(argparse.HelpFormatter):
    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[Any],
        prefix: str | None = None,
    ) -> None:
        super().add_usage(usage, actions, groups, "用法：" if prefix is None else prefix)


def whole_number(low: int, high: int) -> Callable[[str], int]:
    """An argparse type: a whole number from low to high."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"应为 {low} 到 {high} 的整数，收到 {text}")
        return int(text)

    return parse
