"""Project files: every path a model can make up, every state a file system can be in.

Rows that begin with an id (P01, S03, …) are those of fixtures/project_files.jsonl; the last check proves
that none is missing. What needs minutes or 100,000 files is in soak_files.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import gc
import json
import os
import pickle
import re
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
import unittest
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from checks.support import harness
from checks.support.harness import table
from packages.pi_agent import AgentTool, ToolResult
from packages.pi_ai import MiniPiError, ToolError
from packages.pi_coding_agent.tools import ProjectFiles, create_project_tools

SECRET = "SECRET"
LIMIT = 1000
LINK, SPECIAL, MISSING = "符号链接", "特殊文件", "路径不存在"
DENIED, TOO_LARGE, NOT_TEXT = "没有权限", "太大", "不是 UTF-8 文本"
ABSOLUTE, PARENT, UNPRINTABLE = "绝对路径", "..", "无效字符"
A_FILE, A_DIRECTORY, CLOSED = "是文件，不是目录", "是目录，不是文件", "没有打开，或已经关闭"
NEVER_SHOWN = r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
HERE = Path(__file__).resolve().parent.parent


class Fails(tuple[str, ...]):
    """A row's expectation: a ToolError whose message holds each of these words."""

    def __new__(cls, *words: str) -> Fails:
        return super().__new__(cls, words)


def read(*paths: str) -> Callable[[ProjectFiles], object]:
    return lambda files: [files.read_file(path) for path in paths] if paths[1:] else files.read_file(paths[0])


def listed(path: str) -> Callable[[ProjectFiles], object]:
    return lambda files: files.list_files(path)


def _attempt(method: Callable[[str], str], path: str) -> None:
    with contextlib.suppress(ToolError):
        method(path)


def descriptors() -> int:
    return len(os.listdir("/dev/fd"))  # noqa: PTH208


def in_child(work: Callable[[], object]) -> int:
    """Fork. The child never comes back: it exits with 0 if its work came to something true."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return child


@contextmanager
def nobody() -> Iterator[None]:
    """Permissions do not bind root, so these rows run as an ordinary user."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@contextmanager
def at_call(name: str, number: int, act: Callable[[], object]) -> Iterator[None]:
    """Do something behind the reader's back: right after the number-th call of os.<name>."""
    real, calls = getattr(os, name), 0

    def racing(*args: Any, **options: Any) -> Any:
        nonlocal calls
        result = real(*args, **options)
        calls += 1
        if calls == number:
            act()
        return result

    with mock.patch.object(os, name, racing):
        yield


class InProject(unittest.TestCase):
    """A project `root` beside a directory with a secret, and a guard against hanging."""

    seconds = 20

    def setUp(self) -> None:
        self.top = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.top)
        self.top.chmod(0o755)
        self.root = self.top / "root"
        self.make(self.root)
        (self.top / "outside").mkdir()
        (self.top / "outside/secret.txt").write_text(SECRET)

        def hangs(*_: object) -> None:
            raise AssertionError(f"hangs: not done within {self.seconds} seconds")

        before = signal.signal(signal.SIGALRM, hangs)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        self.addCleanup(signal.alarm, 0)
        signal.alarm(self.seconds)

    @staticmethod
    def make(root: Path) -> None:
        (root / "reports/deep").mkdir(parents=True)
        (root / "empty").mkdir()
        (root / "a.txt").write_text("alpha")
        (root / "reports/daily.json").write_text('{"orders": 128}\n')
        (root / "reports/deep/leaf.txt").write_text("leaf")

    def fails(self, call: Callable[[], object], *words: str) -> str:
        """The call raises a ToolError that a model can be given: the words, no secret, no way outside."""
        with self.assertRaises(ToolError) as caught:
            call()
        text = str(caught.exception)
        for word in words:
            self.assertIn(word, text)
        self.assertNotIn(str(self.top), text)
        self.assertNotIn(SECRET, text)
        self.assertRegex(text, "请|用|有：", "no next step")
        self.assertNotRegex(text, NEVER_SHOWN)
        json.dumps(text, ensure_ascii=False).encode()
        return text

    def expect(self, files: ProjectFiles, call: Callable[[ProjectFiles], object], expected: object) -> None:
        before = descriptors()
        if isinstance(expected, Fails):
            self.fails(lambda: call(files), *expected)
        else:
            self.assertEqual(call(files), expected)
        self.assertEqual(descriptors(), before, "a descriptor leaks")


