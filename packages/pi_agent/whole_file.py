"""Writing a file so that it holds the old bytes or the new ones, never half of either."""

from __future__ import annotations

import os
import stat


def write_whole(path: str | os.PathLike[str], text: str, mode: int | None = None) -> bytes:
    """Replace the file at path, or what a link there leads to, by text in UTF-8, and return its bytes.

    mode: permission bits; None: those of the old file, or what the umask leaves of a new one.
    Raises OSError, also for a directory, a device or a pipe, and ValueError for a name that no file can have.
    """
    import tempfile  # here: nobody needs it, or pathlib, to ask a question
    from pathlib import Path

    target = os.path.realpath(path)
    old = regular_file(target)
    if mode is None:
        umask = os.umask(0)
        os.umask(umask)
        mode = stat.S_IMODE(old.st_mode) if old else 0o666 & ~umask
    # A lone surrogate becomes \udXXX, which inside a JSON string is its very escape.
    content = text.encode("utf-8", "backslashreplace")
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=Path(target).parent, prefix=".mini_pi.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        Path(temporary).chmod(mode)
        Path(temporary).replace(target)
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
    return content


def regular_file(path: str | os.PathLike[str]) -> os.stat_result | None:
    """Its status, None where there is nothing. Raises OSError for what is there and is no regular file."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(0, "它是一个目录")
    if not stat.S_ISREG(status.st_mode):
        raise OSError(0, "它不是普通文件，而是设备、管道或套接字")
    return status
