"""The long runs over project files: races, leaks, threads, 100,000 entries. About half a minute."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
import tracemalloc
from typing import Any

from checks.pi_coding_agent.project_files import (
    LIMIT,
    SECRET,
    InProject,
    descriptors,
    in_threads,
    swap_and_read,
    whole,
)
from checks.support import harness
from checks.support.harness import table
from packages.pi_ai import ToolError
from packages.pi_coding_agent import ProjectFiles

READS = 200_000


@table(
    [
        ("the_file_is_swapped", "a.txt", "outside/secret.txt", "a.txt", "alpha"),
        ("the_directory_is_swapped", "reports/deep", "outside", "reports/deep/leaf.txt", "leaf"),
        ("the_parent_is_swapped", "reports", "outside", "reports/deep/leaf.txt", "leaf"),
    ]
)
class The_secret_never_appears_while(InProject):  # noqa: N801
    """Beside the reader, a process exchanges one part of the path for a link to the secret's place."""

    seconds = 60

    def row(self, name: str, target: str, path: str, right: str) -> None:
        (self.top / "outside/deep").mkdir()
        for trap in ("leaf.txt", "deep/leaf.txt"):
            (self.top / "outside" / trap).write_text(SECRET)
        print(swap_and_read(self, name, target, path, right, READS // 3 + 1), flush=True)


class Endurance(InProject):
    seconds = 60

    def test_10_000_failing_calls_leak_no_descriptor(self) -> None:
        os.mkfifo(self.root / "pipe")
        (self.root / "leak").symlink_to("a.txt")
        (self.root / "gbk").write_bytes(b"\xc8\xd5")
        (self.root / "large").write_bytes(b"x" * (LIMIT + 1))
        bad = ["/x", "../x", "\0", "no", "reports/no", "a.txt/x", "reports", "leak", "leak/x", "pipe", "gbk"]
        pick = random.Random(1)
        with ProjectFiles(self.root, LIMIT) as files:
            before = descriptors()
            for _ in range(10_000):
                self.assertRaises(ToolError, files.read_file, pick.choice([*bad, "large"]))
            self.assertEqual(descriptors(), before)

    def test_8_threads_list_and_read_at_once_and_all_is_whole(self) -> None:
        with ProjectFiles(self.root, LIMIT) as files:
            self.assertEqual(in_threads(8, 3000, lambda: whole(files)), [True] * 24_000)

    def test_calls_that_race_with_close_end_whole_or_refused(self) -> None:
        """The numbers that close() gives back are taken at once by descriptors of another directory."""
        (self.top / "outside/a.txt").write_text(SECRET)
        before = descriptors()
        for _ in range(300):
            files = ProjectFiles(self.root, LIMIT).__enter__()
            others: list[int] = []

            def closing(files: ProjectFiles = files, others: list[int] = others) -> None:
                time.sleep(0.0005)
                files.close()
                others.extend(os.open(self.top / "outside", os.O_RDONLY) for _ in range(3))

            def outcome(files: ProjectFiles = files) -> bool:
                try:
                    return files.read_file("a.txt") == "alpha"
                except ToolError:
                    return True

            closer = threading.Thread(target=closing)
            closer.start()
            self.assertEqual(in_threads(3, 20, outcome), [True] * 60)
            closer.join()
            for descriptor in others:
                os.close(descriptor)
        self.assertEqual(descriptors(), before)

    def test_100_000_entries_are_listed_within_a_second_and_50_megabytes(self) -> None:
        folder = os.open(self.root / "empty", os.O_RDONLY)
        for number in range(100_000):
            os.close(os.open(f"{number * 7919 % 100_000:05}", os.O_CREAT, dir_fd=folder))
        os.close(folder)
        with ProjectFiles(self.root, LIMIT) as files:
            files.list_files("empty")
            start = time.process_time()  # another process's load is not ours
            text = files.list_files("empty")
            seconds = time.process_time() - start
            tracemalloc.start()
            try:
                files.list_files("empty")
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
        print(f"100,000 entries: {seconds:.2f} s, {peak / 1e6:.2f} MB", flush=True)
        *lines, last = text.split("\n")
        self.assertEqual(lines, [f"empty/{number:05}" for number in range(200)])
        self.assertIn("99800 个", last)
        self.assertLess(seconds, 1)
        self.assertLess(peak, 50_000_000)

    def test_without_O_PATH_all_checks_of_project_files_hold_as_well(self) -> None:
        """macOS has none; the walk then opens directories for reading."""
        module = "checks.pi_coding_agent.project_files"
        script = f"import os, runpy; del os.O_PATH; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
        done = subprocess.run([sys.executable, "-c", script], stdout=-1, stderr=-2, errors="replace")
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_random_paths_are_read_or_refused_and_nothing_else(self) -> None:
        seed = int(os.environ.get("SEED", "20260906"))
        print(f"SEED={seed}", flush=True)
        pick = random.Random(seed)
        pieces = [
            "a.txt",
            "reports",
            "daily.json",
            "deep",
            "..",
            ".",
            "",
            "/",
            "\\",
            "C:",
            "~",
            "\0",
            "\n",
            " ",
        ]
        pieces += ["\ud800", "\udcff", "\u202e", "日报", "%2e", "leak", "pipe", "x" * 300, "😀", "*", "$HOME"]
        os.mkfifo(self.root / "pipe")
        (self.root / "leak").symlink_to("../outside")
        with ProjectFiles(self.root, LIMIT) as files:
            before = descriptors()
            for _ in range(50_000):
                path = pick.choice(["/", "/", ""]).join(pick.choices(pieces, k=pick.randint(0, 5)))
                for method in (files.read_file, files.list_files):
                    self.answered(method, path)
            self.assertEqual(descriptors(), before)

    def answered(self, method: Any, path: str) -> None:
        try:
            text = method(path)
        except ToolError as error:
            text = str(error)
        self.assertNotIn(SECRET, text)
        self.assertNotIn(str(self.top), text)
        text.encode()


if __name__ == "__main__":
    raise SystemExit(harness.main())