@table(
    [
        ("P01_a_file_is_read_by_its_path", read("reports/daily.json"), '{"orders": 128}\n'),
        ("P03_an_absolute_path_is_refused", read("/etc/passwd"), Fails(ABSOLUTE, "/etc/passwd")),
        ("P04_two_slashes_are_absolute", read("//etc/passwd"), Fails(ABSOLUTE)),
        ("P04_three_slashes_are_absolute", read("///x"), Fails(ABSOLUTE)),
        ("P07_parent_is_refused_inside_too", read("reports/../a.txt"), Fails(PARENT, "reports/../a.txt")),
        ("P12_a_slash_ends_a_directory", listed("reports/"), "reports/daily.json\nreports/deep/"),
        ("P13_dots_and_empty_parts_mean_nothing", read("./reports//./daily.json"), '{"orders": 128}\n'),
        ("P14_file_dot_is_no_file", read("a.txt/."), Fails(A_FILE, "用 read_file 读取 a.txt")),
        ("P14_file_slash_is_no_file", read("a.txt/"), Fails(A_FILE)),
        ("P14_nothing_is_below_a_file", read("a.txt/x"), Fails(A_FILE)),
        ("P14_nothing_is_below_a_file_dot", read("a.txt/./x"), Fails(A_FILE)),
        ("P14_nor_listed_below_a_file", listed("a.txt/x/"), Fails(A_FILE)),
        ("P15_nul_in_a_file", read("a\0b"), Fails(UNPRINTABLE, r"a\x00b")),
        ("P15_nul_in_a_directory", listed("\0"), Fails(UNPRINTABLE)),
        ("P17_a_lone_surrogate", read("\ud800"), Fails(UNPRINTABLE, r"\ud800")),
        ("P17_an_escaped_byte", read("\udcff"), Fails(UNPRINTABLE)),
        ("P23_tilde_is_a_name", read("~/x"), Fails(MISSING, "~/x")),
        ("P23_a_variable_is_a_name", read("$HOME/x"), Fails(MISSING, "$HOME/x")),
        ("P23_percent_is_a_name", read("%2e%2e/x"), Fails(MISSING, "%2e%2e/x")),
        ("P23_a_url_is_a_name", read("file:///etc/passwd"), Fails(MISSING)),
        ("P23_an_at_is_a_name", read("@a.txt"), Fails(MISSING, "@a.txt")),
        ("W01_a_drive_is_no_place", read("C:\\Windows\\win.ini"), Fails("绝对路径", "只用 / 分隔")),
        ("W01_a_drive_with_slash", read("C:/x"), Fails("绝对路径")),
        ("W01_a_leading_backslash", read("\\x"), Fails("绝对路径")),
        ("W02_a_relative_drive", read("C:x"), Fails("绝对路径")),
        ("W03_a_share", read("\\\\srv\\share\\x"), Fails("绝对路径")),
        ("W03_a_verbatim_path", read("\\\\?\\C:\\x"), Fails("绝对路径")),
        ("W03_a_pipe", read("\\\\.\\pipe\\x"), Fails("绝对路径")),
        ("W04_a_stream", read("a.txt:stream"), Fails(MISSING, "有：a.txt")),
        ("W04_the_data_stream", read("a.txt::$DATA"), Fails(MISSING)),
        ("W06_a_trailing_dot", read("a.txt."), Fails(MISSING)),
        ("W06_a_trailing_space", read("a.txt "), Fails(MISSING)),
        ("W06_a_dotted_directory", read("reports./daily.json"), Fails(MISSING)),
        ("W07_backslash_separates_nothing", read("reports\\daily.json"), Fails("只用 / 分隔", "reports/")),
        ("W07_backslash_and_dots", read("..\\x"), Fails("只用 / 分隔")),
        ("W11_a_short_name_is_a_name", read("REPORT~1/daily.json"), Fails(MISSING)),
        ("an_empty_path", read(""), Fails("非空", "根目录用 .")),
        ("an_empty_path_to_list", listed(""), Fails("非空", "根目录用 .")),
        ("no_text_at_all", lambda files: files.read_file(None), Fails("字符串")),
        ("bytes", lambda files: files.read_file(b"a.txt"), Fails("字符串")),
        ("a_slash_alone", listed("/"), Fails(ABSOLUTE, "根目录用 .")),
        ("parent_alone", listed(".."), Fails(PARENT, "根目录用 .")),
        ("parent_first", read("../outside/secret.txt"), Fails(PARENT)),
        ("parent_last", listed("reports/.."), Fails(PARENT)),
        ("parent_after_dot", listed("./.."), Fails(PARENT)),
        ("parent_with_slash", listed("../"), Fails(PARENT)),
        ("parent_below_a_file", read("a.txt/.."), Fails(PARENT)),
        ("a_newline", read("a.txt\n"), Fails(UNPRINTABLE, r"a.txt\n")),
        ("a_line_separator", read("a\u2028b"), Fails(UNPRINTABLE)),
        ("an_escape_sequence", read("\x1b[2J"), Fails(UNPRINTABLE)),
        ("a_bidi_mark", read("a\u202etxt.exe"), Fails(UNPRINTABLE)),
        ("a_c1_control", read("a\x9bx"), Fails(UNPRINTABLE)),
        ("spaces_are_not_trimmed", read(" a.txt"), Fails(MISSING)),
        ("quotes_are_not_trimmed", read('"a.txt"'), Fails(MISSING)),
        ("blanks_alone", listed("  "), Fails(MISSING)),
        ("a_name_too_long_for_any_system", read("n" * 256), Fails(MISSING, "a.txt")),
        ("an_endless_path", read("x/" * 500_000), Fails(MISSING, "…")),
        ("an_endless_path_of_dots", read("./" * 500_000 + "a.txt"), "alpha"),
        ("the_root_is_no_file", read("."), Fails(A_DIRECTORY, "list_files")),
        ("nor_is_the_root_with_slash", read("./"), Fails(A_DIRECTORY)),
        ("a_directory_is_no_file", read("reports"), Fails(A_DIRECTORY, "reports", "list_files")),
        ("nor_is_a_directory_with_slash", read("reports/"), Fails(A_DIRECTORY, "reports ")),
        ("a_file_is_no_directory", listed("a.txt"), Fails(A_FILE, "read_file", "a.txt")),
        ("missing_tells_what_is_there", read("reports/x"), Fails("：reports/daily.json、reports/deep/")),
        ("missing_directory", listed("report"), Fails(MISSING, "目录 . 中有：a.txt、empty/、reports/")),
        ("missing_deep_tells_the_nearest", read("reports/no/no/x"), Fails("目录 reports 中有：")),
        ("missing_tells_the_clean_path", read(".//reports/./x/"), Fails("路径不存在：reports/x。")),
        ("missing_below_empty", read("empty/x"), Fails("目录 empty 中没有可以读取的文件")),
    ]
)
class PathSyntax(InProject):
    def row(self, call: Callable[[ProjectFiles], object], expected: object) -> None:
        with ProjectFiles(self.root, LIMIT) as files:
            self.expect(files, call, expected)

    def test_P03_an_absolute_path_is_refused_before_any_system_call(self) -> None:
        with ProjectFiles(self.root, LIMIT) as files:
            with mock.patch.object(os, "open", side_effect=AssertionError("asked")):
                self.fails(lambda: files.read_file("/etc/passwd"), ABSOLUTE)

    def test_P02_every_listed_path_is_read_as_it_stands(self) -> None:
        names = ["a b", " a", "a ", "a.", "a:b", "C:x", "a\\b", "~", "%2e%2e", "@x", "-rf", "*", "日报.md"]
        names += [
            "e\u0301",
            "\u00e9",
            "\u202f9.png",
            "n" * 255,
            "'q'",
            '"',
            "`x`",
            "$HOME",
            "a;b",
            "\U0001f600",
        ]
        for name in names:
            (self.root / "reports" / name).write_text(name)
        with ProjectFiles(self.root, LIMIT) as files:
            paths = files.list_files("reports").split("\n")
            self.assertEqual(len(paths), len(names) + 2)
            for path in paths:
                if not path.endswith("/"):
                    self.assertEqual(files.read_file(path), (self.root / path).read_text())

    def test_P08_only_an_exact_dot_dot_is_refused(self) -> None:
        for name in ("..a", "b..", "...", "a..b"):
            (self.root / name).write_text(name)
            with ProjectFiles(self.root, LIMIT) as files:
                self.assertEqual(files.read_file(name), name)

    def test_P20_what_lies_deeper_than_a_path_may_be_long_is_listed_and_read(self) -> None:
        here = os.open(self.root, os.O_RDONLY)
        for depth in range(30):
            os.mkdir(f"{depth:0200}", dir_fd=here)
            parent, here = here, os.open(f"{depth:0200}", os.O_RDONLY, dir_fd=here)
            os.close(parent)
        os.close(os.open("leaf", os.O_CREAT, dir_fd=here))
        os.close(here)
        path = f"{0:0200}/"
        with ProjectFiles(self.root, LIMIT) as files:
            while path.endswith("/"):
                path = files.list_files(path)
            self.assertEqual(len(path), 30 * 201 + len("leaf"))
            self.assertEqual(files.read_file(path), "")

    def test_a_name_that_the_locale_cannot_write_is_missing(self) -> None:
        script = (
            "from packages.pi_coding_agent import ProjectFiles\n"
            "import sys\n"
            "assert sys.getfilesystemencoding() != 'utf-8'\n"
            f"with ProjectFiles({str(self.root)!r}, 9) as files:\n"
            "    try: files.read_file('\\u65e5')\n"
            "    except Exception as error: print(ascii(f'{type(error).__name__} {error}'))\n"
        )
        plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
        text = self.python(script, env={**os.environ, **plain})
        self.assertIn(f"ToolError {MISSING}", text.encode().decode("unicode_escape"))

    @staticmethod
    def python(script: str, **options: Any) -> str:
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, check=True, text=True, stdout=-1, cwd=HERE.parent, **options)
        return str(done.stdout)


def link(name: str, target: str) -> Callable[[Path], object]:
    return lambda root: (root / name).symlink_to(target)


def loops(root: Path) -> None:
    (root / "loop").symlink_to("loop")
    (root / "l1").symlink_to("l2")
    (root / "l2").symlink_to("l1")


def path_max(root: Path) -> None:
    """Sixteen nested links that make realpath give up and call the result inside."""
    here = root
    for _ in range(16):
        (here / "d").mkdir()
        (here / "l").symlink_to("d")
        here = here / "d"
    (here / "out").symlink_to(root.parent / "outside")


