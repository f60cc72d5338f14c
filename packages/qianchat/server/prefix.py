"""The state of the prompt's fixed beginning (instructions, the file tools, examples): computed once, kept in
the cache, restored at each start, so that the first answer does not wait for it."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

from ...pi_ai import JsonObject, MiniPiError
from .cache import require_space
from .port import request

_SECONDS = 600.0  # for the computing: 40 to 80 on two cores
_SPACE = 300_000_000  # about 30 KB a token
FLAG = "--slot-save-path"


def folder_flags(cache: Path, help_text: str) -> list[str]:
    """What llama-server has to be started with; nothing where it cannot, or the cache has and takes no states."""
    folder = cache / "prefix"
    if FLAG not in help_text:
        return []
    with suppress(OSError):
        folder.mkdir(exist_ok=True)
    return [FLAG, f"{folder}{os.sep}"] if folder.is_dir() else []


def state_name(model: str, template: bytes, program: Path, question: JsonObject) -> str:
    """The file for this model (its SHA-256), template, llama-server and beginning."""
    status = program.stat()
    build = f"{status.st_size} {status.st_mtime_ns}"
    key = json.dumps([model, build, question], sort_keys=True).encode() + template
    return f"{hashlib.sha256(key).hexdigest()[:32]}.state"


def prepare(port: int, cache: Path, name: str, question: JsonObject) -> None:
    """Restore the state in the slot, or compute it and keep it. Never raises for what goes wrong with it: the
    server is as good without, only slower at the first question."""
    folder = cache / "prefix"
    state = folder / name
    if _is_whole(state) and _slot(port, "restore", name) is not None:
        return
    if not os.access(folder, os.W_OK):  # nothing computed here could be kept
        return
    for leftover in _leftovers(folder):
        with suppress(OSError):
            leftover.unlink()
    began, partial = time.monotonic(), f"{name}.{os.getpid()}.partial"
    try:
        require_space(folder, _SPACE, "预先计算的状态")
        print("预先计算固定的提示（只在安装后做一次，约一分钟）……", file=sys.stderr, flush=True)
        if request("127.0.0.1", port, "POST", "/v1/responses", _SECONDS, json.dumps(question))[0] != 200:
            return
        saved = _slot(port, "save", partial)
        if saved is None or (folder / partial).stat().st_size != saved.get("n_written"):
            return
        digest = _digest(folder / partial)
        (folder / partial).replace(state)
        _stamp(state).write_text(digest, encoding="utf-8")
        print(f"已存入缓存，用了 {time.monotonic() - began:.0f} 秒。", file=sys.stderr, flush=True)
    except (
        OSError,
        HTTPException,
        MiniPiError,
    ) as error:  # a full disk, a read-only cache, a server that ended: which others will tell
        print(f"没有存下预先计算的状态（{error}），不影响使用。", file=sys.stderr, flush=True)
    finally:
        with suppress(OSError):
            (folder / partial).unlink(missing_ok=True)


def _leftovers(folder: Path) -> Iterator[Path]:
    """States of another model, template or program, and broken ones; what may still be written is left for an hour."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.suffix != ".partial" or time.time() - path.stat().st_mtime > 3600:
                yield path


def _slot(port: int, action: str, name: str) -> dict[str, Any] | None:
    """What llama-server says to it, None when it did not work."""
    body = json.dumps({"filename": name})
    try:
        status, _, said = request("127.0.0.1", port, "POST", f"/slots/0?action={action}", 60, body)
    except (OSError, HTTPException):
        return None
    return said if status == 200 and isinstance(said, dict) else None


def _stamp(state: Path) -> Path:
    return state.with_suffix(".sha256")


def _is_whole(state: Path) -> bool:
    try:
        return _stamp(state).read_bytes().decode("ascii", "replace") == _digest(state)
    except OSError:
        return False


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
