"""ProjectFiles: reading one directory on behalf of a model that makes up the paths.

How a path is read. It is relative to the root, "/" separates, "." and empty parts mean nothing, and a "/"
at the end asks for a directory. Everything else is taken literally, "~", "%2e", ":" and "\\" included: the
file system decides whether such a name exists. Refused before it is asked: absolute paths, "..", and
characters that cannot be printed (controls, line ends, bidi marks, lone surrogates). list_files leaves names
with those out, so it never prints a path that read_file refuses.

What is promised. The root is opened once; every path is walked from that descriptor, one part at a time, and
no link is ever followed, so there is no moment between a check and a use that a racing process could win.
Special files are recognised without being opened, and only regular UTF-8 files up to max_bytes are read.

What is not. A hard link or a mount inside the root is part of it, so a root that holds /proc shows the
environment of processes: do not use "/". A file that is rewritten during the read may come out torn.
Content is handed over as it is, also when it tries to talk the model into something.

Where it runs. Linux, where all of it is checked; macOS and the BSDs have the same calls, but nothing was run
there. They have no O_PATH, so a directory that may be searched but not read cannot be walked through.
O_NOFOLLOW_ANY is left alone: XNU refuses it beside O_NOFOLLOW. NFC and NFD names are the kernel's business.
Without dir_fd (Windows) it does not start.
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

MAX_ENTRIES = 200  # lines of one listing
MAX_CHARACTERS = 6000  # of one listing: the model's window is small
HINT_ENTRIES = 20  # paths named when one is missing
CHUNK = 64 * 1024  # bytes per read: os.read allocates all that it is asked for

# Where a platform lacks a flag, it lacks dir_fd too, and __enter__ refuses to start.
_DIRECTORY = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_ROOT = _DIRECTORY | getattr(os, "O_PATH", 0)
_STEP = _ROOT | _NOFOLLOW
_SCAN = _DIRECTORY | _NOFOLLOW
# Should a file be swapped for a FIFO or a terminal at the last moment: neither wait for it nor adopt it.
_READ = _NOFOLLOW | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)

_UNPRINTABLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_WINDOWS = re.compile(r"[A-Za-z]:|.*\\", re.DOTALL)

_LINK = "{path} 是符号链接，无论指向哪里都按规定不读取。请用 list_files 查找实际的文件。"
_SPECIAL = "{path} 不是普通文件（管道、设备或套接字），不能读取。请换一个 list_files 列出的文件。"
_FAILURES = {
    errno.ENOENT: "路径不存在：{path}（可能刚被移走或删除）。请用 list_files 重新查看。",
    errno.ELOOP: _LINK,
    errno.EMLINK: _LINK,
    errno.ENOTDIR: "{path} 途中的目录刚被换成了符号链接或文件，不能读取。请用 list_files 重新查看。",
    errno.ENXIO: _SPECIAL,
    errno.EOPNOTSUPP: _SPECIAL,
    errno.EACCES: "没有权限读取 {path}。请改读其他文件，或告诉用户检查它的权限。",
    errno.EPERM: "没有权限读取 {path}。请改读其他文件，或告诉用户检查它的权限。",
    errno.EMFILE: "程序打开的文件太多，暂时不能读取 {path}。请稍后重试，或告诉用户。",
    errno.ENFILE: "系统打开的文件太多，暂时不能读取 {path}。请稍后重试，或告诉用户。",
    errno.ESTALE: "{path} 在读取时发生了变化或暂时不可用。请用 list_files 重新查看。",
}
_FAILURE = "读取 {path} 时出错（{code}）。请稍后重试，或告诉用户这个文件暂时读不了。"
# No such name can exist there: too long, or not in the file system's character set.
_MISSING = {errno.ENOENT, errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL}


class ProjectFiles:
    """The files below root (a directory; a link to one is followed, once), each up to max_bytes bytes.

    Use it once, in a `with` block; from any number of threads, and in a forked child as well. Paths go in as
    the module says, texts come out; whatever is wrong with a path or a file is a ToolError for the model.
    TypeError, ValueError: root or max_bytes is unusable. MiniPiError: on entry, the root cannot be opened.
    """

    def __init__(self, root: str | bytes | os.PathLike[str] | os.PathLike[bytes], max_bytes: int) -> None:
        # At most one descriptor. pop() gives it to exactly one closer; a lock could be held during a fork.
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
            held = os.open(self._root, _ROOT)
            try:
                self._identity = os.stat(".", dir_fd=held)
            except BaseException:
                os.close(held)
                raise
        except (OSError, ValueError) as error:  # ValueError: a NUL or a lone surrogate in the name
            root = self._root if isinstance(self._root, str) else os.fsdecode(self._root)
            reason = error.strerror if isinstance(error, OSError) else "名称含有无效字符"
            raise MiniPiError(
                f"打不开项目目录 {_shown(root)}：{reason}。请给出一个存在且可读的目录。"
            ) from error
        self._held.append(held)
        self._used = True
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the root back. Calls under way in other threads finish; later ones get a ToolError."""
        self._used = True
        while self._held:
            os.close(self._held.pop())

    def __del__(self) -> None:
        if getattr(self, "_held", None):
            warnings.warn(
                f"ProjectFiles 没有关闭：{self._root!r}", ResourceWarning, source=self, stacklevel=2
            )
            self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("ProjectFiles 不能复制或序列化：它持有一个打开的目录")

    def list_files(self, path: str) -> str:
        """The direct children of a directory, one per line: sorted, relative to the root, directories with
        a "/" at the end. A last line in parentheses tells what is not shown, and why. ToolError."""
        parts, _ = _parse(path)
        shown = "/".join(parts) or "."
        with _told(shown), self._walk(parts, len(parts)) as directory:
            lines, left_out = _children(directory, parts, MAX_ENTRIES)
        if left_out:
            reasons = "、".join(f"{count} 个{reason}" for reason, count in left_out.items())
            lines.append(f"（目录 {shown} 中还有未列出的：{reasons}）")
        return "\n".join(lines) or f"（目录 {shown} 是空的）"

    def read_file(self, path: str) -> str:
        """The text of a regular UTF-8 file, line ends as they are, "" for an empty file. ToolError.

        A byte order mark is dropped: it says how the file is encoded and is no part of the text.
        """
        parts, as_directory = _parse(path)
        shown = "/".join(parts) or "."
        if not parts:
            raise ToolError("项目根目录 . 是目录，不是文件。请用 list_files 查看它里面有什么。")
        with _told(shown), self._walk(parts, len(parts) - 1) as directory:
            mode = _look(directory, parts, len(parts)).st_mode
            if stat.S_ISDIR(mode):
                raise ToolError(f"{shown} 是目录，不是文件。请用 list_files 查看它里面有什么。")
            if not stat.S_ISREG(mode):
                raise ToolError(_SPECIAL.format(path=shown))
            if as_directory:
                raise ToolError(f"{shown} 是文件，路径末尾不能有 /。请用 read_file 读取 {shown}")
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
                    where = "/".join(parts[:step])
                    if not stat.S_ISREG(mode):
                        raise ToolError(_SPECIAL.format(path=where))
                    raise ToolError(f"{where} 是文件，不是目录。请用 read_file 读取 {where}")
                parent, current = current, os.open(parts[step - 1], _STEP, dir_fd=current)
                os.close(parent)
            yield current
        finally:
            os.close(current)

    def _open_root(self) -> int:
        """The root again, on a descriptor of this call. Another thread may close ours at any moment and the
        number may be given away, so what was opened must be the directory of __enter__."""
        closed = ToolError("项目文件没有打开或已经关闭。请告诉用户：须在 with ProjectFiles(…) 之内使用。")
        try:
            descriptor = os.open(".", _STEP, dir_fd=self._held[0])
        except (IndexError, OSError) as error:
            if isinstance(error, IndexError) or not self._held:
                raise closed from None
            raise
        if not os.path.samestat(os.fstat(descriptor), self._identity):
            os.close(descriptor)
            raise closed
        return descriptor

    def _text(self, descriptor: int, shown: str) -> str:
        """Read and decode chunk by chunk: the bytes and the text of a large file are never both whole."""
        status = os.fstat(descriptor)  # of what was opened, whatever lies under its name by now
        if not stat.S_ISREG(status.st_mode):
            raise ToolError(_SPECIAL.format(path=shown))
        limit, size = self._max_bytes, status.st_size
        decoder = codecs.getincrementaldecoder("utf-8")()
        text, total = "", 0
        while size <= limit:  # st_size only refuses early: 0 in /proc, out of date in a growing file
            chunk = os.read(descriptor, min(CHUNK, limit + 1 - total))
            total += len(chunk)
            size = max(size, total)
            if total > limit:
                break
            try:
                text += decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                offset = total - len(error.object) + error.start
                utf16 = offset == 0 and error.object[error.start] in (0xFE, 0xFF)
                guess = "很可能是 UTF-16" if utf16 else "可能是 GBK 等其他编码，或者是二进制文件"
                advice = "请告诉用户把它转换成 UTF-8，或改读其他文件。"
                raise ToolError(f"{shown} 不是 UTF-8 文本（字节偏移 {offset}）：{guess}。{advice}") from None
            if (nul := chunk.find(0)) >= 0:
                offset = total - len(chunk) + nul
                raise ToolError(
                    f"{shown} 含有 NUL 字节（字节偏移 {offset}），是二进制文件或 UTF-16，不能当作文本读取。"
                    "请改读其他文件，或告诉用户把它转换成 UTF-8 文本。"
                )
            if not chunk:
                return text.removeprefix("\ufeff")
        raise ToolError(
            f"{shown} 太大：至少 {size} 字节，上限是 {limit} 字节。请改读更小的文件，或告诉用户。"
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


def _shown(text: str) -> str:
    """Text that is safe to print and to send: unprintable characters escaped, the length bounded."""
    text = text if len(text) <= MAX_CHARACTERS else text[:100] + "…"
    return _UNPRINTABLE.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


@contextmanager
def _told(shown: str) -> Iterator[None]:
    """Turn the system's errors into sentences for the model."""
    try:
        yield
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, str(error.errno))
        text = _FAILURES.get(error.errno or 0, _FAILURE)
        raise ToolError(text.format(path=_shown(shown), code=code)) from error


