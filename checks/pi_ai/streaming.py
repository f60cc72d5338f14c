"""Streaming: server-sent events by the book, and the same result as without."""

from __future__ import annotations

import json
import threading
import time
import unittest
from typing import Any

from checks.support import harness
from checks.support.harness import JsonObject, call, message, response
from checks.support.server import Raw, Reply, ScriptedServer
from packages.pi_agent import AgentEvent, AgentLoopConfig, AgentTool, Conversation
from packages.pi_ai import ContextFullError, MiniPiError, ModelRequestError, ProtocolError, ResponsesClient
from packages.pi_ai.reading import events

ASK = {"model": "m", "input": [{"role": "user", "content": "问"}]}
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def event(kind: str, **fields: Any) -> bytes:
    data = json.dumps({"type": kind, **fields}, ensure_ascii=False)
    return f"event: {kind}\ndata: {data}\n\n".encode("utf-8", "backslashreplace")


def delta(text: Any) -> bytes:
    return event("response.output_text.delta", item_id="msg_1", delta=text)


def completed(*output: Any, **fields: Any) -> bytes:
    return event("response.completed", response=response(*output, **fields))


@harness.table(
    [
        ("line_feeds", b"data: a\n\ndata: b\n\n", [("", "a"), ("", "b")]),
        ("carriage_returns", b"data: a\r\rdata: b\r\r", [("", "a"), ("", "b")]),
        ("both", b"data: a\r\n\r\ndata: b\r\n\r\n", [("", "a"), ("", "b")]),
        ("a_mixture", b"data: a\r\ndata: b\rdata: c\n\r\n", [("", "a\nb\nc")]),
        ("a_name", b"event: x\ndata: a\n\ndata: b\n\n", [("x", "a"), ("", "b")]),
        ("the_name_after_the_data", b"data: a\nevent: x\n\n", [("x", "a")]),
        ("several_data_lines", b"data: a\ndata:\ndata: b\n\n", [("", "a\n\nb")]),
        ("no_space_after_the_colon", b"event:x\ndata:a\n\n", [("x", "a")]),
        ("two_spaces_after_the_colon", b"data:  a\n\n", [("", " a")]),
        ("a_colon_in_the_data", b"data: a: b\n\n", [("", "a: b")]),
        ("a_field_without_colon", b"data\n\n", [("", "")]),
        ("comments", b": ping\n\n:\n\n: x\ndata: a\n: y\n\n", [("", "a")]),
        ("other_fields", b"id: 1\nretry: 5\nother: x\ndatabase: y\ndata: a\n\n", [("", "a")]),
        ("a_name_without_data", b"event: x\n\ndata: a\n\n", [("", "a")]),
        ("an_event_that_has_no_end", b"data: a\n\ndata: b\n", [("", "a")]),
        ("a_line_that_has_no_end", b"data: a\n\ndata: b", [("", "a")]),
        ("a_byte_order_mark", b"\xef\xbb\xbfdata: a\n\n", [("", "a")]),
        ("a_mark_later_on", "data: a\n\n\ufeffdata: b\n\n".encode(), [("", "a")]),
        ("every_plane_of_unicode", "data: é汉😀\u2028\x85\x0b\n\n".encode(), [("", "é汉😀\u2028\x85\x0b")]),
        ("bytes_that_are_no_utf_8", b"data: a\xffb\n\n", [("", "a\ufffdb")]),
        ("nothing", b"", []),
        ("blank_lines", b"\n\n\r\n\r\n", []),
    ]
)
class EventsByTheBook(unittest.TestCase):
    """The same events in whatever pieces the bytes come."""

    def row(self, wire: bytes, expected: list[tuple[str, str]]) -> None:
        self.assertEqual(list(events([wire])), expected)
        self.assertEqual(list(events([wire[at : at + 1] for at in range(len(wire))])), expected)
        for at in range(len(wire) + 1):
            self.assertEqual(list(events([wire[:at], b"", wire[at:]])), expected)

    def test_an_event_is_given_as_soon_as_its_blank_line_is_there(self) -> None:
        seen: list[int] = []

        def wire() -> Any:
            for number, piece in enumerate((b"data: a\r\n", b"\r", b"\ndata: b\n\n", b"data: c\n")):
                seen.append(number)
                yield piece

        stream = events(wire())
        self.assertEqual((next(stream), seen), (("", "a"), [0, 1]))
        self.assertEqual((next(stream), seen), (("", "b"), [0, 1, 2]))

    def test_a_line_of_many_pieces_is_read_in_linear_time(self) -> None:
        pieces = [b"data: ", *[b"x" * 1000] * 20_000, b"\n\n"]
        started = time.process_time()
        ((_, data),) = events(pieces)
        self.assertEqual(len(data), 20_000_000)
        self.assertLess(time.process_time() - started, 5)


