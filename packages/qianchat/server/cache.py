"""The folder that downloads and builds are kept in, and its lock."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...pi_ai import MiniPiError


def cache_dir() -> Path:
    """MINI_PI_CACHE, else mini-pi under XDG_CACHE_HOME (only if absolute, as XDG asks) or ~/.cache.

    Raises MiniPiError where that names no folder of anybody.
    """
    own = os.environ.get("MINI_PI_CACHE")
    if own:
        return expanded(own, "MINI_PI_CACHE").absolute()
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if shared.is_absolute():
        return shared / "mini-pi"
    try:
        return Path.home() / ".cache" / "mini-pi"
    except RuntimeError:
        raise MiniPiError(
            "不知道主目录在哪里（没有 HOME）。请用环境变量 MINI_PI_CACHE 指定缓存目录。"
        ) from None


def expanded(path: str | Path, setting: str) -> Path:
    """path with its ~ or ~user replaced. Raises MiniPiError that names the setting where there is no such user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise MiniPiError(f"{setting} 的 {path} 里没有这个用户的主目录。请写出完整的路径。") from None


@contextmanager
def locked(cache: Path) -> Iterator[None]:
    """Hold the cache's lock, so that one process installs at a time; the system drops it with us."""
    try:
        import fcntl
    except ImportError:
        raise MiniPiError("本机 Qwen 需要 Linux 或 macOS；在 Windows 上请在 WSL 里运行。") from None
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "install.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("另一个进程正在这个缓存目录里安装，等它完成……", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def log_file(cache: Path, name: str) -> Path:
    """An empty log in the cache's log folder; of a cache that is read-only, one among the temporary
    files. Raises OSError where there is no cache and none can be made."""
    log = cache / "log" / name
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        log.touch()
    except OSError:
        if not cache.is_dir():
            raise
        descriptor, temporary = tempfile.mkstemp(f"-{name}", "mini-pi-")
        os.close(descriptor)
        log = Path(temporary)
    return log


def shown(log: Path) -> str:
    """Where a log is, as an error tells it."""
    return f"缓存目录的 log/{log.name}" if log.parent.name == "log" else str(log)


def require_space(folder: Path, size: int, purpose: str) -> None:
    """Raise MiniPiError when fewer than size bytes are free where folder lies."""
    free = shutil.disk_usage(folder).free
    if free < size:
        raise MiniPiError(
            f"磁盘空间不足：{purpose}需要 {megabytes(size)}，缓存目录所在的盘只剩 {megabytes(free)}。\n"
            "请腾出空间，或用环境变量 MINI_PI_CACHE 把缓存目录放到更大的盘上，然后重新运行。"
        )


def empty_folder(folder: Path) -> Path:
    """The same folder, empty: what an interrupted run left there is of no use to anyone."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def size_under(folder: Path) -> int:
    """Bytes in all files below folder, which may be changing while we look."""
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(directory, name)).st_size  # noqa: PTH118
            except FileNotFoundError:
                pass
    return total


def megabytes(size: int) -> str:
    """Decimal megabytes, as disks and downloads are measured."""
    return f"{size / 1e6:.0f} MB"
