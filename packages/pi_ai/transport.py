"""One POST over HTTP/1.1: a deadline for all of it, a cap on the answer, a connection kept per thread.

urllib finds the environment's proxies. The exchange is done here, since urllib closes its connection each
time, waits anew for every byte, and has an e-mail parser take half of a turn's CPU time and of a cold
start; what only some requests need is imported when they do. Nothing follows redirects. The name lookup
alone can outlast the deadline: it cannot be interrupted.
"""

from __future__ import annotations

import binascii
import codecs
import contextlib
import itertools
import os
import re
import socket
import threading
import time
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit

from .errors import MiniPiError, ModelRequestError, ProtocolError
from .reading import refusal, strict_json

if TYPE_CHECKING:
    import ssl

_LOG = "请查看模型服务器的日志后重试。"
_KEY, _LATER = "请检查 QWEN_API_KEY。", "请稍后再试，或调大 timeout。"
_ADVICE = {401: _KEY, 403: _KEY, 404: "请检查 QWEN_BASE_URL 和模型名。", 429: _LATER, 503: _LATER}
_START = "server 启动了吗？请启动它，或加上 --local-qwen 使用本地模型，或把 QWEN_BASE_URL 指向已有的服务器。"
_FAILURES = (OSError, EOFError, OverflowError, ValueError)