HI = completed(message("hi"))


def item_done(item: JsonObject, index: int = 0) -> bytes:
    return event("response.output_item.done", output_index=index, item=item)


@harness.table(
    [
        ("deltas_and_the_final_object", delta("h") + delta("i") + HI, "hi", "hi"),
        ("no_deltas", HI, "", "hi"),
        ("the_final_object_is_the_truth", delta("ho") + HI, "ho", "hi"),
        ("done_after_it", HI + b"data: [DONE]\n\n", "", "hi"),
        ("events_after_it", HI + delta("more"), "", "hi"),
        ("unknown_events", event("response.created") + event("response.new", x=[1]) + HI, "", "hi"),
        ("other_deltas", event("response.reasoning_text.delta", delta="hm") + HI, "", "hi"),
        ("a_delta_that_is_no_text", delta(None) + delta(5) + delta("a") + HI, "a", "hi"),
        ("half_a_surrogate_pair", delta("a").replace(b'"a"', b'"\\ud83d"') + HI, "\ufffd", "hi"),
        ("the_type_only_in_the_event_line", HI.replace(b'"type": "response.completed", ', b""), "", "hi"),
        ("pings_before_it", b": ping\n\n: ping\n\n" + HI, "", "hi"),
        ("blank_lines_before_it", b"\r\n\r\n" + HI, "", "hi"),
        ("a_mark_before_it", b"\xef\xbb\xbf" + HI, "", "hi"),
        ("an_error_that_is_null", event("response.created", error=None) + HI, "", "hi"),
        ("heartbeats_without_data", b"data:\n\ndata: \n\n" + HI, "", "hi"),
        ("items_that_came_before_an_empty_output", item_done(message("hi")) + completed(), "", "hi"),
        (
            "items_in_another_order",
            item_done(message("ho"), 1) + item_done(message("hi"), 0) + completed(),
            "",
            "hi",
        ),
        ("items_and_no_output_at_all", item_done(message("hi")) + completed(output=None), "", "hi"),
        ("items_that_are_there_in_the_end", item_done(message("ho")) + HI, "", "hi"),
        ("plain_json", json.dumps(response(message("hi"))).encode(), "hi", "hi"),
        (
            "plain_json_after_a_mark",
            b"\xef\xbb\xbf\n" + json.dumps(response(message("hi"))).encode(),
            "hi",
            "hi",
        ),
    ]
)
class StreamsThatAreRead(unittest.TestCase):
    def row(self, wire: bytes, shown: str, text: str) -> None:
        with ScriptedServer(Raw(STREAM, wire)) as server:
            got: list[str] = []
            answer = ResponsesClient(server.url, timeout=5).create(ASK, on_text=got.append)
        self.assertEqual("".join(got), shown)
        self.assertEqual(answer["output"][0]["content"][0]["text"], text)
        self.assertEqual(server.requests[0].json, {**ASK, "stream": True})

    def test_an_incomplete_response_is_returned_for_the_loop_to_judge(self) -> None:
        final = response(
            message("In"), status="incomplete", incomplete_details={"reason": "max_output_tokens"}
        )
        with ScriptedServer(Raw(STREAM, event("response.incomplete", response=final))) as server:
            self.assertEqual(ResponsesClient(server.url).create(ASK, on_text=print), final)

    def test_an_event_called_incomplete_is_so_whatever_status_stands_inside(self) -> None:
        final = response(message("In"), status="completed")
        with ScriptedServer(Raw(STREAM, event("response.incomplete", response=final))) as server:
            answer = ResponsesClient(server.url).create(ASK, on_text=print)
        self.assertEqual(answer, {**final, "status": "incomplete"})

    def test_calls_that_came_as_items_are_the_output(self) -> None:
        calls = [call("f", {}, "a"), call("g", {}, "b")]
        wire = item_done(calls[0], 0) + item_done(calls[1], 1) + completed()
        with ScriptedServer(Raw(STREAM, wire)) as server:
            self.assertEqual(ResponsesClient(server.url).create(ASK, on_text=print)["output"], calls)

    def test_plain_json_without_text_shows_nothing(self) -> None:
        with ScriptedServer(response(call("f"))) as server:
            ResponsesClient(server.url).create(ASK, on_text=self.fail)

    def test_without_on_text_no_stream_is_asked_for(self) -> None:
        with ScriptedServer(response(message("hi"))) as server:
            ResponsesClient(server.url).create(ASK)
        self.assertEqual(server.requests[0].json, ASK)


