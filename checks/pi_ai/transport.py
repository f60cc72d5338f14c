"""One POST against servers that misbehave, over real sockets on this machine."""

from __future__ import annotations

import contextlib
import email.utils
import gc
import gzip
import json
import os
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import tracemalloc
import unittest
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from checks.support import harness
from checks.support.harness import JsonObject, message, response
from checks.support.server import Raw, Reply, Request, ScriptedServer
from packages.pi_ai import ContextFullError, MiniPiError, ModelRequestError, ProtocolError, ResponsesClient

KEY = "sk-never-to-be-seen-%d-0123456789"
OK = response(message("好"))
BODY = json.dumps(OK).encode()
ASK = {"model": "m", "input": [{"role": "user", "content": "问"}]}
PROXY_NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


def head(*lines: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", "Content-Type: application/json", *lines, "", ""]).encode()


def client(server: ScriptedServer, **settings: Any) -> ResponsesClient:
    return ResponsesClient(**{"base_url": server.url, "timeout": 10, **settings})


def failure(check: unittest.TestCase, ask: Any, kind: type[MiniPiError] = ModelRequestError) -> MiniPiError:
    """The error, exactly of this kind; it says what to do, and shows the key nowhere, not even in frames."""
    with check.assertRaises(kind) as caught:
        ask()
    error = caught.exception
    check.assertIs(type(error), kind)
    check.assertIn("请", str(error))
    check.assertNotIn(KEY, "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error)))
    return error


@contextlib.contextmanager
def environment(**values: str) -> Iterator[None]:
    names = {name for base in PROXY_NAMES for name in (base, base.upper())}
    kept = {name: value for name, value in os.environ.items() if name not in names}
    with mock.patch.dict(os.environ, {**kept, **values}, clear=True):
        yield


def dripping(data: bytes) -> Raw:
    return Raw(*(part for byte in data for part in (bytes([byte]), 0.1)))


@harness.table(
    [
        ("says_nothing", Raw(5)),
        ("drips_its_head", dripping(head("X-A: " + "b" * 100))),
        ("drips_its_body", Raw(head("Content-Length: 100"), *(p for _ in range(99) for p in (b" ", 0.1)))),
        ("drips_its_chunks", Raw(head("Transfer-Encoding: chunked"), *(p for _ in range(99) for p in (b"1\r\n \r\n", 0.1)))),
        ("drips_its_gzip", Raw(head("Content-Encoding: gzip"), dripping(gzip.compress(os.urandom(99))).parts[0], 5)),
        ("drips_an_error_body", Raw(head("Content-Length: 99", status="500 No"), *(p for _ in range(99) for p in (b" ", 0.1)))),
        ("stops_in_its_head", Raw(b"HTTP/1.1 200 OK\r\nContent-", 5)),
        ("stops_in_its_body", Raw(head("Content-Length: 100"), b"{", 5)),
        ("stops_in_a_chunk", Raw(head("Transfer-Encoding: chunked"), b"ff\r\n{", 5)),
        ("sends_interim_answers", Raw(*(p for _ in range(99) for p in (b"HTTP/1.1 100 Continue\r\n\r\n", 0.1)))),
        ("asks_to_come_back_for_ever", Reply(503, {"Retry-After": "0"})),
    ]
)  # fmt: skip
class OneDeadlineForAllOfIt(unittest.TestCase):
    """0.4 s are 0.4 s, and never the time of one read."""

    def row(self, reply: Any) -> None:
        with ScriptedServer(reply, forever=True) as server:
            started = time.monotonic()
            error = failure(self, lambda: client(server, timeout=0.4).create(ASK))
            self.assertLess(time.monotonic() - started, 1.4)
            self.assertIn(f"POST {server.url}/v1/responses", str(error))


class Deadline(unittest.TestCase):
    def test_it_names_the_seconds_and_the_timeout(self) -> None:
        with ScriptedServer(Raw(5)) as server:
            error = failure(self, lambda: client(server, timeout=0.2).create(ASK))
        self.assertRegex(str(error), "超时.*timeout=0.2 秒")

    def test_one_that_is_over_at_once_is_a_timeout_too(self) -> None:
        with ScriptedServer() as server:
            error = failure(self, lambda: client(server, timeout=1e-9).create(ASK))
        self.assertIn("超时", str(error))

    def test_it_holds_while_sending_to_a_server_that_does_not_read(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            started = time.monotonic()
            big = {"input": [{"x": "y" * 16_000_000}]}
            failure(self, lambda: ResponsesClient(url, timeout=0.5).create(big))
        self.assertLess(time.monotonic() - started, 1.4)

    def test_it_holds_on_a_kept_connection(self) -> None:
        with ScriptedServer(OK, Raw(5)) as server:
            asker = client(server, timeout=0.5)
            asker.create(ASK)
            started = time.monotonic()
            failure(self, lambda: asker.create(ASK))
            self.assertLess(time.monotonic() - started, 1.5)
            self.assertEqual([request.connection for request in server.requests], [1, 1])

    def test_it_holds_in_a_tls_handshake(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            url = f"https://127.0.0.1:{listener.getsockname()[1]}"
            started = time.monotonic()
            failure(self, lambda: ResponsesClient(url, timeout=0.5).create(ASK))
        self.assertLess(time.monotonic() - started, 1.5)


def chunks(data: bytes, size: int = 7) -> bytes:
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return (
        b"".join(b"%x;ext=1\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
        + b"0\r\nX-Trailer: 1\r\n\r\n"
    )


LENGTH = f"Content-Length: {len(BODY)}"
PACKED = gzip.compress(BODY)
LATIN = BODY.replace(b"\\u597d", "é".encode("latin-1"))


@harness.table(
    [
        ("with_a_length", Raw(head(LENGTH), BODY)),
        ("until_it_closes", Raw(head(), BODY)),
        ("in_chunks", Raw(head("Transfer-Encoding: chunked"), chunks(BODY))),
        ("in_drips", Raw(head(LENGTH), *(p for b in BODY[:40] for p in (bytes([b]), 0.001)), BODY[40:])),
        ("with_http_1_0", Raw(head(LENGTH).replace(b"1.1", b"1.0"), BODY)),
        ("with_bare_newlines", Raw(head(LENGTH).replace(b"\r\n", b"\n"), BODY)),
        ("after_100_continue", Raw(b"HTTP/1.1 100 Continue\r\n\r\n", head(LENGTH), BODY)),
        ("after_early_hints", Raw(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", head(LENGTH), BODY)),
        ("after_104_and_102", Raw(b"HTTP/1.1 104 Upload\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n", head(LENGTH), BODY)),
        ("with_the_same_length_twice", Raw(head(LENGTH, LENGTH), BODY)),
        ("with_a_folded_header", Raw(head("X-A: b", " c", LENGTH), BODY)),
        ("with_201", Reply(201, body=OK)),
        ("with_gzip", Reply(200, {"Content-Encoding": "gzip"}, PACKED)),
        ("with_x_gzip_in_capitals", Reply(200, {"Content-Encoding": "X-GZIP"}, PACKED)),
        ("with_gzip_in_members", Reply(200, {"Content-Encoding": "gzip"}, gzip.compress(BODY[:9]) + gzip.compress(BODY[9:]))),
        ("with_gzip_in_members_in_chunks", Raw(head("Content-Encoding: gzip", "Transfer-Encoding: chunked"),
         chunks(gzip.compress(BODY[:9])).removesuffix(b"0\r\nX-Trailer: 1\r\n\r\n"), chunks(gzip.compress(BODY[9:])))),
        ("with_zeros_behind_its_gzip", Reply(200, {"Content-Encoding": "gzip"}, PACKED + b"\0" * 9)),
        ("with_deflate", Reply(200, {"Content-Encoding": "deflate"}, zlib.compress(BODY))),
        ("with_gzip_in_chunks", Raw(head("Content-Encoding: gzip", "Transfer-Encoding: chunked"), chunks(PACKED))),
        ("with_identity", Reply(200, {"Content-Encoding": "identity"}, BODY)),
        ("with_a_byte_order_mark", Reply(200, {}, b"\xef\xbb\xbf" + BODY)),
        ("with_blanks_around_it", Reply(200, {}, b"\r\n " + BODY + b"\n")),
        ("with_a_charset", Reply(200, {"Content-Type": 'application/json; charset="UTF-16"'}, BODY.decode().encode("utf-16"))),
        ("with_an_unknown_charset", Reply(200, {"Content-Type": "text/plain; charset=martian"}, BODY)),
        ("with_a_charset_that_is_no_charset", Reply(200, {"Content-Type": "text/plain; charset=base64"}, BODY)),
        ("with_the_wrong_content_type", Reply(200, {"Content-Type": "text/event-stream"}, BODY)),
    ]
)  # fmt: skip
class AnswersThatAreRead(unittest.TestCase):
    def row(self, reply: Any) -> None:
        with ScriptedServer(reply) as server:
            self.assertEqual(client(server).create(ASK), OK)

    def test_a_latin_charset_is_honoured(self) -> None:
        with ScriptedServer(
            Reply(200, {"Content-Type": "application/json; charset=latin-1"}, LATIN)
        ) as server:
            self.assertEqual(client(server).create(ASK)["output"][0]["content"][0]["text"], "é")


@harness.table(
    [
        ("closes_without_a_word", Raw(), "断开"),
        ("closes_in_the_status_line", Raw(b"HTTP/1.1 2"), "不完整"),
        ("closes_in_the_head", Raw(b"HTTP/1.1 200 OK\r\nContent-Le"), "不完整"),
        ("sends_half_a_body", Raw(head(LENGTH), BODY[:20]), "不完整"),
        ("sends_no_body", Raw(head(LENGTH)), "不完整"),
        ("gives_a_length_that_is_too_small", Raw(head("Content-Length: 20"), BODY), "JSON"),
        ("gives_a_length_that_is_no_number", Raw(head("Content-Length: many"), BODY), "HTTP"),
        ("gives_a_negative_length", Raw(head("Content-Length: -5"), BODY), "HTTP"),
        ("gives_a_length_in_other_digits", Raw(head("Content-Length: ²"), BODY), "HTTP"),
        ("gives_two_lengths", Raw(head(LENGTH, "Content-Length: 5"), BODY), "HTTP"),
        ("gives_an_empty_length", Raw(head("Content-Length:"), BODY), "HTTP"),
        ("gzips_its_transfer", Raw(head("Transfer-Encoding: gzip, chunked"), chunks(PACKED)), "HTTP"),
        ("switches_protocols", Raw(head("Upgrade: x", status="101 Switching Protocols"), BODY), "HTTP"),
        ("has_a_header_without_a_colon", Raw(head("nonsense"), BODY), "HTTP"),
        ("gives_a_chunk_size_that_is_no_number", Raw(head("Transfer-Encoding: chunked"), b"zz\r\n{}"), "不完整"),
        ("gives_a_negative_chunk_size", Raw(head("Transfer-Encoding: chunked"), b"-5\r\n{}\r\n0\r\n\r\n"), "不完整"),
        ("gives_a_huge_chunk_size", Raw(head("Transfer-Encoding: chunked"), b"f" * 30 + b"\r\n{}"), "不完整"),
        ("ends_within_the_chunks", Raw(head("Transfer-Encoding: chunked"), b"2\r\n{}\r\n"), "不完整"),
        ("is_no_http", Raw(b"SSH-2.0-OpenSSH_9.6\r\n"), "HTTP"),
        ("speaks_http_2", Raw(b"HTTP/2.0 200 OK\r\n\r\n{}"), "HTTP"),
        ("has_an_impossible_status", Raw(b"HTTP/1.1 9 OK\r\n\r\n{}"), "HTTP"),
        ("has_endless_headers", Raw(head(*["A: b"] * 200), BODY), "HTTP"),
        ("has_a_header_without_end", Raw(b"HTTP/1.1 200 OK\r\nA: " + b"b" * 200_000), "HTTP"),
        ("truncates_its_gzip", Reply(200, {"Content-Encoding": "gzip"}, PACKED[:-9]), "不完整"),
        ("calls_plain_text_gzip", Reply(200, {"Content-Encoding": "gzip"}, BODY), "压缩"),
        ("uses_an_unknown_encoding", Reply(200, {"Content-Encoding": "br"}, BODY), "编码"),
        ("is_not_in_its_charset", Reply(200, {"Content-Type": "application/json; charset=ascii"}, b'"\xff"'), "编码"),
        ("is_not_utf_8", Reply(200, {}, b'{"output": "\xff"}'), "UTF-8"),
        ("is_html", Reply(200, {}, "<html><title>Welcome to nginx!</title>"), "Welcome to nginx"),
        ("is_empty", Reply(200, {}, ""), "空"),
        ("has_no_content", Raw(b"HTTP/1.1 204 No Content\r\n\r\n", keep=True), "空"),
        ("is_truncated_json", Reply(200, {}, BODY[:-5]), "JSON"),
        ("is_an_event_stream", Reply(200, {}, b"event: response.completed\ndata: {}\n\n"), "事件流"),
        ("is_a_stream_of_comments", Reply(200, {}, b": ping\n\n"), "事件流"),
        ("has_no_end", Raw(head(), *[b" " * 65536] * 40), "太大"),
        ("is_larger_than_it_may_be", Reply(200, {}, b" " * 2_000_000), "max_response_bytes"),
    ]
)  # fmt: skip
class AnswersThatAreUseless(unittest.TestCase):
    """A request error that says what was wrong with the answer. Nothing is asked twice."""

    def row(self, reply: Any, words: str) -> None:
        with ScriptedServer(reply) as server:
            asker = client(server, api_key=KEY, max_response_bytes=1_000_000)
            error = failure(self, lambda: asker.create(ASK))
        self.assertRegex(str(error), words)
        self.assertIn(f"POST {server.url}/v1/responses", str(error))
        self.assertLess(len(str(error)), 900)


@harness.table(
    [
        ("a_list", b"[]"),
        ("null", b"null"),
        ("a_string", b'"ok"'),
        ("not_a_number", b'{"output": NaN}'),
        ("a_float_too_large", b'{"output": [1e999]}'),
        ("a_key_twice", b'{"output": [], "output": []}'),
        ("a_hundred_thousand_brackets", b"[" * 100_000),
        ("a_hundred_thousand_objects", b'{"a":' * 100_000),
        ("an_integer_too_long", b'{"output": ' + b"9" * 10_000 + b"}"),
    ]
)
class AnswersAgainstTheProtocol(unittest.TestCase):
    def row(self, body: bytes) -> None:
        with ScriptedServer(Reply(200, {}, body)) as server:
            error = failure(self, lambda: client(server).create(ASK), ProtocolError)
        self.assertIn(f"POST {server.url}/v1/responses", str(error))


class GzipBomb(unittest.TestCase):
    def test_a_gibibyte_of_zeros_stops_early_in_time_and_memory(self) -> None:
        packer = zlib.compressobj(9, wbits=-15)
        mebibyte = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
        bomb = b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + mebibyte * 1024
        with ScriptedServer(Reply(200, {"Content-Encoding": "gzip"}, bomb)) as server:
            asker = client(server, max_response_bytes=1 << 20)
            tracemalloc.start()
            try:
                error = failure(self, lambda: asker.create(ASK))
                self.assertLess(tracemalloc.get_traced_memory()[1], 8 << 20)
            finally:
                tracemalloc.stop()
        self.assertIn("max_response_bytes", str(error))


HINT = "QWEN_BASE_URL"
OVERFLOW = {"code": 400, "message": "request (6030 tokens) exceeds the available context size (2048 tokens)"}


@harness.table(
    [
        ("an_openai_error", 400, {"error": {"message": "bad tools[0]", "type": "x"}}, "bad tools\\[0\\]"),
        ("an_error_text", 400, {"error": "Invalid tool_choice type"}, "Invalid tool_choice type"),
        ("a_detail_text", 400, {"detail": "Unsupported parameter"}, "Unsupported parameter"),
        ("a_detail_list", 422, {"detail": [{"loc": ["body", "input", 0], "msg": "Field required"}]},
         "body\\.input\\.0: Field required"),
        ("a_message", 500, {"message": "went wrong", "code": 7}, "went wrong"),
        ("an_empty_message", 500, {"error": {"message": "", "type": "InternalServerError"}}, "InternalServerError"),
        ("an_error_that_is_null", 500, {"error": None}, "没有说明原因"),
        ("an_empty_object", 500, {}, "没有说明原因"),
        ("a_list_of_errors", 400, [{"error": {"message": "first"}}], "first"),
        ("html", 502, "<html><h1>502 Bad Gateway</h1></html>", "502 Bad Gateway"),
        ("nothing", 500, "", "没有说明原因"),
        ("bytes_that_are_no_text", 500, b"\xff\xfe\x00", "HTTP 500"),
        ("terminal_escapes", 500, {"error": "\x1b[31mred\x07"}, "red"),
        ("a_very_long_message", 500, {"error": {"message": "x" * 100_000}}, "xxx"),
        ("deep_json", 500, b"[" * 100_000, "HTTP 500"),
        ("not_found", 404, {"error": {"message": "File Not Found"}}, f"File Not Found.*{HINT}"),
        ("not_allowed", 401, {"error": {"message": f"Incorrect API key provided: {KEY}."}}, "QWEN_API_KEY"),
        ("the_key_after_a_long_text", 403, {"error": "x" * 490 + KEY}, "QWEN_API_KEY"),
        ("a_full_context_in_llama_cpp", 400, {"error": {**OVERFLOW, "type": "exceed_context_size_error"}},
         "上下文超出.*6030 tokens.*--ctx"),
        ("a_full_context_in_openai", 400, {"error": {"message": "too long", "code": "context_length_exceeded"}},
         "上下文超出.*too long"),
        ("a_full_context_in_vllm", 400, {"message": "This model's maximum context length is 4096 tokens."}, "上下文超出"),
        ("a_full_context_in_sglang", 400,
         {"message": "Input length (9000 tokens) exceeds the maximum allowed length (8192 tokens)."}, "上下文超出"),
        ("a_full_context_in_vllm_s_other_words", 400,
         {"error": "The decoder prompt (length 9000) is longer than the maximum model length of 8192."}, "上下文超出"),
        ("a_full_context_in_gemini", 400,
         {"error": {"message": "The input token count (9) exceeds the maximum number of tokens allowed (8)."}}, "上下文超出"),
        ("a_full_context_in_anthropic", 400, {"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}, "上下文超出"),
        ("a_full_context_in_tgi", 422, {"error": "`inputs` tokens + `max_new_tokens` must be <= 4096."}, "上下文超出"),
        ("a_full_context_in_groq", 413, {"error": "Please reduce the length of the messages or completion."}, "上下文超出"),
        ("a_refused_key_whose_link_has_the_word", 401, {"error": "see https://x.example/context-window"}, "QWEN_API_KEY"),
        ("a_bad_field_whose_link_has_the_word", 400, {"error": "bad field, see https://x.example/context-window"}, "改正请求"),
        ("a_field_of_that_name", 400, {"error": "Unknown parameter: context_length"}, "改正请求"),
        ("reasoning_is_refused", 400, {"error": "does not support parameters: ['reasoning_effort']"}, "QWEN_REASONING="),
        ("reasoning_is_unknown", 422, {"detail": [{"loc": ["body", "reasoning"], "msg": "Extra inputs"}]}, "QWEN_REASONING="),
        ("reasoning_was_not_stored", 404, {"error": {"message": "Item with id 'rs_6f' not found."}}, "QWEN_REASONING="),
        ("a_bad_request", 400, {"error": "bad"}, "改正请求"),
        ("an_unprocessable_request", 422, {"error": "bad"}, "改正请求"),
        ("too_large_a_request", 413, {"error": "too large"}, "缩短问题"),
        ("a_redirect", 302, "", "不跟随重定向"),
        ("several_errors", 400, {"errors": [{"reason": "first"}, {"message": "second"}]}, "first；second"),
        ("a_status_in_words", 400, {"error": {"status": "INVALID_ARGUMENT"}}, "INVALID_ARGUMENT"),
    ]
)  # fmt: skip
class Refusals(unittest.TestCase):
    """An HTTP error names the status, the server's words and the next step; it is not asked again."""

    def row(self, status: int, body: Any, words: str) -> None:
        with ScriptedServer(Reply(status, {}, body)) as server:
            kind = ContextFullError if words.startswith("上下文超出") else ModelRequestError
            error = failure(self, lambda: client(server, api_key=KEY).create(ASK), kind)
        assert isinstance(error, ModelRequestError)
        self.assertEqual(error.status, status)
        self.assertIn(f"POST {server.url}/v1/responses 返回 HTTP {status}", str(error))
        self.assertRegex(str(error), words)
        self.assertTrue(str(error).isprintable())
        self.assertLess(len(str(error)), 900)
        if status in (400, 413, 422):
            self.assertNotIn("重试", str(error))

    def test_a_busy_server_that_counts_tokens_is_busy_and_not_full(self) -> None:
        busy = Reply(429, {"Retry-After": "9"}, {"error": "too many tokens, please wait"})
        with ScriptedServer(busy) as server:
            error = failure(self, lambda: client(server, timeout=1).create(ASK))
        self.assertRegex(str(error), "HTTP 429.*please wait.*QWEN_TIMEOUT.*9 秒后.*Retry-After")

    def test_a_spent_quota_is_not_asked_again(self) -> None:
        for fields in ({"code": "insufficient_quota"}, {"type": "insufficient_quota", "code": None}):
            with ScriptedServer(
                Reply(429, {"Retry-After": "0"}, {"error": {"message": "spent", **fields}})
            ) as server:
                error = failure(self, lambda server=server: client(server).create(ASK))
            self.assertRegex(str(error), "HTTP 429.*spent.*额度")

    def test_where_a_redirect_leads_is_told_without_the_key(self) -> None:
        place = f"https://login.example/?\x1b[31mkey={KEY}&" + "x" * 50_000
        with ScriptedServer(Reply(302, {"Location": place})) as server:
            error = failure(self, lambda: client(server, api_key=KEY).create(ASK))
        self.assertRegex(str(error), r"302：https://login\.example/.*不跟随重定向")
        self.assertNotIn(KEY, str(error))
        self.assertTrue(str(error).isprintable() and len(str(error)) < 900)

    def test_a_gzipped_error_body_is_read(self) -> None:
        packed = gzip.compress(b'{"error": "packed words"}')
        with ScriptedServer(Reply(500, {"Content-Encoding": "gzip"}, packed)) as server:
            self.assertIn("packed words", str(failure(self, lambda: client(server).create(ASK))))

    def test_the_status_survives_a_broken_error_body(self) -> None:
        with ScriptedServer(Raw(head("Content-Length: 99", status="500 No"), b"half")) as server:
            error = failure(self, lambda: client(server).create(ASK))
        self.assertRegex(str(error), "HTTP 500.*half")

    def test_an_answer_to_a_request_that_was_not_read_is_still_heard(self) -> None:
        answer = b'HTTP/1.1 413 Large\r\nConnection: close\r\nContent-Length: 20\r\n\r\n{"error": "too much"}'
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def hang_up() -> None:
                connection, _ = listener.accept()
                connection.recv(1000)
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
                time.sleep(0.2)
                connection.close()

            thread = threading.Thread(target=hang_up)
            thread.start()
            asker = ResponsesClient(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=5)
            error = failure(self, lambda: asker.create({"input": [{"x": "y" * 8_000_000}]}))
            thread.join()
        self.assertRegex(str(error), "HTTP 413.*too much")

    def test_an_error_object_under_http_200_is_a_request_error(self) -> None:
        for body in (
            {"error": {"message": f"quota gone {KEY}"}},
            response(status="failed", error="quota gone"),
        ):
            with ScriptedServer(body) as server:
                error = failure(self, lambda server=server: client(server, api_key=KEY).create(ASK))
            self.assertRegex(str(error), f"POST {server.url}/v1/responses.*quota gone")


@harness.table(
    [
        ("no_header", 429, None, 0.3, 1.1),
        ("no_header_and_503", 503, None, 0.3, 1.1),
        ("seconds", 429, "1", 0.9, 1.9),
        ("zero", 503, "0", 0.3, 1.1),
        ("nonsense", 429, "²", 0.3, 1.1),
        ("a_negative_number", 429, "-5", 0.3, 1.1),
        ("not_a_number", 429, "nan", 0.3, 1.1),
        ("infinity", 429, "inf", 0.3, 1.1),
        ("nothing", 429, "", 0.3, 1.1),
        ("words", 503, "soon, maybe", 0.3, 1.1),
        ("a_date_that_has_passed", 503, "Wed, 21 Oct 2015 07:28:00 GMT", 0.3, 1.1),
        ("an_impossible_date", 503, "Wed, 99 Oct 99999 07:28:00 GMT", 0.3, 1.1),
    ]
)
class Retries(unittest.TestCase):
    """429 and 503 are asked again after Retry-After, else within a second, and answered then."""

    def row(self, status: int, header: str | None, least: float, most: float) -> None:
        slept: list[float] = []
        with (
            ScriptedServer(Reply(status, {"Retry-After": header}, {"error": "busy"}), OK) as server,
            mock.patch("time.sleep", slept.append),
        ):
            self.assertEqual(client(server).create(ASK), OK)
        self.assertEqual(len(slept), 1)
        self.assertTrue(least <= slept[0] <= most, slept)
        self.assertEqual(server.requests[0].body, server.requests[1].body)

    def test_a_date_is_waited_for(self) -> None:
        slept: list[float] = []
        date = email.utils.formatdate(time.time() + 5, usegmt=True)
        with (
            ScriptedServer(Reply(503, {"Retry-After": date}), OK) as server,
            mock.patch("time.sleep", slept.append),
        ):
            client(server).create(ASK)
        self.assertTrue(3.5 <= slept[0] <= 5, slept)

    def test_a_wait_that_would_outlast_the_deadline_is_not_begun(self) -> None:
        for header in ("30", "9" * 400, email.utils.formatdate(time.time() + 10**6, usegmt=True)):
            with (
                self.subTest(header=header),
                ScriptedServer(Reply(429, {"Retry-After": header}, {"error": "busy"})) as server,
            ):
                started = time.monotonic()
                error = failure(self, lambda server=server: client(server, timeout=2).create(ASK))
                self.assertRegex(str(error), "HTTP 429.*busy.*timeout")
                self.assertLess(time.monotonic() - started, 1)

    def test_the_waits_grow(self) -> None:
        slept: list[float] = []
        with (
            ScriptedServer(*[Reply(503)] * 4, OK) as server,
            mock.patch("time.sleep", slept.append),
        ):
            client(server, timeout=60).create(ASK)
        self.assertEqual(slept, [0.5, 1, 2, 4])

    def test_nothing_else_is_asked_again(self) -> None:
        for status in (400, 401, 404, 408, 409, 413, 422, 500, 502, 504):
            with self.subTest(status=status), ScriptedServer(Reply(status, {"Retry-After": "0"})) as server:
                failure(self, lambda server=server: client(server).create(ASK))


class KeptConnections(unittest.TestCase):
    def test_one_connection_serves_a_whole_run(self) -> None:
        with ScriptedServer(
            OK,
            Reply(500),
            Reply(503),
            OK,
            Raw(head("Transfer-Encoding: chunked"), chunks(BODY), keep=True),
            OK,
        ) as server:
            asker = client(server)
            asker.create(ASK)
            failure(self, lambda: asker.create(ASK))
            for _ in range(3):
                asker.create(ASK)
        self.assertEqual({request.connection for request in server.requests}, {1})

    def test_one_that_the_server_closed_meanwhile_is_replaced_unseen(self) -> None:
        with ScriptedServer(OK, OK, keep_alive=0.05) as server:
            asker = client(server)
            asker.create(ASK)
            time.sleep(0.2)
            asker.create(ASK)
        self.assertEqual([request.connection for request in server.requests], [1, 2])

    def test_one_that_dies_before_the_first_byte_is_replaced_once(self) -> None:
        with ScriptedServer(OK, Raw(), OK) as server:
            asker = client(server)
            asker.create(ASK)
            self.assertEqual(asker.create(ASK), OK)
        with ScriptedServer(OK, Raw(), Raw()) as server:
            asker = client(server)
            asker.create(ASK)
            failure(self, lambda: asker.create(ASK))

    def test_one_that_dies_after_the_first_byte_is_not(self) -> None:
        with ScriptedServer(OK, Raw(b"HTTP/1.1 2")) as server:
            asker = client(server)
            asker.create(ASK)
            failure(self, lambda: asker.create(ASK))

    def test_one_that_is_reset_after_the_first_byte_is_not_either(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def whole_request(connection: socket.socket) -> None:
                data = b""  # its head and its body may come apart
                while not (found := re.search(rb"Content-Length: (\d+)(?s:.*?)\r\n\r\n", data)) or len(
                    data
                ) < found.end() + int(found[1]):
                    data += connection.recv(10_000)

            def play() -> None:
                connection, _ = listener.accept()
                whole_request(connection)
                connection.sendall(head(LENGTH) + BODY)
                whole_request(connection)
                connection.sendall(b"HTTP/1.1 2")
                time.sleep(0.2)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()

            thread = threading.Thread(target=play)
            thread.start()
            asker = ResponsesClient(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=2)
            asker.create(ASK)
            started = time.monotonic()
            failure(self, lambda: asker.create(ASK))  # one that asked again would wait for its deadline
            self.assertLess(time.monotonic() - started, 1.5)
            thread.join()

    def test_bytes_that_nobody_asked_for_are_never_taken_for_an_answer(self) -> None:
        stray = head("Content-Length: 2") + b"{}"
        for parts in ((head(LENGTH) + BODY, 0.05, stray), (head(LENGTH) + BODY + stray,)):
            with ScriptedServer(Raw(*parts, keep=True), OK) as server:
                asker = client(server)
                asker.create(ASK)
                time.sleep(0.2)
                self.assertEqual(asker.create(ASK), OK)
            self.assertEqual([request.connection for request in server.requests], [1, 2])

    def test_one_that_the_server_will_not_keep_is_not_kept(self) -> None:
        with ScriptedServer(Reply(200, {"Connection": "Close"}, BODY), OK) as server:
            asker = client(server)
            asker.create(ASK)
            asker.create(ASK)
        self.assertEqual([request.connection for request in server.requests], [1, 2])

    def test_after_an_error_half_way_the_next_request_has_a_connection_of_its_own(self) -> None:
        with ScriptedServer(OK, Raw(head(LENGTH), 5), OK) as server:
            asker = client(server, timeout=0.3)
            asker.create(ASK)
            failure(self, lambda: asker.create(ASK))
            self.assertEqual(asker.create(ASK), OK)
        self.assertEqual([request.connection for request in server.requests], [1, 1, 2])

    def test_ctrl_c_passes_and_drops_the_connection(self) -> None:
        def interrupt(_: Request) -> Raw:
            main = threading.main_thread().ident or 0
            threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT)).start()
            return Raw(head(LENGTH), 5)

        with ScriptedServer(OK, interrupt, OK) as server:
            asker = client(server)
            asker.create(ASK)
            with self.assertRaises(KeyboardInterrupt):
                signal.signal(signal.SIGINT, signal.default_int_handler)
                asker.create(ASK)
            self.assertEqual(asker.create(ASK), OK)
        self.assertEqual([request.connection for request in server.requests], [1, 1, 2])

    @unittest.skipUnless(hasattr(os, "fork"), "no fork here")
    def test_a_forked_process_does_not_share_it(self) -> None:
        with ScriptedServer(OK, forever=True) as server:
            asker = client(server)
            asker.create(ASK)
            child = os.fork()
            if child == 0:
                with contextlib.suppress(BaseException):
                    os._exit(0 if asker.create(ASK) == OK else 1)
                os._exit(2)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            asker.create(ASK)
        self.assertEqual([request.connection for request in server.requests], [1, 2, 1])

    def test_a_client_that_is_dropped_leaves_no_socket_open(self) -> None:
        descriptors = Path("/proc/self/fd")
        if not descriptors.exists():
            self.skipTest("no /proc here")
        before = len(list(descriptors.iterdir()))
        with ScriptedServer(OK, forever=True) as server:
            for _ in range(5):
                client(server).create(ASK)
            thread = threading.Thread(target=client(server).create, args=(ASK,))
            thread.start()
            thread.join()
        gc.collect()
        self.assertLessEqual(len(list(descriptors.iterdir())), before)


@harness.table(
    [
        ("no_scheme", "127.0.0.1:8021"),
        ("another_scheme", "ftp://127.0.0.1"),
        ("a_file", "file:///etc/passwd"),
        ("no_host", "http://"),
        ("nothing", ""),
        ("none", None),
        ("a_password", f"http://user:{KEY}@127.0.0.1:8021"),
        ("a_user", f"http://{KEY}@127.0.0.1:8021"),
        ("a_query", f"http://127.0.0.1/v1?key={KEY}"),
        ("a_fragment", "http://127.0.0.1/v1#x"),
        ("a_port_that_is_no_number", "http://127.0.0.1:port"),
        ("a_port_too_large", "http://127.0.0.1:99999"),
        ("port_zero", "http://127.0.0.1:0"),
        ("a_newline", "http://127.0.0.1\r\nX: y"),
        ("a_blank", "http://127.0.0.1/a b"),
        ("a_host_in_chinese", "http://模型.example"),
        ("a_broken_ipv6_address", "http://[::1"),
    ]
)
class BaseUrlsThatAreRefused(unittest.TestCase):
    def row(self, url: Any) -> None:
        error = failure(self, lambda: ResponsesClient(url), MiniPiError)
        self.assertIn("QWEN_BASE_URL", str(error))


class Settings(unittest.TestCase):
    def test_a_base_url_may_end_in_v1_and_slashes_or_not(self) -> None:
        with ScriptedServer(OK, forever=True) as server:
            for ending in ("", "/", "/v1", "/v1/", "//", "/v1//", "//v1"):
                ResponsesClient(server.url + ending).create(ASK)
            ResponsesClient(server.url + "/a%20proxy/v1/").create(ASK)
        paths = [request.path for request in server.requests]
        self.assertEqual(paths, ["/v1/responses"] * 7 + ["/a%20proxy/v1/responses"])

    def test_a_key_with_blanks_newlines_or_other_letters_is_refused_and_not_shown(self) -> None:
        for key in (KEY + "\n", KEY + "\r\nX: y", KEY + "é", "a " + KEY, "\ud800"):
            error = failure(self, lambda key=key: ResponsesClient("http://127.0.0.1", key), MiniPiError)
            self.assertIn("QWEN_API_KEY", str(error))

    def test_a_timeout_must_be_a_number_of_seconds(self) -> None:
        for timeout in (0, -1, float("nan"), float("inf")):
            failure(
                self,
                lambda timeout=timeout: ResponsesClient("http://127.0.0.1", timeout=timeout),
                MiniPiError,
            )

    def test_the_key_is_sent_as_bearer_and_no_key_sends_no_header(self) -> None:
        with ScriptedServer(OK, OK, OK) as server:
            for key in (KEY, None, ""):
                client(server, api_key=key).create(ASK)
        sent = [request.headers.get("authorization") for request in server.requests]
        self.assertEqual(sent, [f"Bearer {KEY}", None, None])
        self.assertNotIn(KEY, repr(client(server, api_key=KEY)))

    def test_a_server_that_is_not_there_is_named_with_both_ways_out(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        error = failure(self, lambda: ResponsesClient(f"http://127.0.0.1:{port}").create(ASK))
        for words in (f"http://127.0.0.1:{port}", "server 启动了吗？", "--local-qwen", "QWEN_BASE_URL"):
            self.assertIn(words, str(error))

    def test_a_host_that_does_not_exist_is_said_so(self) -> None:
        with environment():
            error = failure(
                self, lambda: ResponsesClient("http://no-such-host.invalid", timeout=5).create(ASK)
            )
        self.assertIn("no-such-host.invalid", str(error))


class Redirects(unittest.TestCase):
    def test_another_host_gets_neither_the_key_nor_a_request(self) -> None:
        with ScriptedServer() as other:
            for status in (301, 302, 303, 307, 308):
                with ScriptedServer(Reply(status, {"Location": f"{other.url}/v1/responses"})) as server:
                    error = failure(self, lambda server=server: client(server, api_key=KEY).create(ASK))
                self.assertIn(other.url, str(error))
        self.assertEqual(other.requests, [])


def through_a_tunnel(check: unittest.TestCase, answer: bytes) -> tuple[bytes, str]:
    """All that a proxy which answers so to CONNECT was sent, and the error that came of it."""
    seen = b""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            nonlocal seen
            connection, _ = listener.accept()
            with connection:
                while b"\r\n\r\n" not in seen:
                    seen += connection.recv(1000)
                connection.sendall(answer)
                connection.settimeout(2)
                while piece := connection.recv(1000):
                    seen += piece

        thread = threading.Thread(target=serve)
        thread.start()
        with environment(https_proxy=f"http://user:pass@127.0.0.1:{listener.getsockname()[1]}"):
            asker = ResponsesClient("https://model.invalid", KEY, timeout=5)
            error = failure(check, lambda: asker.create(ASK))
        thread.join()
    return seen, str(error)


class Proxies(unittest.TestCase):
    def test_loopback_never_goes_through_the_proxy(self) -> None:
        with ScriptedServer() as proxy, ScriptedServer(OK, forever=True) as server:
            names = dict.fromkeys(("http_proxy", "HTTPS_PROXY", "https_proxy", "all_proxy"), proxy.url)
            with environment(**names):
                for host in ("127.0.0.1", "localhost", "127.1"):
                    ResponsesClient(f"http://{host}:{server.port}", timeout=5).create(ASK)
        self.assertEqual((proxy.requests, len(server.requests)), ([], 3))

    def test_another_host_does_with_its_own_name_in_the_request(self) -> None:
        with ScriptedServer(OK, OK) as proxy:
            with environment(http_proxy=proxy.url.replace("//", "//user:pass@")):
                asker = ResponsesClient("http://model.invalid/v1", KEY, timeout=5)
                self.assertEqual(asker.create(ASK), OK)
                asker.create(ASK)
        request = proxy.requests[0]
        self.assertEqual(request.path, "http://model.invalid/v1/responses")
        self.assertEqual(request.headers["host"], "model.invalid")
        self.assertEqual(request.headers["proxy-authorization"], "Basic dXNlcjpwYXNz")

    def test_https_goes_through_a_tunnel_that_never_sees_the_key(self) -> None:
        seen, _ = through_a_tunnel(self, b"HTTP/1.1 403 Forbidden\r\n\r\n")
        self.assertTrue(seen.startswith(b"CONNECT model.invalid:443 "))
        self.assertIn(b"Proxy-Authorization: Basic dXNlcjpwYXNz", seen)
        self.assertNotIn(KEY.encode(), seen)

    def test_no_proxy_is_honoured_and_a_broken_proxy_setting_is_an_error_of_ours(self) -> None:
        with ScriptedServer() as proxy:
            with environment(http_proxy=proxy.url, no_proxy="model.invalid"):
                failure(self, lambda: ResponsesClient("http://model.invalid", timeout=5).create(ASK))
        for broken in (f"http:/user:{KEY}@x", "socks5://127.0.0.1:1", "http://127.0.0.1:port"):
            with self.subTest(proxy=broken), environment(http_proxy=broken):
                failure(self, lambda: ResponsesClient("http://model.invalid", timeout=5).create(ASK))


def has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


class OtherRoads(unittest.TestCase):
    @unittest.skipUnless(has_ipv6(), "this machine has no ::1")
    def test_ipv6(self) -> None:
        with ScriptedServer(OK, host="::1") as server, environment(http_proxy="http://127.0.0.1:9"):
            self.assertEqual(client(server).create(ASK), OK)
        self.assertEqual(server.requests[0].headers["host"], f"[::1]:{server.port}")

    @unittest.skipUnless(shutil.which("openssl"), "no openssl to make a certificate with")
    def test_tls_with_a_known_and_with_an_unknown_certificate(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            files = [str(Path(folder) / name) for name in ("key.pem", "cert.pem")]
            command = [
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
            ]
            command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", files[0], "-out", files[1]]
            subprocess.run(command, check=True, capture_output=True)
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(files[1], files[0])
            with ScriptedServer(OK, OK, OK, tls=tls) as server:
                error = failure(self, lambda: client(server, api_key=KEY).create(ASK))
                self.assertRegex(str(error), "TLS 证书.*SSL_CERT_FILE")
                with mock.patch.dict(os.environ, SSL_CERT_FILE=files[1]):
                    asker = client(server)
                    make = mock.Mock(side_effect=ssl.create_default_context)
                    with mock.patch.object(ssl, "create_default_context", make):
                        asker.create(ASK)
                        asker.create({**ASK, "instructions": "x" * 3_000_000})
                        other = threading.Thread(target=asker.create, args=(ASK,))
                        other.start()
                        other.join()
            self.assertEqual(make.call_count, 1)
            self.assertEqual(len({request.connection for request in server.requests}), 2)

    def test_a_plain_server_behind_an_https_url_is_said_so(self) -> None:
        with ScriptedServer(forever=True) as server:
            url = server.url.replace("http:", "https:")
            error = failure(self, lambda: ResponsesClient(url, timeout=5).create(ASK))
        self.assertIn("https", str(error))

    def test_importing_the_package_loads_no_http(self) -> None:
        code = (
            "import sys, packages.pi_ai; print({'http.client', 'ssl', 'socket', 'email'} & set(sys.modules))"
        )
        command = [
            sys.executable,
            "-S",
            "-E",
            "-c",
            f"import sys; sys.path.insert(0, {str(Path.cwd())!r}); {code}",
        ]
        self.assertEqual(
            subprocess.run(command, capture_output=True, text=True, check=True).stdout, "set()\n"
        )

    def test_thirty_two_threads_share_a_client(self) -> None:
        def echo(request: Request) -> JsonObject:
            return response(message(str(request.json["n"])))

        wrong: list[Any] = []

        def ask(asker: ResponsesClient, number: int) -> None:
            for turn in range(5):
                got = asker.create({"n": [number, turn], "input": []})["output"][0]["content"][0]["text"]
                if got != str([number, turn]):
                    wrong.append(got)

        with ScriptedServer(echo, forever=True) as server:
            asker = client(server)
            threads = [threading.Thread(target=ask, args=(asker, number)) for number in range(32)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual((wrong, len(server.requests)), ([], 160))


if __name__ == "__main__":
    raise SystemExit(harness.main())