@table(
    [
        ("S01_out_of_the_root", link("leak", "../outside/secret.txt"), read("leak"), Fails(LINK, "leak")),
        ("S02_to_an_absolute_path", link("leak", "/etc/passwd"), read("leak"), Fails(LINK)),
        ("S03_within_the_root", link("inner", "a.txt"), read("inner"), Fails(LINK, "按规定")),
        ("S05_a_directory", link("d", "../outside"), listed("d"), Fails(LINK)),
        ("S05_a_directory_with_slash", link("d", "../outside"), listed("d/"), Fails(LINK)),
        ("S05_a_directory_with_dot", link("d", "../outside"), listed("d/."), Fails(LINK)),
        ("S05_a_directory_read_with_slash", link("d", "../outside"), read("d/"), Fails(LINK)),
        ("S06_to_nowhere", link("dang", "nowhere"), read("dang"), Fails(LINK)),
        ("S07_to_itself", loops, read("loop"), Fails(LINK)),
        ("S07_to_each_other", loops, read("l1/x"), Fails(LINK, "l1 ")),
        ("S08_to_the_parent", link("up", ".."), listed("up"), Fails(LINK)),
        ("S08_to_the_directory_itself", link("dot", "."), read("dot/a.txt"), Fails(LINK, "dot ")),
        ("S16_through_many", path_max, read("l/" * 16 + "out/secret.txt"), Fails(LINK)),
        ("S16_behind_many_directories", path_max, read("d/" * 16 + "out/secret.txt"), Fails(LINK)),
        ("F06_to_a_device", link("zero", "/dev/zero"), read("zero"), Fails(LINK)),
        ("F06_to_standard_input", link("in", "/dev/stdin"), read("in"), Fails(LINK)),
        ("in_the_middle", link("r", "reports"), read("r/daily.json"), Fails(LINK, "r ")),
        ("in_the_middle_of_a_missing_path", link("r", "../outside"), read("r/no/no"), Fails(LINK)),
        ("deeper", link("reports/deep/up", "../../.."), read("reports/deep/up/outside"), Fails(LINK)),
        ("no_hint_names_one", link("secret.txt", "a.txt"), read("x"), Fails("有：a.txt、empty/、reports/")),
    ]
)
class Links(InProject):
    def row(self, build: Callable[[Path], object], call: Any, expected: object) -> None:
        build(self.root)
        with ProjectFiles(self.root, LIMIT) as files:
            self.expect(files, call, expected)

    def test_S13_the_root_itself_may_be_a_link(self) -> None:
        (self.top / "chain").symlink_to("rlink")
        (self.top / "rlink").symlink_to("root")
        for root in ("rlink", "rlink/", "chain"):
            with ProjectFiles(self.top / root, LIMIT) as files:
                self.assertEqual(files.read_file("a.txt"), "alpha")

    def test_the_root_is_pinned_when_its_link_or_name_changes(self) -> None:
        (self.top / "rlink").symlink_to("root")
        with ProjectFiles(self.top / "rlink", LIMIT) as files:
            (self.top / "rlink").unlink()
            (self.top / "rlink").symlink_to("outside")
            self.root.rename(self.top / "moved")
            (self.top / "root").symlink_to("outside")
            self.assertEqual(files.list_files("."), "a.txt\nempty/\nreports/")

    def test_S17_a_hard_link_is_an_ordinary_file(self) -> None:
        os.link(self.top / "outside/secret.txt", self.root / "hl")
        with ProjectFiles(self.root, LIMIT) as files:
            self.assertEqual(files.read_file("hl"), SECRET)

    @unittest.skipUnless(Path("/proc/self/exe").exists(), "no /proc")
    def test_S19_magic_links_are_links(self) -> None:
        with ProjectFiles("/proc", 1 << 20) as files:
            self.fails(lambda: files.read_file("self/environ"), LINK)
            self.fails(lambda: files.read_file(f"{os.getpid()}/exe"), LINK)
            self.fails(lambda: files.list_files(f"{os.getpid()}/cwd"), LINK)

    @unittest.skipUnless(Path("/proc/version").exists(), "no /proc")
    def test_S18_F09_a_mount_inside_the_root_belongs_to_it_as_documented(self) -> None:
        from packages.pi_coding_agent import project_files

        self.assertRegex(str(project_files.__doc__), r"(?s)mounts inside the root.*never use \"/\"")
        with ProjectFiles("/", 1 << 20) as files:
            self.assertEqual(files.read_file("proc/version"), Path("/proc/version").read_text())


class Races(InProject):
    """Each step of a read, with the file system changed right behind it."""

    def swap(self, name: str, put: Callable[[Path], object]) -> Callable[[], None]:
        def act() -> None:
            path = self.root / name
            path.rename(self.top / "old")
            put(path)

        return act

    def to_outside(self, path: Path) -> None:
        path.symlink_to(self.top / "outside")

    def to_secret(self, path: Path) -> None:
        path.symlink_to(self.top / "outside/secret.txt")

    def reading(self, path: str, stats: int, act: Callable[[], None], *words: str) -> None:
        with ProjectFiles(self.root, LIMIT) as files:
            before = descriptors()
            with at_call("stat", stats, act):
                self.fails(lambda: files.read_file(path), *words)
            self.assertEqual(descriptors(), before)

    def test_S11_a_file_becomes_a_link_after_the_look(self) -> None:
        self.reading("a.txt", 1, self.swap("a.txt", self.to_secret), LINK)

    def test_S11_a_directory_becomes_a_link_after_the_look(self) -> None:
        (self.top / "outside/daily.json").write_text(SECRET)
        self.reading("reports/daily.json", 1, self.swap("reports", self.to_outside), LINK)

    def test_a_listed_directory_becomes_a_link_after_the_look(self) -> None:
        with ProjectFiles(self.root, LIMIT) as files:
            with at_call("stat", 1, self.swap("reports", self.to_outside)):
                self.fails(lambda: files.list_files("reports"), LINK)

    def test_a_directory_that_was_opened_is_read_wherever_it_goes(self) -> None:
        """The link is put in place of reports when deep/ is looked at, so the walk is past it."""
        with ProjectFiles(self.root, LIMIT) as files:
            with at_call("stat", 2, self.swap("reports", self.to_outside)):
                self.assertEqual(files.read_file("reports/deep/leaf.txt"), "leaf")

    def test_a_file_becomes_a_fifo_after_the_look_and_nobody_waits(self) -> None:
        self.reading("a.txt", 1, self.swap("a.txt", os.mkfifo), SPECIAL)

    def test_a_file_becomes_a_socket_after_the_look(self) -> None:
        self.reading("a.txt", 1, self.swap("a.txt", put_socket), SPECIAL)

    def test_a_file_becomes_a_directory_after_the_look(self) -> None:
        self.reading("a.txt", 1, self.swap("a.txt", Path.mkdir), SPECIAL)

    def test_a_file_is_gone_after_the_look(self) -> None:
        self.reading("a.txt", 1, self.swap("a.txt", lambda _: None), MISSING, "list_files")

    def test_a_directory_becomes_a_fifo_after_the_look_and_nobody_waits(self) -> None:
        self.reading("reports/x", 1, self.swap("reports", os.mkfifo), "刚被换成")

    def test_a_directory_becomes_a_file_after_the_look(self) -> None:
        self.reading("reports/x", 1, self.swap("reports", Path.touch), "刚被换成")

    def test_what_was_opened_is_read_when_its_name_is_given_away(self) -> None:
        with ProjectFiles(self.root, LIMIT) as files:
            with at_call("fstat", 2, self.swap("a.txt", self.to_secret)):
                self.assertEqual(files.read_file("a.txt"), "alpha")

    def test_L07_nothing_of_an_entry_is_asked_for_by_its_path(self) -> None:
        real, asked = os.scandir, []

        def scandir(where: Any) -> Any:
            asked.append(where)
            return real(where)

        with ProjectFiles(self.root, LIMIT) as files, mock.patch.object(os, "scandir", scandir):
            self.assertIn("a.txt", files.list_files("."))
            self.assertIn("daily", files.list_files("reports"))
        self.assertEqual([type(where) for where in asked], [int, int])

    def test_S10_a_file_swapped_for_a_link_all_the_time_never_shows_the_secret(self) -> None:
        swap_and_read(self, "a.txt", "outside/secret.txt", "a.txt", "alpha", 3000)

    def test_a_directory_swapped_for_a_link_all_the_time_never_shows_the_secret(self) -> None:
        (self.top / "outside/leaf.txt").write_text(SECRET)
        swap_and_read(self, "reports/deep", "outside", "reports/deep/leaf.txt", "leaf", 3000)


