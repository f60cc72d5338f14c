"""ProjectFiles: reading one directory on behalf of a model that makes up the paths.

How a path is read. It is relative to the root, "/" separates, "." and empty parts mean nothing, a "/" at the
end asks for a directory. The rest is taken literally, "~", "%2e", ":" and "\\" included: the file system
says whether there is such a name. Refused unasked: absolute paths, "..", and what cannot be printed (control
characters, bidi marks, lone surrogates). list_files leaves such names out: it prints nothing that is refused.

What is promised. The root is opened once; every path is walked from that descriptor, one part at a time, and
no link is followed: there is no moment between check and use that a racing process could win. Special files
are recognised without being opened; only regular UTF-8 files up to max_bytes are read.

What is not. Hard links and mounts inside the root belong to it, so a root that holds /proc shows the
environment of processes: never use "/". A file that is written during the read may come out torn.

Where it runs. Linux, where all of it is checked. macOS and the BSDs have the same calls, but nothing was run
there. Without O_PATH (macOS) a directory that may be entered but not listed cannot be walked through;
O_NOFOLLOW_ANY is left alone, XNU refuses it beside O_NOFOLLOW; NFC or NFD is up to the kernel, and a wrong
guess is answered with the names that are there. Windows has no dir_fd.
"""

from __future__ import annotations

import codecs
import errno
import heapq
import os
import re
import stat
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from ..pi_ai import MiniPiError, ToolError

MAX_ENTRIES, MAX_CHARACTERS = 200, 6000  # of one listing; a local model's window is 8192 tokens
HINT_ENTRIES = 20  # paths that are named when one is missing
CHUNK = 4096  # bytes per read: os.read allocates what it is asked for, and decoding up to five times that

# A platform without these flags has no dir_fd either, and __enter__ refuses to start. O_CLOEXEC: os.open sets it.
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_SCAN = getattr(os, "O_DIRECTORY", 0) | _NOFOLLOW
_WALK = _SCAN | getattr(os, "O_PATH", 0)
# If a FIFO or a terminal takes a file's place after the lstat: do not wait for it, do not adopt it.
_READ = _NOFOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_WINDOWS_SPELLING = re.compile(r"[A-Za-z]:|.*\\")

_LINK = "{path} 是符号链接，按规定不读取，无论它指向哪里。请用 list_files 查找实际的文件。"
_SPECIAL = "{path} 是特殊文件（管道、设备或套接字），不能读取。请换一个 list_files 列出的文件。"
_FILE = "{path} 是文件，不是目录。请用 read_file 读取 {path}（末尾不加 /）。"
_DENIED = "没有权限读取 {path}。请改读其他文件，或告诉用户检查它的权限。"
_NOT_UTF8 = "{path} 不是 UTF-8 文本（字节偏移 {offset}）：{guess}。请改读其他文件，或告诉用户转换成 UTF-8。"
_FAILED = "读取 {path} 时出错（{code}）：它正在变化，或暂时不可用。请稍后重试，或告诉用户。"
_FAILURES = {
    errno.ENOENT: "路径不存在：{path}（可能刚被移走或删除）。请用 list_files 重新查看。",
    errno.ENOTDIR: "{path} 途中的目录刚被换成了符号链接或文件。请用 list_files 重新查看。",
    **dict.fromkeys((errno.ELOOP, errno.EMLINK), _LINK),  # O_NOFOLLOW met a link: Linux and macOS, FreeBSD
    **dict.fromkeys((errno.ENXIO, errno.EOPNOTSUPP), _SPECIAL),  # open met a socket: Linux, macOS
    **dict.fromkeys((errno.EACCES, errno.EPERM), _DENIED),
}
# No such name, or none that could be: too long, or not in the file system's character set.
_MISSING = {errno.ENOENT, errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL}
_BEYOND = "按名称排在后面、因数量太多而截断的项"