SHELL = event(
    "response.failed", response=response(status="failed", error={"code": "x", "message": "GPU gone"})
)


@harness.table(
    [
        ("ends_without_a_final_event", delta("h"), ModelRequestError, "结束"),
        ("ends_in_the_final_event", HI[:-2], ModelRequestError, "结束"),
        ("is_done_without_a_final_event", delta("h") + b"data: [DONE]\n\n" + HI, ModelRequestError, "结束"),
        ("is_empty", b"", ModelRequestError, "结束"),
        ("reports_failure", SHELL, ModelRequestError, "GPU gone"),
        ("reports_an_error", event("error", code="c", message="GPU gone"), ModelRequestError, "GPU gone"),
        ("reports_an_error_without_words", event("error"), ModelRequestError, "请"),
        ("reports_an_error_object", b'data: {"error": {"code": 500, "message": "GPU gone"}}\n\n', ModelRequestError, "GPU gone"),
        ("is_full", b'data: {"error": {"type": "exceed_context_size_error"}}\n\n', ContextFullError, "上下文超出"),
        ("completes_a_failure", completed(status="failed", error={"message": "GPU gone"}), ModelRequestError, "GPU gone"),
        ("is_html", b"<html>hello</html>", ModelRequestError, "JSON.*hello"),
        ("is_a_list_of_json", b"[]", ProtocolError, "对象"),
        ("is_a_string_of_json", b'"busy"', ProtocolError, "对象"),
        ("is_plain_json_with_a_message", b'{"message": "GPU gone"}', ModelRequestError, "GPU gone"),
        ("has_an_event_that_is_no_json", b"data: {\n\n", ModelRequestError, "JSON"),
        ("has_an_event_that_is_no_object", b"data: []\n\n", ProtocolError, "对象"),
        ("has_not_a_number", b'data: {"type": "x", "n": NaN}\n\n', ProtocolError, "NaN"),
        ("has_a_bomb_of_brackets", b"data: " + b"[" * 100_000 + b"\n\n", ProtocolError, "嵌套"),
        ("completes_without_a_response", event("response.completed"), ModelRequestError, "结束"),
        ("is_plain_json_with_an_error", b'{"error": "GPU gone"}', ModelRequestError, "GPU gone"),
        ("is_plain_json_that_is_cut", b'{"output": [', ModelRequestError, "JSON"),
        ("is_larger_than_it_may_be", delta("x" * 2000) * 1000 + HI, ModelRequestError, "max_response_bytes"),
        ("is_one_line_without_end", b"data: " + b"x" * 2_000_000, ModelRequestError, "max_response_bytes"),
        ("stops_within_its_length", b"", ModelRequestError, "不完整"),
    ]
)  # fmt: skip
class StreamsThatAreUseless(unittest.TestCase):
    """An error of ours that says what to do; never an answer, never a hang."""

    def row(self, wire: bytes, kind: type[MiniPiError], words: str) -> None:
        start = (
            STREAM if words != "不完整" else STREAM.replace(b"\r\n\r\n", b"\r\nContent-Length: 99\r\n\r\n: x")
        )
        with ScriptedServer(Raw(start, wire)) as server, self.assertRaises(kind) as caught:
            asker = ResponsesClient(server.url, timeout=5, max_response_bytes=1_000_000)
            asker.create(ASK, on_text=lambda text: None)
        self.assertIs(type(caught.exception), kind)
        self.assertRegex(str(caught.exception), f"POST {server.url}/v1/responses.*{words}")
        self.assertIn("请", str(caught.exception))

    def test_an_http_error_is_one_with_on_text_too(self) -> None:
        with ScriptedServer(Reply(400, body={"error": "no streams here"})) as server:
            with self.assertRaisesRegex(ModelRequestError, "HTTP 400.*no streams here"):
                ResponsesClient(server.url).create(ASK, on_text=print)

    def test_a_busy_server_is_asked_again_before_the_stream_begins(self) -> None:
        with ScriptedServer(Reply(503), Raw(STREAM, HI)) as server:
            ResponsesClient(server.url).create(ASK, on_text=print)

    def test_a_stream_may_take_longer_than_the_timeout_while_it_goes_on(self) -> None:
        drips = [part for _ in range(30) for part in (delta("a"), 0.05)]
        with ScriptedServer(Raw(STREAM, *drips, HI)) as server:
            got: list[str] = []
            ResponsesClient(server.url, timeout=1).create(ASK, on_text=got.append)
        self.assertEqual(got, ["a"] * 30)

    def test_silence_longer_than_the_timeout_ends_a_stream(self) -> None:
        with ScriptedServer(Raw(STREAM, delta("a"), 3, HI)) as server:
            with self.assertRaisesRegex(ModelRequestError, "超时.*timeout=0.3 秒里没有新内容.*QWEN_TIMEOUT"):
                ResponsesClient(server.url, timeout=0.3).create(ASK, on_text=lambda text: None)

    def test_a_text_that_repeats_itself_until_the_deadline_is_told_as_that(self) -> None:
        with ScriptedServer(Raw(STREAM, *[delta("- notes and logs\n")] * 40, 3)) as server:
            with self.assertRaisesRegex(ModelRequestError, "重复自己（“- notes and logs”）.*换一种问法"):
                ResponsesClient(server.url, timeout=0.3).create(ASK, on_text=lambda text: None)

    def test_a_stream_that_drips_for_ever_ends_too(self) -> None:
        drips = [part for number in range(400) for part in (delta(f"{number} "), 0.02)]
        with ScriptedServer(Raw(STREAM, *drips)) as server:
            with self.assertRaisesRegex(
                ModelRequestError, "超时.*timeout=0.1 秒的 30 倍里没有收完.*QWEN_TIMEOUT"
            ):
                ResponsesClient(server.url, timeout=0.1).create(ASK, on_text=lambda text: None)