def swap_and_read(case: InProject, name: str, target: str, path: str, right: str, reads: int) -> str:
    """Exchange root/name for a link to target and back, in a process of its own (threads would take turns),
    while path is read here: so many times, and until both outcomes, right and refused, were met often."""
    place, aside, link = (
        os.fspath(path) for path in (case.root / name, case.top / "aside", case.top / target)
    )
    reader = os.getpid()

    def swap() -> None:
        while os.getppid() == reader:
            os.rename(place, aside)  # noqa: PTH104 (Path is slow, and the window to be hit is short)
            os.symlink(link, place)  # noqa: PTH211
            os.unlink(place)  # noqa: PTH108
            os.rename(aside, place)  # noqa: PTH104
            time.sleep(0.00005)

    swapper = in_child(swap)
    seen = {right: 0, "refused": 0}
    try:
        with ProjectFiles(case.root, LIMIT) as files:
            while sum(seen.values()) < reads or min(seen.values()) < 100:
                try:
                    seen[files.read_file(path)] += 1  # a KeyError is the secret
                except ToolError:
                    seen["refused"] += 1
    finally:
        os.kill(swapper, signal.SIGKILL)
        os.waitpid(swapper, 0)
    return f"{path}: {seen}"


def put_socket(path: Path) -> None:
    server = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's path may have 107 bytes only
    try:
        server.bind(path.name)
    finally:
        os.chdir(here)
        server.close()