class ProjectFiles:
    """The files below root (a directory, or a link to one), each up to max_bytes bytes.

    For one `with` block; from any number of threads, and in a forked child as well. Paths go in and texts
    come out as the module says; whatever is wrong with a path or a file is a ToolError, for the model.
    Raises TypeError or ValueError for a bad max_bytes and, on entry, MiniPiError for a bad root.
    """

    def __init__(self, root: str | bytes | os.PathLike[str] | os.PathLike[bytes], max_bytes: int) -> None:
        # At most one descriptor. pop() gives it to one closer only, and no lock can be held across a fork.
        self._held: list[int] = []
        self._used = False
        self._root = os.fspath(root)
        if isinstance(max_bytes, bool) or not isinstance(max_bytes, int):
            raise TypeError(f"max_bytes 必须是整数（字节数），例如 32 * 1024，而不是 {max_bytes!r}")
        if max_bytes < 1:
            raise ValueError(f"max_bytes 必须大于 0，而不是 {max_bytes}")
        self._max_bytes = max_bytes

    def __enter__(self) -> ProjectFiles:
        if self._used:
            raise RuntimeError("ProjectFiles 只能进入一次；请新建一个 ProjectFiles(root, max_bytes)")
        if not _NOFOLLOW or os.open not in os.supports_dir_fd or os.scandir not in os.supports_fd:
            raise MiniPiError("这个系统不支持安全的目录访问（dir_fd）。Windows 请在 WSL 中运行。")
        try:
            descriptor = os.open(self._root, _WALK & ~_NOFOLLOW)
            with _closed_on_error(descriptor):
                self._identity = os.stat(".", dir_fd=descriptor)
            self._held.append(descriptor)
        except (OSError, ValueError) as error:  # ValueError: the name cannot be one
            self.close()
            reason = f"打不开项目目录 {self._root!r}（{type(error).__name__}）。"
            raise MiniPiError(f"{reason}请检查它是否存在、是不是目录、有没有权限。") from error
        self._used = True
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the root. Calls under way in other threads end well; later ones get a ToolError."""
        self._used = True
        while self._held:
            os.close(self._held.pop())

    def __del__(self) -> None:
        if getattr(self, "_held", None):
            warnings.warn(f"未关闭的 ProjectFiles：{self._root!r}", ResourceWarning, 2, source=self)
            self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("ProjectFiles 不能复制或序列化：它持有一个打开的目录")

    def list_files(self, path: str) -> str:
        """The direct children of a directory, one per line: sorted, relative to the root, directories with a
        "/" at the end. A last line in parentheses tells how many are not shown, and why. Raises ToolError."""
        parts, _ = _parse(path)
        shown = "/".join(parts) or "."
        with _told(shown), self._walk(parts, len(parts)) as directory:
            lines, left_out = _children(directory, parts, MAX_ENTRIES)
        if left_out:
            reasons = "、".join(f"{count} 个{reason}" for reason, count in sorted(left_out.items()))
            lines.append(f"（目录 {shown} 中还有没列出的：{reasons}）")
        return "\n".join(lines) or f"（目录 {shown} 是空的）"

    def read_file(self, path: str) -> str:
        """The text of a regular UTF-8 file, line ends as they are, "" for an empty one. A byte order mark is
        dropped: it tells how the file is encoded and is no part of what it says. Raises ToolError."""
        parts, as_directory = _parse(path)
        parts = parts or ["."]
        shown = "/".join(parts)
        with _told(shown), self._walk(parts, len(parts) - 1) as directory:
            mode = _look(directory, parts, len(parts)).st_mode
            if stat.S_ISDIR(mode):
                raise ToolError(f"{shown} 是目录，不是文件。请用 list_files 查看它里面有什么。")
            if not stat.S_ISREG(mode):
                raise ToolError(_SPECIAL.format(path=shown))
            if as_directory:
                raise ToolError(_FILE.format(path=shown))
            descriptor = os.open(parts[-1], _READ, dir_fd=directory)
            try:
                return self._text(descriptor, shown)
            finally:
                os.close(descriptor)

    @contextmanager
    def _walk(self, parts: Sequence[str], depth: int) -> Iterator[int]:
        """A descriptor, this call's own, of the directory that the first depth parts lead to."""
        current = self._open_root()
        try:
            for step in range(1, depth + 1):
                mode = _look(current, parts, step).st_mode
                if not stat.S_ISDIR(mode):
                    text = _FILE if stat.S_ISREG(mode) else _SPECIAL
                    raise ToolError(text.format(path="/".join(parts[:step])))
                parent, current = current, os.open(parts[step - 1], _WALK, dir_fd=current)
                os.close(parent)
            yield current
        finally:
            os.close(current)

    def _open_root(self) -> int:
        """Open the root again, for one call. Another thread may close ours at any moment and its number be
        given away, so what was opened has to be the directory of __enter__."""
        closed = ToolError("项目文件没有打开，或已经关闭。请告诉用户：须在 with ProjectFiles(…) 之内使用。")
        try:
            descriptor = os.open(".", _WALK, dir_fd=self._held[0])
        except (IndexError, OSError):
            if self._held:
                raise
            raise closed from None
        with _closed_on_error(descriptor):
            if not os.path.samestat(os.fstat(descriptor), self._identity):
                raise closed
        return descriptor

    def _text(self, descriptor: int, shown: str) -> str:
        """Read and decode chunk by chunk, so that a file's bytes and its text are never both held whole."""
        status = os.fstat(descriptor)  # of what was opened, whatever lies under its name by now
        if not stat.S_ISREG(status.st_mode):
            raise ToolError(_SPECIAL.format(path=shown))
        limit, size = self._max_bytes, status.st_size
        decoder = codecs.getincrementaldecoder("utf-8")()
        text, total = "", 0
        while size <= limit:  # st_size can only refuse: it is 0 in /proc, and too small in a growing file
            chunk = os.read(descriptor, min(CHUNK, limit + 1 - total))
            total += len(chunk)
            if total > limit:
                break
            try:
                text += decoder.decode(chunk, not chunk)
                if (nul := chunk.find(0)) >= 0:
                    raise UnicodeDecodeError("utf-8", chunk, nul, nul + 1, "NUL")
            except UnicodeDecodeError as error:
                offset = total - len(error.object) + error.start
                utf16 = offset == 0 and error.object[0] in (0xFE, 0xFF)
                guess = "像是 UTF-16" if utf16 else "是二进制文件，或 GBK、UTF-16 等编码"
                raise ToolError(_NOT_UTF8.format(path=shown, offset=offset, guess=guess)) from None
            if not chunk:
                return text.removeprefix("\ufeff")
        raise ToolError(
            f"{shown} 太大：{max(size, total)} 字节，上限是 {limit} 字节。请改读更小的文件，或告诉用户。"
        )