class OnText(unittest.TestCase):
    def test_each_piece_is_shown_before_the_next_one_is_sent(self) -> None:
        shown = threading.Event()
        got: list[str] = []

        def show(text: str) -> None:
            got.append(text)
            shown.set()

        def wait() -> None:
            got.append("the server goes on" if shown.wait(3) else "nothing was shown")

        with ScriptedServer(Raw(STREAM, delta("first"), wait, delta("second"), HI)) as server:
            ResponsesClient(server.url, timeout=5).create(ASK, on_text=show)
        self.assertEqual(got, ["first", "the server goes on", "second"])

    def test_a_character_split_across_reads_is_shown_whole(self) -> None:
        wire = delta("汉😀") + HI
        with ScriptedServer(
            Raw(STREAM, *(part for byte in wire[:90] for part in (bytes([byte]), 0.001)), wire[90:])
        ) as server:
            got: list[str] = []
            ResponsesClient(server.url, timeout=5).create(ASK, on_text=got.append)
        self.assertEqual(got, ["汉😀"])

    def test_what_it_raises_passes_unchanged_and_the_connection_is_dropped(self) -> None:
        for mistake in (
            KeyError("mine"),
            OSError("mine"),
            ModelRequestError("mine"),
            KeyboardInterrupt(),
            StopIteration(),
        ):
            with ScriptedServer(
                Raw(STREAM, delta("a"), 0.05, HI, keep=True), response(message("ok"))
            ) as server:
                asker = ResponsesClient(server.url, timeout=5)

                def fail(_: str, mistake: BaseException = mistake) -> None:
                    raise mistake

                with self.assertRaises(type(mistake)) as caught:
                    asker.create(ASK, on_text=fail)
                self.assertIs(caught.exception, mistake)
                self.assertEqual(asker.create(ASK)["output"], [message("ok")])
            self.assertEqual([request.connection for request in server.requests], [1, 2])

    def test_it_may_ask_the_same_client_in_the_middle(self) -> None:
        with ScriptedServer(
            Raw(STREAM, delta("a"), HI), response(message("inner")), response(message("after"))
        ) as server:
            asker, inner = ResponsesClient(server.url, timeout=5), []
            asker.create(ASK, on_text=lambda text: inner.append(asker.create({"input": []})))
            self.assertEqual(inner[0]["output"], [message("inner")])
            self.assertEqual(asker.create(ASK)["output"], [message("after")])