def _look(directory: int, parts: Sequence[str], step: int) -> os.stat_result:
    """lstat part number step inside directory. ToolError: it is a link, or it does not exist."""
    try:
        status = os.stat(parts[step - 1], dir_fd=directory, follow_symlinks=False)
    except (OSError, UnicodeEncodeError) as error:  # the latter where the locale's names are not UTF-8
        if isinstance(error, OSError) and error.errno not in _MISSING:
            raise
        raise ToolError(_missing(directory, parts, step)) from None
    if stat.S_ISLNK(status.st_mode):
        raise ToolError(_LINK.format(path="/".join(parts[:step])))
    return status


def _missing(directory: int, parts: Sequence[str], step: int) -> str:
    """Tell what is there instead: it took a real Qwen from 1 right file in 15 to 15 (design.md)."""
    path, above = "/".join(parts), "/".join(parts[: step - 1]) or "."
    text = f"路径不存在：{_shown(path)}。"
    if _WINDOWS.match(path):
        text += "路径只用 / 分隔，不接受 Windows 的绝对路径，须相对于项目根目录。"
    try:
        there, left_out = _children(directory, parts[: step - 1], HINT_ENTRIES)
    except OSError:
        return f"{text}请用 list_files 查看有哪些文件。"
    if not there:
        return f"{text}目录 {above} 中没有可以读取的文件。"
    more = f"，还有 {left_out[_BEYOND]} 项，请用 list_files 查看" if _BEYOND in left_out else ""
    return f"{text}目录 {above} 中有：{'、'.join(there)}{more}"