class SpecialFiles(InProject):
    def test_F02_a_fifo_is_refused_and_its_waiting_writer_goes_on_waiting(self) -> None:
        os.mkfifo(self.root / "pipe")
        script = (
            "import sys; print('opening', flush=True); open(sys.argv[1], 'w'); print('released', flush=True)"
        )
        command = [sys.executable, "-c", script, str(self.root / "pipe")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            try:
                assert writer.stdout is not None
                self.assertEqual(writer.stdout.readline(), "opening\n")
                time.sleep(0.1)
                with ProjectFiles(self.root, LIMIT) as files:
                    self.expect(files, read("pipe"), Fails(SPECIAL, "pipe"))
                    self.expect(files, read("pipe/"), Fails(SPECIAL))
                    self.expect(files, read("pipe/x"), Fails(SPECIAL))
                    self.expect(files, listed("pipe"), Fails(SPECIAL))
                with self.assertRaises(subprocess.TimeoutExpired):
                    writer.wait(0.2)
            finally:
                writer.kill()

    def test_a_fifo_without_a_writer_is_refused_at_once(self) -> None:
        os.mkfifo(self.root / "pipe")
        with ProjectFiles(self.root, LIMIT) as files:
            self.expect(files, read("pipe"), Fails(SPECIAL))

    def test_a_socket_is_refused(self) -> None:
        put_socket(self.root / "s")
        with ProjectFiles(self.root, LIMIT) as files:
            self.expect(files, read("s"), Fails(SPECIAL))

    def test_devices_and_terminals_are_refused_without_being_opened(self) -> None:
        with ProjectFiles("/dev", LIMIT) as files:
            for name in ("zero", "null", "tty", "random"):
                self.expect(files, read(name), Fails(SPECIAL))

    @unittest.skipUnless(Path("/proc/version").exists(), "no /proc")
    def test_F07_a_file_that_says_it_has_no_size_is_read(self) -> None:
        text = Path("/proc/version").read_text()
        with ProjectFiles("/proc", len(text)) as files:
            self.assertEqual(files.read_file("version"), text)
        with ProjectFiles("/proc", len(text) - 1) as files:
            self.expect(files, read("version"), Fails(TOO_LARGE, f"上限是 {len(text) - 1} 字节"))


def utf8(*sizes: int) -> str:
    return "".join(chr(0x4E00 + i % 500) * size for i, size in enumerate(sizes))


@table(
    [
        ("Z01_of_exactly_the_limit", b"x" * LIMIT, "x" * LIMIT),
        ("Z01_of_one_less", b"x" * (LIMIT - 1), "x" * (LIMIT - 1)),
        ("of_one_more", b"x" * (LIMIT + 1), Fails(TOO_LARGE, "1001 字节", "1000 字节")),
        ("Z03_empty", b"", ""),
        ("T01_with_a_byte_order_mark", b"\xef\xbb\xbf{}\n", "{}\n"),
        ("of_a_byte_order_mark_alone", b"\xef\xbb\xbf", ""),
        ("with_two_byte_order_marks", b"\xef\xbb\xbf\xef\xbb\xbfx", "\ufeffx"),
        ("with_a_byte_order_mark_inside", "a\ufeffb".encode(), "a\ufeffb"),
        ("with_a_mark_and_a_bad_byte", b"\xef\xbb\xbfab\xff", Fails(NOT_TEXT, "偏移 5")),
        ("T02_in_utf16_little", "日报".encode("utf-16"), Fails(NOT_TEXT, "像是 UTF-16", "转换成 UTF-8")),
        ("T02_in_utf16_big", b"\xfe\xff" + "ab".encode("utf-16-be"), Fails(NOT_TEXT, "像是 UTF-16")),
        ("in_utf16_without_a_mark", "ab".encode("utf-16-le"), Fails(NOT_TEXT, "偏移 1", "UTF-16")),
        ("in_utf32", "ab".encode("utf-32"), Fails(NOT_TEXT, "UTF-16")),
        ("T03_in_gbk", "a日报".encode("gbk"), Fails(NOT_TEXT, "偏移 1", "GBK")),
        ("T03_in_gb18030", "营收".encode("gb18030"), Fails(NOT_TEXT, "偏移 2", "GBK")),
        ("in_latin_1", "caf\u00e9".encode("latin-1"), Fails(NOT_TEXT, "偏移 3")),
        ("with_ff_inside", b"abc\xff", Fails(NOT_TEXT, "偏移 3", "二进制")),
        ("T06_whose_limit_is_inside_a_character", b"x" * 999 + "日".encode(), Fails(TOO_LARGE)),
        ("T07_with_nul", b"ab\0cd", Fails(NOT_TEXT, "偏移 2", "二进制")),
        ("with_nul_at_the_end", b"x" * 999 + b"\0", Fails(NOT_TEXT, "偏移 999")),
        ("T08_with_every_line_end", b"a\r\nb\rc\nd", "a\r\nb\rc\nd"),
        ("T09_overlong", b"\xc0\xaf", Fails(NOT_TEXT, "偏移 0")),
        ("T09_with_a_surrogate", b"\xed\xa0\x80", Fails(NOT_TEXT)),
        ("T09_beyond_unicode", b"\xf4\x90\x80\x80", Fails(NOT_TEXT)),
        ("that_ends_inside_a_character", b"ab\xe6\x97", Fails(NOT_TEXT, "偏移 2")),
        ("with_controls_and_noncharacters", b"\x01\x1b[2J\x7f\xef\xbf\xbe", "\x01\x1b[2J\x7f\ufffe"),
        ("with_every_plane", "aé日😀\U0010fffd".encode(), "aé日😀\U0010fffd"),
    ]
)
class A_file(InProject):  # noqa: N801
    def row(self, content: bytes, expected: object) -> None:
        """Read whole, and once more with every read giving a single byte (row Z10)."""
        (self.root / "f").write_bytes(content)
        real = os.read
        with ProjectFiles(self.root, LIMIT) as files:
            self.expect(files, read("f"), expected)
            with mock.patch.object(os, "read", lambda fd, n: real(fd, min(n, 1))):
                self.expect(files, read("f"), expected)

    def test_Z10_a_character_across_two_reads_stays_whole(self) -> None:
        for lead in range(8180, 8194):
            text = "x" * lead + "日报😀" * 3 + "\r\n"
            (self.root / "f").write_bytes(text.encode())
            with ProjectFiles(self.root, 1 << 20) as files:
                self.assertEqual(files.read_file("f"), text)

    def test_a_bad_byte_in_a_later_read_is_told_with_its_place_in_the_file(self) -> None:
        (self.root / "f").write_bytes("日".encode() * 30000 + b"\xe6\x97x")
        (self.root / "g").write_bytes(b"x" * 70000 + b"\0")
        with ProjectFiles(self.root, 1 << 20) as files:
            self.expect(files, read("f"), Fails(NOT_TEXT, "偏移 90000）"))
            self.expect(files, read("g"), Fails(NOT_TEXT, "偏移 70000）"))

    def test_Z06_a_file_cut_short_during_the_read_gives_what_was_there(self) -> None:
        (self.root / "f").write_bytes(b"x" * 200_000)
        with ProjectFiles(self.root, 1 << 20) as files:
            with at_call("read", 1, lambda: os.truncate(self.root / "f", 10)):
                self.assertEqual(set(files.read_file("f")), {"x"})

    def test_a_file_that_grows_during_the_read_is_held_to_the_limit(self) -> None:
        (self.root / "f").write_bytes(b"x" * 500)
        with ProjectFiles(self.root, LIMIT) as files:
            with at_call("read", 1, lambda: (self.root / "f").write_bytes(b"x" * 5000)):
                self.expect(files, read("f"), Fails(TOO_LARGE, "上限是 1000 字节"))

    def test_Z07_ten_sparse_gigabytes_are_refused_unread(self) -> None:
        with (self.root / "f").open("wb") as file:
            file.truncate(10 << 30)
        with ProjectFiles(self.root, LIMIT) as files:
            with mock.patch.object(os, "read", side_effect=AssertionError("read")):
                self.expect(files, read("f"), Fails(TOO_LARGE, "10737418240"))

    def test_Z08_a_large_limit_costs_no_memory(self) -> None:
        self.assertLess(self.peak(b"x", 500_000_000), 1_000_000)

    def test_a_file_at_the_limit_costs_at_most_twice_its_size(self) -> None:
        for size in (32 * 1024, 8 << 20):
            for character in (b"x", "日".encode(), "😀".encode()):
                content = character * (size // len(character))
                with self.subTest(size=size, character=character):
                    self.assertLess(self.peak(content, len(content)), 2.02 * len(content) + 4096)

    def peak(self, content: bytes, limit: int) -> int:
        (self.root / "f").write_bytes(content)
        with ProjectFiles(self.root, limit) as files:
            files.read_file("f")
            tracemalloc.start()
            try:
                files.read_file("f")
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()


@table(
    [
        ("Z11_EIO_in_read", "read", errno.EIO, Fails("EIO", "f")),
        ("R09_ESTALE_in_read", "read", errno.ESTALE, Fails("ESTALE", "正在变化", "暂时不可用")),
        ("EAGAIN_in_read", "read", errno.EAGAIN, Fails("EAGAIN")),
        ("an_unknown_error_in_read", "read", 9999, Fails("9999")),
        ("ELOOP_in_open", "open", errno.ELOOP, Fails(LINK)),
        ("EMLINK_in_open", "open", errno.EMLINK, Fails(LINK)),
        ("ENXIO_in_open", "open", errno.ENXIO, Fails(SPECIAL)),
        ("EOPNOTSUPP_in_open", "open", errno.EOPNOTSUPP, Fails(SPECIAL)),
        ("ENFILE_in_open", "open", errno.ENFILE, Fails("ENFILE")),
        ("EPERM_in_open", "open", errno.EPERM, Fails(DENIED)),
        ("EIO_in_lstat", "stat", errno.EIO, Fails("EIO")),
        ("ESTALE_in_lstat", "stat", errno.ESTALE, Fails("ESTALE")),
        ("EACCES_in_lstat", "stat", errno.EACCES, Fails(DENIED)),
        ("EINVAL_in_lstat_is_a_name_that_cannot_be", "stat", errno.EINVAL, Fails(MISSING)),
        ("EILSEQ_in_lstat_is_a_name_that_cannot_be", "stat", errno.EILSEQ, Fails(MISSING)),
        ("EIO_in_fstat", "fstat", errno.EIO, Fails("EIO")),
    ]
)
class A_system_error(InProject):  # noqa: N801
    def row(self, function: str, number: int, expected: object) -> None:
        (self.root / "f").write_text("x")
        real = getattr(os, function)

        def failing(*args: Any, **options: Any) -> Any:
            if function == "fstat" and stat.S_ISDIR(real(*args).st_mode):
                return real(*args)
            if function == "open" and args[0] != "f":
                return real(*args, **options)
            raise OSError(number, os.strerror(number), str(self.root / "f"))

        with ProjectFiles(self.root, LIMIT) as files:
            before = descriptors()
            with mock.patch.object(os, function, failing):
                self.fails(lambda: files.read_file("f"), *expected)  # type: ignore[misc]
            self.assertEqual(descriptors(), before)

    def test_no_descriptor_left_is_told_and_nothing_leaks(self) -> None:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        with ProjectFiles(self.root, LIMIT) as files:
            before = descriptors()
            for spare in range(3):
                free = [os.dup(0) for _ in range(spare + 1)]
                resource.setrlimit(resource.RLIMIT_NOFILE, (free[-1], limits[1]))
                for descriptor in free:
                    os.close(descriptor)
                try:
                    if spare < 2:
                        self.fails(lambda: files.read_file("reports/daily.json"), "EMFILE")
                    else:
                        self.fails(lambda: files.read_file("reports/x"), MISSING, "用 list_files")
                    self.fails(lambda: files.list_files("reports/deep"), "EMFILE")
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            self.assertEqual(descriptors(), before)
            self.assertEqual(files.read_file("a.txt"), "alpha")

    def test_R02_a_closed_directory_is_told(self) -> None:
        (self.root / "reports").chmod(0)
        with ProjectFiles(self.root, LIMIT) as files, nobody():
            self.expect(files, listed("reports"), Fails(DENIED, "reports"))
            self.expect(files, read("reports/daily.json"), Fails(DENIED))
            self.assertIn("reports/", files.list_files("."))
        (self.root / "reports").chmod(0o755)

    def test_a_closed_file_is_told(self) -> None:
        (self.root / "a.txt").chmod(0)
        with ProjectFiles(self.root, LIMIT) as files, nobody():
            self.expect(files, read("a.txt"), Fails(DENIED, "a.txt"))

    def test_R04_a_directory_that_shows_names_but_not_their_kind_is_told(self) -> None:
        (self.root / "reports").chmod(0o444)
        with ProjectFiles(self.root, LIMIT) as files, nobody():
            self.expect(files, listed("reports"), Fails(DENIED))
        (self.root / "reports").chmod(0o755)

    @unittest.skipUnless(hasattr(os, "O_PATH"), "no O_PATH here")
    def test_a_directory_that_may_be_entered_but_not_listed_is_walked_through(self) -> None:
        (self.root / "reports").chmod(0o111)
        with ProjectFiles(self.root, LIMIT) as files, nobody():
            self.expect(files, read("reports/daily.json"), '{"orders": 128}\n')
            self.expect(files, listed("reports"), Fails(DENIED))
            self.expect(files, read("reports/x"), Fails(MISSING, "用 list_files"))
        (self.root / "reports").chmod(0o755)

    def test_R07_no_kind_of_error_leaks_a_descriptor(self) -> None:
        os.mkfifo(self.root / "pipe")
        (self.root / "leak").symlink_to("a.txt")
        (self.root / "gbk").write_bytes(b"\xc8\xd5")
        (self.root / "large").write_bytes(b"x" * (LIMIT + 1))
        paths = [
            "/x",
            "..",
            "\0",
            "no",
            "reports/no",
            "a.txt/x",
            "a.txt/",
            "reports",
            "leak",
            "leak/x",
            "pipe",
        ]
        with ProjectFiles(self.root, LIMIT) as files:
            before = descriptors()
            for _ in range(300):
                for path in [*paths, "gbk", "large"]:
                    self.assertRaises(ToolError, files.read_file, path)
                for path in [*paths[:7], "a.txt", "leak", "pipe"]:
                    self.assertRaises(ToolError, files.list_files, path)
            self.assertEqual(descriptors(), before)

    def test_an_error_during_the_scan_is_told(self) -> None:
        def failing(*_: object) -> Iterator[object]:
            yield from ()
            raise OSError(errno.EIO, "", str(self.root))

        with ProjectFiles(self.root, LIMIT) as files, mock.patch.object(os, "scandir") as scandir:
            scandir.return_value.__enter__.return_value = failing()
            self.expect(files, listed("reports"), Fails("EIO", "reports"))

    def test_control_c_passes_and_leaks_nothing(self) -> None:
        with ProjectFiles(self.root, LIMIT) as files:
            before = descriptors()
            for name, path in (("read", "a.txt"), ("stat", "reports/x"), ("scandir", "reports/x")):
                with mock.patch.object(os, name, side_effect=KeyboardInterrupt):
                    self.assertRaises(KeyboardInterrupt, files.read_file, path)
            self.assertEqual(descriptors(), before)

    def test_control_c_inside_any_one_system_call_leaks_nothing_and_the_object_works_afterwards(self) -> None:
        names = ("open", "stat", "fstat", "read", "scandir")
        tried = 0
        for method, path in (
            ("read_file", "reports/deep/leaf.txt"),
            ("list_files", "reports"),
            ("list_files", "no"),
        ):
            with ProjectFiles(self.root, LIMIT) as files:
                before, number = descriptors(), 1
                while self.interrupted(names, number, partial(_attempt, getattr(files, method), path)):
                    self.assertEqual(descriptors(), before, f"{method}, call {number}")
                    number += 1
                tried += number - 1
                self.assertIn("128", files.read_file("reports/daily.json"))
        self.assertGreater(tried, 20)
        before = descriptors()
        for number in (1, 2):
            files = ProjectFiles(self.root, LIMIT)
            self.assertTrue(self.interrupted(names, number, files.__enter__))
            self.assertEqual(descriptors(), before)
            with files:
                self.assertIn("reports/", files.list_files("."))

    def interrupted(self, names: tuple[str, ...], number: int, action: Callable[[], object]) -> bool:
        """Whether action came to system call number so-and-so, and was ended there by Ctrl-C."""
        count = 0

        def counted(real: Callable[..., Any]) -> Callable[..., Any]:
            def function(*arguments: Any, **options: Any) -> Any:
                nonlocal count
                count += 1
                if count == number:
                    raise KeyboardInterrupt
                return real(*arguments, **options)

            return function

        supported = {*os.supports_dir_fd, *os.supports_fd}
        with contextlib.ExitStack() as stack:
            for name in names:
                function = counted(real := getattr(os, name))
                stack.enter_context(mock.patch.object(os, name, function))
                if real in supported:
                    stack.enter_context(
                        mock.patch.object(os, "supports_dir_fd", {*os.supports_dir_fd, function})
                    )
                    stack.enter_context(mock.patch.object(os, "supports_fd", {*os.supports_fd, function}))
            try:
                action()
            except KeyboardInterrupt:
                return True
        return False

    def test_R11_signals_are_not_noticed(self) -> None:
        (self.root / "f").write_bytes(b"x" * 300_000)
        hits = []
        before = signal.signal(signal.SIGVTALRM, lambda *_: hits.append(1))
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0005, 0.0005)
        try:
            with ProjectFiles(self.root, 1 << 20) as files:
                while len(hits) < 20:
                    self.assertEqual(len(files.read_file("f")), 300_000)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)