class Transport:
    """POSTs to base_url's /v1/responses. Settings and errors are those of ResponsesClient."""

    def __init__(self, base_url: str, api_key: str | None, timeout: float, max_bytes: int) -> None:
        self._url, is_local = _endpoint(base_url)
        if api_key and not re.fullmatch(r"[!-~]+", api_key):
            raise MiniPiError("api_key 只能有可见的 ASCII 字符，不能有空格和换行。请检查 QWEN_API_KEY。")
        if not 0 < timeout <= 1e9:
            raise MiniPiError(f"timeout 必须是正的秒数，收到 {timeout!r}。请改正后重试。")
        self.request = f"POST {self._url}"
        self._key, self._timeout, self._max_bytes = api_key, timeout, max_bytes
        self._headers = {"Host": urlsplit(self._url).netloc, "User-Agent": "mini_pi"}
        self._headers |= {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._is_local = is_local
        self._idle = threading.local()  # a connection in use is out of reach: broken off, it is dropped
        self._tls: ssl.SSLContext | None = None  # one for all: making it takes longer than a turn

    def error(
        self, what: str, advice: str, body: object = None, status: int | None = None
    ) -> ModelRequestError:
        """An error that says what was asked of whom, what the server said (body), and what to do."""
        if body is None:
            return ModelRequestError(f"{self.request} {what}。{advice}", status)
        return refusal(f"{self.request} {what}", body, advice, status, self._key)

    def post(self, body: bytearray) -> Generator[bytes]:
        """Yield the answer's body in UTF-8 as it comes. Leaving early, by close(), drops the connection."""
        deadline = time.monotonic() + self._timeout
        for attempt in itertools.count():
            answer: _Answer = self._try(self._exchange, body, deadline)
            try:
                pieces = answer.pieces(self._max_bytes)
                while 200 <= answer.status < 300:
                    piece = self._try(next, pieces, None)
                    if piece is None:
                        return
                    yield piece
                refused = self._refusal(answer, pieces)
            finally:
                if answer.whole and answer.keeps:
                    self._idle.connection = answer.connection
                else:
                    answer.connection.close()
            wait = max(_retry_after(answer.headers.get("retry-after", "")), min(2**attempt / 2, 8))
            if answer.status not in (429, 503) or wait >= deadline - time.monotonic():
                raise refused
            time.sleep(wait)

    def _exchange(self, body: bytearray, deadline: float) -> _Answer:
        kept: _Connection | None = getattr(self._idle, "connection", None)
        self._idle.connection = None
        if kept is not None and kept.is_quiet():
            with contextlib.suppress(ConnectionError):
                return kept.exchange(body, deadline)
            if kept.answered:
                raise EOFError
        proxy = None if self._is_local else _proxy(self._url)
        if self._url.startswith("https:") and self._tls is None:
            from ssl import create_default_context

            self._tls = create_default_context()
        fresh = _Connection(urlsplit(self._url), self._headers, proxy, self._tls, deadline)
        return fresh.exchange(body, deadline)

    def _refusal(self, answer: _Answer, pieces: Iterator[bytes]) -> ModelRequestError:
        text = b""
        with contextlib.suppress(*_FAILURES):  # the status is known in any case
            while len(text) < 65536 and (piece := next(pieces, None)) is not None:
                text += piece
        body: object = text.decode("utf-8", "replace")
        with contextlib.suppress(ValueError, ProtocolError):
            body = strict_json(str(body))
        advice = _ADVICE.get(answer.status, _LOG)
        if 300 <= answer.status < 400:
            advice = "不跟随重定向，请把 QWEN_BASE_URL 改成最终的地址。"
            body = answer.headers.get("location", body)  # what the server says, so the key is taken out
        return self.error(f"返回 HTTP {answer.status}", advice, body, answer.status)

    def _try(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """step(*arguments), with what the standard library raises turned into an error that helps."""
        try:
            return step(*arguments)
        except _FAILURES as failure:
            what, advice = _cause(failure)
            if isinstance(failure, TimeoutError):
                what += f"（timeout={self._timeout:g} 秒）"
            raise self.error(what, advice, getattr(failure, "strerror", None)) from None


def _cause(failure: Exception) -> tuple[str, str]:
    """What went wrong, and what to do."""
    from ssl import SSLCertVerificationError

    causes: tuple[tuple[type[Exception], str, str], ...] = (
        (TimeoutError, "超时，没有收完响应", "请检查服务器是否卡住，或调大 timeout。"),
        (ConnectionRefusedError, "无法连接", _START),
        (ConnectionError, "没有收到响应，连接就断开了", _LOG),
        (SSLCertVerificationError, "的 TLS 证书不可信", "请换用可信的证书，或用 SSL_CERT_FILE 指定它的 CA。"),
        (OSError, "网络出错", "请检查 QWEN_BASE_URL（主机、端口、http 还是 https）、代理设置和网络。"),
        (EOFError, "的响应不完整", _LOG),
        (OverflowError, "的响应太大", "请检查服务器，或调大 max_response_bytes。"),
        (Exception, "收到的不是 HTTP 响应，或它的压缩、编码有误", "请检查 QWEN_BASE_URL 的端口，以及代理。"),
    )
    return next((what, advice) for kind, what, advice in causes if isinstance(failure, kind))


def _endpoint(base_url: str) -> tuple[str, bool]:
    """Where to post to, and whether that is this machine. The error shows no URL: it may hold a password."""
    try:
        parts = urlsplit(base_url)
        valid = bool(parts.hostname) and parts.scheme in ("http", "https") and parts.port != 0
    except (ValueError, TypeError, AttributeError):
        valid = False
    if not valid or re.search(r"[^!-~]|[@?#]", base_url):
        raise MiniPiError(
            "base_url 应该像 http://127.0.0.1:8021 或 https://主机/v1：以 http:// 或 https:// 开头，"
            "只有可见的 ASCII 字符，不带用户名、密码、? 和 #。请检查 QWEN_BASE_URL。"
        )
    path = re.sub(r"(/+v1)?/*$", "", parts.path)
    is_local = re.fullmatch(r"127(\.\d+){1,3}|::1|(.*\.)?localhost", parts.hostname or "") is not None
    return f"{parts.scheme}://{parts.netloc}{path}/v1/responses", is_local


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _retry_after(value: str) -> float:
    """Seconds that a Retry-After header asks for, as number or date; 0 for nonsense."""
    if re.fullmatch(r"[0-9]*(\.[0-9]+)?", value):
        return float(value or 0)
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(value).timestamp() - time.time()
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0


def _proxy(url: str) -> SplitResult | None:
    """The proxy that the environment names for this URL. Raises OSError for one that is no HTTP proxy."""
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    named = None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
    if not named:
        return None
    proxy = urlsplit(named if "://" in named else f"http://{named}")
    if proxy.scheme not in ("http", "https") or not proxy.hostname:
        raise OSError(0, "代理只能是 HTTP 代理")
    return proxy


def _login(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {binascii.b2a_base64(pair.encode(), newline=False).decode()}"}


class _Connection:
    """A socket whose every wait ends with the deadline of the exchange that it is in."""

    def __init__(
        self,
        url: SplitResult,
        headers: dict[str, str],
        proxy: SplitResult | None,
        tls: ssl.SSLContext | None,
        deadline: float,
    ) -> None:
        self.deadline, self.answered, self.unread, self._process = deadline, False, b"", os.getpid()
        way, login = proxy or url, _login(proxy) if proxy else {}
        port = way.port or (443 if tls and not proxy else 80)
        self._socket = socket.create_connection((way.hostname, port), _left(deadline))
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if proxy and tls:
                self._send(_head(f"CONNECT {url.netloc}{'' if url.port else ':443'}", login) + b"\r\n")
                if _Answer(self).status != 200:
                    raise OSError(0, "代理拒绝了连接")
            if tls:
                self._socket.settimeout(_left(deadline))
                self._socket = tls.wrap_socket(self._socket, server_hostname=url.hostname)
        except BaseException:
            self.close()
            raise
        target = url.geturl() if proxy and not tls else url.path
        self._head = _head(f"POST {target}", headers if tls else headers | login)

    def close(self) -> None:
        self._socket.close()

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # when it could not be opened
            self.close()

    def is_quiet(self) -> bool:
        """Whether nothing has come since the last answer, not even its end; False in a forked process."""
        try:
            self._socket.settimeout(0)
            socket.socket.recv(self._socket, 1, socket.MSG_PEEK)  # SSLSocket's own takes no flags
        except BlockingIOError:
            return self._process == os.getpid() and not self.unread
        except OSError:
            pass
        return False

    def exchange(self, body: bytearray, deadline: float) -> _Answer:
        self.deadline, self.answered = deadline, False
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the answer may say why
                self._send(b"%bContent-Length: %d\r\n\r\n" % (self._head, len(body)))
                self._send(body)
            return _Answer(self)
        except BaseException:
            self.close()
            raise

    def _send(self, data: bytes | bytearray) -> None:
        sent = 0
        with memoryview(data) as view:  # released at once, or the buffer could not grow after an error
            while sent < len(view):
                self._socket.settimeout(_left(self.deadline))
                sent += self._socket.send(view[sent:])

    def receive(self, most: int = 65536) -> bytes:
        """Some bytes, as soon as there are any, and no more than most; b"" at the end."""
        data = self.unread
        if not data:
            self._socket.settimeout(_left(self.deadline))
            data = self._socket.recv(65536)
            self.answered = self.answered or bool(data)
        self.unread = data[most:]
        return data[:most]

    def line(self) -> bytes:
        line = b""
        while b"\n" not in line:
            data = self.receive()
            if not data:
                raise EOFError if self.answered else ConnectionResetError
            line += data
            if len(line) > 200_000:
                raise ValueError
        line, _, self.unread = line.partition(b"\n")
        return line.rstrip(b"\r")


def _head(start: str, headers: dict[str, str]) -> bytes:
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    return f"{start} HTTP/1.1\r\n{''.join(lines)}".encode("ascii")


class _Answer:
    """An answer: its head is read, its body comes in pieces; `whole` once the end was reached."""

    def __init__(self, connection: _Connection) -> None:
        self.connection, self.whole, self.status = connection, False, 100
        while self.status in (100, 102, 103):  # not yet the answer
            start = re.fullmatch(rb"HTTP/1\.([01]) +(\d{3})( .*)?", connection.line())
            if start is None:
                raise ValueError
            version, self.status = start[1], int(start[2])
            lines = list(itertools.islice(iter(connection.line, b""), 100))
        pairs = (line.decode("latin-1").partition(":") for line in lines)
        self.headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        length = "0" if self.status in (204, 304) else self.headers.get("content-length", "")
        if len(lines) == 100 or not re.fullmatch("[0-9]*", length):
            raise ValueError
        self._chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        self._length = int(length) if length else None
        self.keeps = version == b"1" and "close" not in self.headers.get("connection", "").lower()

    def pieces(self, limit: int) -> Iterator[bytes]:
        """The body as it comes: decompressed, in UTF-8, within the limit, its end checked."""
        pieces = _capped(self._received(), limit)
        encoding = self.headers.get("content-encoding", "identity").lower()
        if encoding in ("gzip", "x-gzip", "deflate"):
            pieces = _capped(_inflated(pieces), limit)
        elif encoding not in ("identity", ""):
            raise ValueError
        charset = re.search(r"charset=[\"']?([\w-]+)", self.headers.get("content-type", ""), re.IGNORECASE)
        if charset and charset[1].lower() != "utf-8":
            with contextlib.suppress(LookupError):  # an unknown charset: JSON is UTF-8
                b" ".decode(charset[1], "ignore")
                pieces = (text.encode() for text in codecs.iterdecode(pieces, charset[1]))
        yield from pieces
        self.whole = True

    def _received(self) -> Iterator[bytes]:
        if not self._chunked:
            yield from self._next(self._length)
            return
        size = 1
        while size > 0:
            digits = re.match(rb"[0-9a-fA-F]{1,16}(?=[ ;]|$)", self.connection.line())
            if digits is None:
                raise ValueError
            size = int(digits[0], 16)
            yield from self._next(size)
            while self.connection.line():
                pass  # trailers, behind the last chunk

    def _next(self, length: int | None) -> Iterator[bytes]:
        """length bytes, or all until the connection closes."""
        while length != 0 and (piece := self.connection.receive(length or 65536)):
            yield piece
            length = length and length - len(piece)
        if length:
            raise EOFError
        self.keeps = self.keeps and length is not None


def _inflated(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """gzip or zlib undone in small steps, so that a bomb is noticed before it fills the memory."""
    inflater = zlib.decompressobj(47)
    try:
        for piece in pieces:
            while piece and (not inflater.eof or piece.startswith(b"\x1f")):
                inflater = zlib.decompressobj(47) if inflater.eof else inflater  # gzip in several members
                yield inflater.decompress(piece, 65536)
                piece = inflater.unconsumed_tail or inflater.unused_data
        yield inflater.flush()
    except zlib.error:
        raise ValueError from None
    if not inflater.eof:
        raise EOFError


def _capped(pieces: Iterator[bytes], limit: int) -> Iterator[bytes]:
    for piece in pieces:
        limit -= len(piece)
        if limit < 0:
            raise OverflowError
        yield piece