_BEYOND = "项，按名称排在后面"


def _children(directory: int, above: Sequence[str], most: int) -> tuple[list[str], Counter[str]]:
    """The first direct children in sorted order, as printed, and the number of others by reason.

    The scan opens the directory afresh: a position shared with another process would lose entries.
    """
    left_out: Counter[str] = Counter()
    descriptor = os.open(".", _SCAN, dir_fd=directory)
    try:
        with os.scandir(descriptor) as entries:
            names = heapq.nsmallest(most, _printed(entries, left_out))
    finally:
        os.close(descriptor)
    prefix = "".join(part + "/" for part in above)
    lines: list[str] = []
    room = MAX_CHARACTERS
    for name in names:
        room -= len(prefix) + len(name)
        if lines and room < 0:
            break
        lines.append(prefix + name)
    left_out[_BEYOND] -= len(lines)
    return lines, +left_out


def _printed(entries: Iterable[os.DirEntry[str]], left_out: Counter[str]) -> Iterator[str]:
    """The names that may be shown; the others are counted in left_out, the shown ones as _BEYOND."""
    for entry in entries:
        try:
            if _UNPRINTABLE.search(entry.name):
                left_out["名称含有无法显示的字符"] += 1
            elif entry.is_symlink():
                left_out["符号链接"] += 1
            elif entry.is_dir(follow_symlinks=False):
                left_out[_BEYOND] += 1
                yield entry.name + "/"
            elif entry.is_file(follow_symlinks=False):
                left_out[_BEYOND] += 1
                yield entry.name
            else:
                left_out["特殊文件（管道、设备或套接字）"] += 1
        except OSError:
            left_out["类型无法判断的项"] += 1