class Listing(InProject):
    def test_L01_direct_children_sorted_and_relative_to_the_root(self) -> None:
        for name in ("b", "B", "a-b", ".hidden", "日", "a"):
            (self.root / "reports" / name).touch()
        (self.root / "reports/a").unlink()
        (self.root / "reports/a").mkdir()
        with ProjectFiles(self.root, LIMIT) as files:
            names = [".hidden", "B", "a-b", "a/", "b", "daily.json", "deep/", "日"]
            self.assertEqual(files.list_files("reports").split("\n"), ["reports/" + name for name in names])
            self.assertEqual(files.list_files("."), "a.txt\nempty/\nreports/")
            self.assertEqual(files.list_files("reports/deep"), "reports/deep/leaf.txt")

    def test_L02_a_listed_directory_is_listed_as_it_stands(self) -> None:
        with ProjectFiles(self.root, LIMIT) as files:
            self.assertEqual(files.list_files("reports/deep/"), "reports/deep/leaf.txt")

    def test_L03_a_large_directory_is_cut_in_sorted_order_and_says_so(self) -> None:
        folder = self.root / "big"
        folder.mkdir()
        for number in range(500):
            (folder / f"{number * 271 % 500:03}").touch()
        with ProjectFiles(self.root, LIMIT) as files:
            *lines, last = files.list_files("big").split("\n")
            self.assertEqual(lines, [f"big/{number:03}" for number in range(200)])
            self.assertIn("300 个", last)
            self.assertIn("截断", last)
            hint = self.fails(lambda: files.read_file("big/x"), "big/000、big/001")
            self.assertIn("big/019，还有 480 项，请用 list_files", hint)
            self.assertNotIn("big/020", hint)
            self.assertEqual(files.read_file("big/499"), "")

    def test_long_names_cut_a_listing_earlier(self) -> None:
        for number in range(60):
            (self.root / "empty" / f"{number:0250}").touch()
        with ProjectFiles(self.root, LIMIT) as files:
            text = files.list_files("empty")
            self.assertLess(len(text), 6100)
            self.assertIn(f"{60 - text.count('empty/')} 个按名称", text)

    def test_L06_what_is_no_file_is_left_out_and_counted(self) -> None:
        folder = self.root / "empty"
        (folder / "live").symlink_to("../a.txt")
        (folder / "dangling").symlink_to("nowhere")
        (folder / "to_directory").symlink_to("../reports")
        os.mkfifo(folder / "pipe")
        put_socket(folder / "socket")
        with ProjectFiles(self.root, LIMIT) as files:
            text = files.list_files("empty")
            self.assertEqual(
                text, "（目录 empty 中还有没列出的：2 个特殊文件（管道、设备或套接字）、3 个符号链接）"
            )
            (folder / "x").touch()
            self.assertEqual(files.list_files("empty").split("\n"), ["empty/x", text])

    def test_names_that_cannot_be_printed_are_left_out_and_counted(self) -> None:
        names = [
            b"a\nb",
            b"\x1b[2J",
            b"\xff\xfe",
            "a\u202eb".encode(),
            "\u2067x".encode(),
            "a\u2028".encode(),
        ]
        for name in names:
            Path(os.fsdecode(os.fsencode(self.root / "empty") + b"/" + name)).touch()
        with ProjectFiles(self.root, LIMIT) as files:
            self.assertEqual(files.list_files("empty"), "（目录 empty 中还有没列出的：6 个名称无法显示的项）")
            self.fails(lambda: files.read_file("empty/x"), "目录 empty 中没有可以读取的文件")

    def test_a_kind_that_cannot_be_told_is_not_guessed(self) -> None:
        class Entry:
            name = "f"

            def is_symlink(self) -> bool:
                raise PermissionError

        with ProjectFiles(self.root, LIMIT) as files, mock.patch.object(os, "scandir") as scandir:
            scandir.return_value.__enter__.return_value = [Entry()]
            self.assertIn("1 个类型无法判断的项", files.list_files("."))

    def test_an_empty_directory_is_told_in_words(self) -> None:
        with ProjectFiles(self.root, LIMIT) as files:
            self.assertEqual(files.list_files("empty/"), "（目录 empty 是空的）")
        with ProjectFiles(self.root / "empty", LIMIT) as files:
            self.assertEqual(files.list_files("."), "（目录 . 是空的）")

    def test_L09_nothing_is_listed_below_a_directory(self) -> None:
        for number in range(300):
            (self.root / "node_modules" / f"p{number}").mkdir(parents=True)
        with ProjectFiles(self.root, LIMIT) as files:
            self.assertEqual(files.list_files("."), "a.txt\nempty/\nnode_modules/\nreports/")

    def test_T14_names_are_compared_by_the_file_system_not_by_us(self) -> None:
        (self.root / "e\u0301.txt").write_text("nfd")
        (self.root / "10.32.05\u202fAM.png").write_text("narrow")
        with ProjectFiles(self.root, LIMIT) as files:
            try:
                self.assertEqual(files.read_file("\u00e9.txt"), "nfd")  # where the volume normalises
            except ToolError as error:
                self.assertIn("e\u0301.txt", str(error))
            self.assertEqual(files.read_file("10.32.05\u202fAM.png"), "narrow")
            self.fails(lambda: files.read_file("10.32.05 AM.png"), "10.32.05\u202fAM.png")

    def test_T15_case_is_the_file_systems_business(self) -> None:
        (self.root / "ReadMe.md").write_text("text")
        same = (self.root / "README.MD").exists()
        with ProjectFiles(self.root, LIMIT) as files:
            self.expect(files, read("README.MD"), "text" if same else Fails(MISSING, "ReadMe.md"))