LOOK = AgentTool(
    "look", "看", {"type": "object", "properties": {}, "required": []}, lambda arguments: "42 件"
)
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "嗯"}],
}


@harness.table(
    [
        ("an_answer", [[message("好")]]),
        ("a_call_and_an_answer", [[call("look")], [message("42 件")]]),
        ("text_beside_a_call", [[REASONING, message("看看"), call("look")], [message("42")]]),
        (
            "two_calls_of_an_unknown_tool",
            [[call("no", call_id="a"), call("look", call_id="b")], [message("x")]],
        ),
        (
            "unknown_items",
            [[{"type": "new", "x": {"z": None, "a": "😀\ud800"}}, call("look")], [message("汉")]],
        ),
        ("a_refusal", [[message("", content=[{"type": "refusal", "refusal": "不"}])]]),
        ("an_empty_answer", [[call("look")], []]),
    ]
)
class TheSameRunStreamedOrNot(unittest.TestCase):
    """Same history, same answer or error, same requests but for `stream`."""

    def run_once(self, outputs: list[list[JsonObject]], stream: bool) -> tuple[Any, ...]:
        def streamed(output: list[JsonObject]) -> Raw:
            return Raw(STREAM, delta("一") + delta("二"), completed(*output))

        replies = [streamed(output) if stream else response(*output) for output in outputs]
        seen: list[AgentEvent] = []
        with ScriptedServer(*replies) as server:
            config = AgentLoopConfig(model="m", instructions="i", stream=stream)
            talk = Conversation(ResponsesClient(server.url, timeout=5), [LOOK], config, seen.append)
            try:
                outcome = talk.ask("问")
            except MiniPiError as error:
                outcome = repr(error)
        bodies = [{k: v for k, v in request.json.items() if k != "stream"} for request in server.requests]
        kinds = [event.type for event in seen if event.type != "text_delta"]
        self.assertEqual(any(event.type == "text_delta" for event in seen), stream)
        return outcome, talk.history, talk.usage, bodies, kinds

    def row(self, outputs: list[list[JsonObject]]) -> None:
        plain = self.run_once(outputs, stream=False)
        self.assertEqual(self.run_once(outputs, stream=True), plain)
        self.assertIn(outputs[0][0] if plain[1][1:] else {}, [*plain[1], {}])


if __name__ == "__main__":
    raise SystemExit(harness.main())