def _parse(path: str) -> tuple[list[str], bool]:
    """The parts of a path, and whether its end asks for a directory. Nothing is asked of the system."""
    if not isinstance(path, str) or not path:
        raise ToolError("path 必须是非空字符串；项目根目录用 .")
    if path.startswith("/"):
        raise ToolError(f"不接受绝对路径：{_shown(path)}。请写相对于项目根目录的路径；根目录用 .")
    if _UNPRINTABLE.search(path):
        raise ToolError(f"路径含有控制字符或无效字符：{_shown(path)}。请原样使用 list_files 返回的路径。")
    parts = path.split("/")
    if ".." in parts:
        raise ToolError(f"路径不能包含 ..：{_shown(path)}。请从项目根目录写起；根目录用 .")
    return [part for part in parts if part not in ("", ".")], parts[-1] in ("", ".")


def _shown(path: str) -> str:
    """The path in an error: what cannot be printed is escaped, and an endless one cut."""
    path = path if len(path) <= MAX_CHARACTERS else path[:200] + "…"
    return _UNPRINTABLE.sub(lambda found: found.group().encode("unicode_escape").decode(), path)


@contextmanager
def _closed_on_error(descriptor: int) -> Iterator[None]:
    """Ctrl-C too: a descriptor that nobody has yet would stay open for good."""
    try:
        yield
    except BaseException:
        os.close(descriptor)
        raise


@contextmanager
def _told(shown: str) -> Iterator[None]:
    """Turn the system's errors into sentences for the model."""
    try:
        yield
    except OSError as error:
        text = _FAILURES.get(error.errno or 0, _FAILED)
        code = errno.errorcode.get(error.errno or 0, error.errno)
        raise ToolError(text.format(path=shown, code=code)) from error


def _look(directory: int, parts: Sequence[str], step: int) -> os.stat_result:
    """lstat part number step inside directory. ToolError: it is a link, or it does not exist."""
    try:
        status = os.stat(parts[step - 1], dir_fd=directory, follow_symlinks=False)
    except (OSError, UnicodeEncodeError) as error:  # the latter where the locale is not UTF-8
        if isinstance(error, OSError) and error.errno not in _MISSING:
            raise
        raise ToolError(_missing(directory, parts, step)) from None
    if stat.S_ISLNK(status.st_mode):
        raise ToolError(_LINK.format(path="/".join(parts[:step])))
    return status


def _missing(directory: int, parts: Sequence[str], step: int) -> str:
    """Say what is there instead: that took a real Qwen from 1 right file in 15 to 15 of 15."""
    path, above = "/".join(parts), parts[: step - 1]
    text = f"路径不存在：{_shown(path)}。"
    if _WINDOWS_SPELLING.match(path):
        text += "路径只用 / 分隔，相对于项目根目录；不接受 Windows 的绝对路径。"
    try:
        there, left_out = _children(directory, above, HINT_ENTRIES)
    except OSError:
        return f"{text}请用 list_files 查看有哪些文件。"
    more = f"，还有 {left_out[_BEYOND]} 项，请用 list_files 查看" if left_out[_BEYOND] else ""
    found = f"有：{'、'.join(there)}{more}" if there else "没有可以读取的文件。请用 list_files 查看其他目录。"
    return f"{text}目录 {'/'.join(above) or '.'} 中{found}"


def _children(directory: int, above: Sequence[str], most: int) -> tuple[list[str], Counter[str]]:
    """The first direct children as printed, and the number of others by reason. The directory is opened
    afresh: a reading position shared with another process would lose entries."""
    left_out: Counter[str] = Counter()
    descriptor = os.open(".", _SCAN, dir_fd=directory)
    try:
        with os.scandir(descriptor) as entries:
            names = heapq.nsmallest(most, _printed(entries, left_out))
    finally:
        os.close(descriptor)
    lines = ["/".join([*above, name]) for name in names]
    while len(lines) > 1 and sum(map(len, lines)) > MAX_CHARACTERS:
        lines.pop()
    left_out[_BEYOND] -= len(lines)
    return lines, +left_out


def _printed(entries: Iterable[os.DirEntry[str]], left_out: Counter[str]) -> Iterator[str]:
    """The names to show. The rest are counted by reason in left_out, and those shown as _BEYOND."""
    for entry in entries:
        try:
            if _UNPRINTABLE.search(entry.name):
                reason = "名称无法显示的项"
            elif entry.is_symlink():
                reason = "符号链接"
            elif entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False):
                reason = _BEYOND
                yield entry.name + ("/" if entry.is_dir(follow_symlinks=False) else "")
            else:
                reason = "特殊文件（管道、设备或套接字）"
        except OSError:
            reason = "类型无法判断的项"
        left_out[reason] += 1