class Lifecycle(InProject):
    def both_fail(self, files: ProjectFiles, *words: str) -> None:
        self.fails(lambda: files.read_file("a.txt"), *words)
        self.fails(lambda: files.list_files("."), *words)

    def test_C01_after_the_block_every_call_fails(self) -> None:
        with ProjectFiles(self.root, LIMIT) as files:
            pass
        self.both_fail(files, CLOSED)

    def test_C05_before_the_block_every_call_fails(self) -> None:
        self.both_fail(ProjectFiles(self.root, LIMIT), CLOSED, "with ProjectFiles")

    def test_C04_a_second_block_is_refused_and_the_first_one_goes_on(self) -> None:
        with ProjectFiles(self.root, LIMIT) as files:
            with self.assertRaises(RuntimeError), files:
                self.fail("entered twice")
            self.assertEqual(files.read_file("a.txt"), "alpha")
        with self.assertRaisesRegex(RuntimeError, "新建"), files:
            self.fail("entered again")

    def test_close_is_idempotent_and_leaves_other_descriptors_alone(self) -> None:
        before = descriptors()
        with ProjectFiles(self.root, LIMIT) as files:
            files.close()
            other = os.open(self.root, os.O_RDONLY)
            files.close()
            self.both_fail(files, CLOSED)
        os.fstat(other)
        os.close(other)
        self.assertEqual(descriptors(), before)

    def test_closed_before_it_was_opened_it_stays_closed(self) -> None:
        files = ProjectFiles(self.root, LIMIT)
        files.close()
        with self.assertRaises(RuntimeError), files:
            self.fail("entered")

    def test_an_exception_in_the_block_passes_and_closes(self) -> None:
        before = descriptors()
        with self.assertRaises(ZeroDivisionError), ProjectFiles(self.root, LIMIT):
            raise ZeroDivisionError
        self.assertEqual(descriptors(), before)

    def test_a_number_given_away_by_a_racing_close_is_noticed(self) -> None:
        """What close() in another thread and a new open() in a third leave behind: our number, their file."""
        before = descriptors()
        with ProjectFiles(self.root, LIMIT) as files:
            other = os.open(self.top / "outside", os.O_RDONLY)
            os.dup2(other, files._held[0], inheritable=False)
            os.close(other)
            self.fails(lambda: files.read_file("secret.txt"), CLOSED)
            self.fails(lambda: files.list_files("."), CLOSED)
        self.assertEqual(descriptors(), before)

    def test_a_close_during_a_call_lets_it_finish(self) -> None:
        with ProjectFiles(self.root, LIMIT) as files:
            with at_call("stat", 1, files.close):
                self.assertEqual(files.read_file("reports/daily.json"), '{"orders": 128}\n')
            self.both_fail(files, CLOSED)

    def test_dropped_while_open_it_closes_and_warns(self) -> None:
        before = descriptors()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ProjectFiles(self.root, LIMIT).__enter__()
            gc.collect()
        self.assertEqual([warning.category for warning in caught], [ResourceWarning])
        self.assertEqual(descriptors(), before)

    def test_dropped_before_or_after_it_is_silent(self) -> None:
        complaints: list[object] = []
        with warnings.catch_warnings(), mock.patch.object(sys, "unraisablehook", complaints.append):
            warnings.simplefilter("error")
            ProjectFiles(self.root, LIMIT)
            with ProjectFiles(self.root, LIMIT):
                pass
            with self.assertRaises(TypeError):
                ProjectFiles()  # type: ignore[call-arg]
            gc.collect()
        self.assertEqual(complaints, [])

    def test_C07_after_a_fork_both_sides_list_and_read_without_disturbing_each_other(self) -> None:
        for number in range(150):
            (self.root / f"{number:03}").touch()
        with ProjectFiles(self.root, LIMIT) as files:
            whole = files.list_files(".")

            def same() -> bool:
                return all(files.list_files(".") == whole for _ in range(100))

            children = [in_child(lambda: same() and files.read_file("a.txt") == "alpha") for _ in range(3)]
            self.assertTrue(same())
            self.assertEqual([os.waitpid(child, 0)[1] for child in children], [0, 0, 0])

    def test_C07_a_fork_from_within_a_busy_thread_pool_leaves_no_lock_held(self) -> None:
        stop = threading.Event()
        with ProjectFiles(self.root, LIMIT) as files, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python 3.12 warns of fork beside threads: that is the point

            def busy() -> None:
                while not stop.is_set():
                    files.read_file("a.txt")

            threads = [threading.Thread(target=busy) for _ in range(3)]
            for thread in threads:
                thread.start()
            try:
                for _ in range(20):
                    child = in_child(lambda: signal.alarm(10) == 0 and files.read_file("a.txt") == "alpha")
                    self.assertEqual(os.waitpid(child, 0)[1], 0)
            finally:
                stop.set()
                for thread in threads:
                    thread.join()

    def test_C08_a_child_process_inherits_nothing(self) -> None:
        script = (
            "import os, sys\n"
            "root = os.stat(sys.argv[1])\n"
            "for fd in range(256):\n"
            "    try: print(os.path.samestat(os.fstat(fd), root))\n"
            "    except OSError: pass\n"
        )
        with ProjectFiles(self.root, LIMIT):
            command = [sys.executable, "-c", script, str(self.root)]
            found = subprocess.run(command, close_fds=False, stdout=-1, text=True, check=True).stdout
        self.assertIn("False", found)
        self.assertNotIn("True", found)

    def test_C09_it_cannot_be_copied_or_pickled(self) -> None:
        with ProjectFiles(self.root, LIMIT) as files:
            for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
                with self.assertRaisesRegex(TypeError, "复制"):
                    attempt(files)
            self.assertEqual(files.read_file("a.txt"), "alpha")

    def test_C10_a_relative_root_does_not_follow_the_working_directory(self) -> None:
        here = Path.cwd()
        self.addCleanup(os.chdir, here)
        os.chdir(self.top)
        with ProjectFiles("root", LIMIT) as files:
            os.chdir("outside")
            self.assertEqual(files.read_file("a.txt"), "alpha")
            self.fails(lambda: files.read_file("secret.txt"), MISSING)

    def test_every_spelling_of_a_root_works(self) -> None:
        for root in (str(self.root), self.root, os.fsencode(self.root), f"{self.root}//."):
            with ProjectFiles(root, LIMIT) as files:
                self.assertEqual(files.read_file("a.txt"), "alpha")

    def test_a_bad_root_is_refused_on_entry(self) -> None:
        before = descriptors()
        (self.root / "loop").symlink_to("loop")
        os.mkfifo(self.root / "pipe")
        for name in ("no", "a.txt", "a.txt/", "loop", "pipe", "\0", "\ud800", "n" * 5000):
            files = ProjectFiles(f"{self.root}/{name}", LIMIT)
            with self.subTest(name), self.assertRaisesRegex(MiniPiError, "打不开项目目录.*请"):
                files.__enter__()
            self.both_fail(files, CLOSED)
        with self.assertRaises(MiniPiError):
            ProjectFiles("", LIMIT).__enter__()
        self.assertEqual(descriptors(), before)

    def test_a_root_that_may_not_be_entered_is_refused_on_entry(self) -> None:
        (self.root / "reports").chmod(0o444)
        before = descriptors()
        files = ProjectFiles(self.root / "reports", LIMIT)
        with nobody(), self.assertRaisesRegex(MiniPiError, "PermissionError"):
            files.__enter__()
        self.assertEqual(descriptors(), before)
        self.both_fail(files, CLOSED)
        (self.root / "reports").chmod(0o755)

    def test_a_root_of_another_type_is_refused_at_once(self) -> None:
        for root in (None, 3, [str(self.root)]):
            self.assertRaises(TypeError, ProjectFiles, root, LIMIT)

    def test_a_bad_limit_is_refused_at_once(self) -> None:
        for limit in (True, 1.5, "1000", None, float("inf")):
            self.assertRaisesRegex(TypeError, "max_bytes", ProjectFiles, self.root, limit)
        for limit in (0, -1):
            self.assertRaisesRegex(ValueError, "max_bytes", ProjectFiles, self.root, limit)
        with ProjectFiles(self.root, 10**30) as files:
            self.assertEqual(files.read_file("a.txt"), "alpha")

    def test_a_root_deleted_while_open_is_told(self) -> None:
        with ProjectFiles(self.root, LIMIT) as files:
            shutil.rmtree(self.root)
            self.fails(lambda: files.read_file("a.txt"), MISSING)
            self.fails(lambda: files.read_file("reports/x"), MISSING)
            try:
                self.assertEqual(files.list_files("."), "（目录 . 是空的）")
            except ToolError as error:
                self.assertIn(MISSING, str(error))
        self.root.mkdir()

    def test_W08_W10_where_there_is_no_dir_fd_it_does_not_start_and_names_wsl(self) -> None:
        """As on Windows: no flag, no dir_fd. There is no best-effort mode that junctions could fool."""
        script = (
            "import os\n"
            "for name in [n for n in dir(os) if n.startswith('O_')]:\n"
            "    if name not in ('O_RDONLY', 'O_WRONLY', 'O_RDWR', 'O_CREAT', 'O_EXCL', 'O_TRUNC'):\n"
            "        delattr(os, name)\n"
            "os.supports_dir_fd.clear()\n"
            "from packages.pi_coding_agent import ProjectFiles\n"
            "from packages.pi_ai import MiniPiError\n"
            "try: ProjectFiles('.', 9).__enter__()\n"
            "except MiniPiError as error: print(ascii(str(error)))\n"
        )
        self.assertIn("WSL", PathSyntax.python(script))
        with mock.patch.object(os, "supports_dir_fd", set()):
            with self.assertRaisesRegex(MiniPiError, "WSL"):
                ProjectFiles(self.root, LIMIT).__enter__()

    def test_C13_O_NOFOLLOW_ANY_is_never_combined(self) -> None:
        script = (
            "import os\n"
            "os.O_NOFOLLOW_ANY = 1 << 29\n"
            "from packages.pi_coding_agent import ProjectFiles\n"
            "real, flags = os.open, []\n"
            "os.open = lambda path, given, **kw: (flags.append(given), real(path, given, **kw))[1]\n"
            "os.supports_dir_fd.add(os.open)\n"
            f"with ProjectFiles({str(self.root)!r}, 99) as files:\n"
            "    files.list_files('reports'), files.read_file('a.txt')\n"
            "print(len(flags), any(given & os.O_NOFOLLOW_ANY for given in flags))\n"
        )
        self.assertRegex(PathSyntax.python(script), r"^[5-9] False")

    def test_eight_threads_list_and_read_at_once_and_all_is_whole(self) -> None:
        with ProjectFiles(self.root, LIMIT) as files:
            self.assertEqual(in_threads(8, 100, lambda: whole(files)), [True] * 800)


def whole(files: ProjectFiles) -> bool:
    listing = files.list_files("reports") == "reports/daily.json\nreports/deep/"
    return listing and files.read_file("reports/deep/leaf.txt") == "leaf"


def in_threads(threads: int, times: int, work: Callable[[], bool]) -> list[bool]:
    results: list[bool] = []

    def run() -> None:
        for _ in range(times):
            results.append(work())

    pool = [threading.Thread(target=run) for _ in range(threads)]
    for thread in pool:
        thread.start()
    for thread in pool:
        thread.join()
    return results


class Tools(InProject):
    def tools(self, files: ProjectFiles) -> dict[str, AgentTool]:
        return {tool.name: tool for tool in create_project_tools(files)}

    def test_both_tools_take_one_path_and_nothing_else(self) -> None:
        with ProjectFiles(self.root, LIMIT) as files:
            tools = self.tools(files)
            self.assertEqual(list(tools), ["list_files", "read_file"])
            for tool in tools.values():
                self.assertEqual(tool.parameters["required"], ["path"])
                self.assertIs(tool.parameters["additionalProperties"], False)
                self.assertEqual(list(tool.parameters["properties"]), ["path"])
                self.assertRegex(tool.description, "[\u4e00-\u9fff]")
                for arguments in ({}, {"path": ""}, {"path": 3}, {"path": ".", "depth": 2}):
                    self.assertTrue(tool.execute(arguments).is_error, arguments)

    def test_what_list_files_prints_goes_into_read_file(self) -> None:
        with ProjectFiles(self.root, LIMIT) as files:
            tools = self.tools(files)
            found = tools["list_files"].execute({"path": "reports"}).content.split("\n")[0]
            self.assertEqual(found, "reports/daily.json")
            self.assertEqual(tools["read_file"].execute({"path": found}), ToolResult('{"orders": 128}\n'))

    def test_an_empty_file_is_told_in_words(self) -> None:
        (self.root / "e").touch()
        with ProjectFiles(self.root, LIMIT) as files:
            result = self.tools(files)["read_file"].execute({"path": "e"})
            self.assertEqual(result, ToolResult("（文件 e 是空的）"))

    def test_a_failure_becomes_the_tools_output(self) -> None:
        with ProjectFiles(self.root, LIMIT) as files:
            result = self.tools(files)["read_file"].execute({"path": "reports"})
            self.assertTrue(result.is_error)
            self.assertIn("list_files", result.content)
        self.assertIn(CLOSED, self.tools(files)["list_files"].execute({"path": "."}).content)


# Row id: why no check stands for it.
CANNOT_BE_SET_UP_HERE: dict[str, str] = {}


class TheTable(unittest.TestCase):
    def test_every_row_of_the_fixture_has_a_check_or_a_reason(self) -> None:
        lines = (HERE / "fixtures/project_files.jsonl").read_text().splitlines()
        ids = {json.loads(line)["id"] for line in lines}
        cases = [
            case for case in globals().values() if isinstance(case, type) and issubclass(case, InProject)
        ]
        names = [name for case in cases for name in vars(case) if name.startswith("test_")]
        found = {mark for name in names for mark in re.findall(r"_([A-Z]\d\d)(?=_)", name)}
        self.assertEqual(ids - found - set(CANNOT_BE_SET_UP_HERE), set())
        self.assertEqual(len(ids), 74)


if __name__ == "__main__":
    raise SystemExit(harness.main())
