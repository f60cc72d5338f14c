"""64 failures that others reported in public, each driven through a real server, the client and the loop.

checks/fixtures/protocol.jsonl holds them: what a server sent, or refused to be sent, and what is
expected here. A row whose server only objects to what a client sends gets a server that looks for
exactly that.
"""

from __future__ import annotations

import gzip
import json
import os
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from checks.support import harness
from checks.support.harness import JsonObject, call, message, response
from checks.support.server import Raw, Reply, Request, ScriptedServer
from packages.pi_agent import AgentEvent, AgentLoopConfig, AgentTool, Conversation, run_agent
from packages.pi_ai import AgentRunError, MiniPiError, ModelRequestError, ProtocolError, ResponsesClient

MIB = 1024 * 1024
LINES = (Path(__file__).parent.parent / "fixtures" / "protocol.jsonl").read_text("utf-8").splitlines()
CASES: dict[str, JsonObject] = {case["id"]: case for case in map(json.loads, LINES)}
ERRORS: dict[str, type[MiniPiError]] = {
    "protocol_error": ProtocolError,
    "request_error": ModelRequestError,
    "run_error": AgentRunError,
}
ANSWER = response(message("12:00"))
THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "hmm"}],
}

EXECUTED: list[JsonObject] = []


def run_tool(arguments: Any) -> str:
    EXECUTED.append(dict(arguments))
    return "12:00"


TOOLS = [
    AgentTool(name, "看时间", {"type": "object", "properties": {}}, run_tool)
    for name in ("get_time", "shell")
]


class Server(ScriptedServer):
    """A scripted server that a whole conversation runs against."""

    def config(self, **settings: Any) -> AgentLoopConfig:
        return AgentLoopConfig(**{"model": "m", "instructions": "回答问题。", "max_turns": 4, **settings})

    def ask(self, key: str | None = None, ending: str = "", timeout: float = 60, **settings: Any) -> str:
        EXECUTED.clear()
        asker = ResponsesClient(self.url + ending, key, timeout)
        return run_agent(asker, TOOLS, self.config(**settings), "几点了？")


def reply(received: JsonObject) -> Any:
    """The bytes that the row describes: a response, or a status with headers and body."""
    if "raw" in received and not received.get("headers"):
        try:
            return Reply(received["http"], {}, bytes.fromhex(received["raw"]))
        except ValueError:
            return Raw()  # the row says in words that the connection dies
    status = received.get("http", received.get("status"))
    if not isinstance(status, int):
        return Reply(200, body=received)
    headers = dict(received.get("headers", {}))
    if "content_type" in received:
        headers["Content-Type"] = received["content_type"]
    body = (
        json.dumps(received["body"])
        if isinstance(received.get("body"), dict | list)
        else received.get("body", "")
    )
    return Reply(status, {name: value.encode().decode("latin-1") for name, value in headers.items()}, body)


def objects_unless(fine: Callable[[JsonObject], bool], case: JsonObject, then: JsonObject = ANSWER) -> Any:
    """A server that answers what is fine, and refuses everything else with the row's own words."""
    received = case["received"]
    return lambda request: then if fine(request.json) else reply({"http": 400, **received})


def items(payload: JsonObject, kind: str) -> list[JsonObject]:
    return [item for item in payload["input"] if item.get("type") == kind]


def no_nulls(payload: JsonObject) -> bool:
    tools = [tool for tool in payload["tools"] if None in tool.values()]
    return None not in payload.values() and not tools


@harness.table(
    [(f"{case['id']}_{case['expect']}", case) for case in CASES.values() if case["expect"] in ERRORS]
)
class Errors(unittest.TestCase):
    """Ours, of the kind expected, naming the turn and what to do; nothing executed, history fit to send."""

    def row(self, case: JsonObject) -> None:
        received = case["received"]
        settings: JsonObject = {}
        replies = [reply(received)]
        if case["id"] == "A10":  # a server that cannot bear its own half call: it must not get it back
            replies = [reply(received["step1"])]
        if case["id"] == "A11":
            settings = {"request_options": {"max_output_tokens": received["usage"]["output_tokens"]}}
        if case["id"] == "G02":
            settings = {"required_tool_names": ("get_time",)}
        if case["id"] == "E09":
            replies = [response(call("get_time", {"city": "Rome"}, call_id=f"c{turn}")) for turn in range(4)]
        kind: type[MiniPiError] = ERRORS[case["expect"]]
        with Server(*replies) as server, self.assertRaises(kind) as caught:
            server.ask(**settings)
        error = caught.exception
        self.assertRegex(str(error), f"^第 {len(replies)} 轮：.*(请|可以调大)")
        self.assertEqual(error.turn, len(replies))
        self.assertEqual(len(EXECUTED), len(replies) if case["id"] == "E09" else 0)
        self.assert_fit_to_send(error.history or [])
        for words in self.words(case):
            self.assertIn(words, str(error))

    def words(self, case: JsonObject) -> list[str]:
        """What the message must say: the server's words, the reason, the status."""
        received = case["received"]
        body = received.get("body", {}) if isinstance(received, dict) else {}
        said = [body["error"]] if isinstance(body, dict) and isinstance(body.get("error"), str) else []
        if isinstance(body, dict) and isinstance(body.get("error"), dict):
            said = [body["error"].get("message") or body["error"]["type"]]
        if isinstance(body, dict) and isinstance(body.get("detail"), str):
            said = [body["detail"]]
        reasons = {
            "E03": "max_output_tokens",
            "E05": "max_output_tokens",
            "E11": "chat template",
            "I02": "No.",
        }
        reasons |= {
            "I03": "content_filter",
            "H08": "body.input: Field required",
            "H27": "上下文超出",
            "B04": "c0",
        }
        status = received.get("http") or received.get("status")
        said += (
            [f"HTTP {status}"]
            if case["expect"] == "request_error" and isinstance(status, int) and status != 200
            else []
        )
        return [words.rstrip(".。") for words in said] + [
            reasons[case["id"]] for _ in range(case["id"] in reasons)
        ]

    def assert_fit_to_send(self, history: list[JsonObject]) -> None:
        calls = [item["call_id"] for item in history if item.get("type") == "function_call"]
        outputs = [item["call_id"] for item in history if item.get("type") == "function_call_output"]
        self.assertEqual(sorted(calls), sorted(outputs))


@harness.table(
    [
        (f"{case['id']}_{case['expect']}", case)
        for case in CASES.values()
        if case["expect"] in ("answer", "retry")
    ]
)
class Answers(unittest.TestCase):
    """The text comes back, at once or after the server was no longer busy."""

    TEXT = {
        "C07": "Hi",
        "C08": "ping",
        "F06": "Hello",
        "F07": "Okay, the user asked ... The answer is 2.",
        "H03": "API call failed after 3 retries",
    }

    def row(self, case: JsonObject) -> None:
        replies, least = [reply(case["received"])], 0.0
        if case["expect"] == "retry":
            replies.append(ANSWER)
            header = case["received"].get("headers", {}).get("Retry-After", "")
            least = float(header) if header.isascii() and header.isdecimal() else 0.1
        slept: list[float] = []
        with Server(*replies) as server, mock.patch("time.sleep", slept.append):
            self.assertEqual(server.ask(), self.TEXT.get(case["id"], "12:00"))
        self.assertEqual(len(slept), len(replies) - 1)
        self.assertTrue(all(least <= wait <= least + 1 for wait in slept), slept)


class ToolErrors(unittest.TestCase):
    def test_b10_an_unknown_tool_is_told_to_the_model_with_the_known_ones(self) -> None:
        with Server(reply(CASES["B10"]["received"]), ANSWER) as server:
            self.assertEqual(server.ask(), "12:00")
        (output,) = items(server.requests[1].json, "function_call_output")
        for name in ("search_files", "get_time", "shell"):
            self.assertIn(name, output["output"])


class Accepted(unittest.TestCase):
    """The run goes on: what the server objects to is never sent, what it sends is taken."""

    def replayed(self, *sent: JsonObject) -> None:
        """A response made of these items comes back unchanged, key by key and in order."""
        first = response(*sent, call("get_time", {"city": "Rome"}))
        with Server(first, ANSWER) as server:
            self.assertEqual(server.ask(), "12:00")
        again = server.requests[1].json["input"][1:-1]
        self.assertEqual(json.dumps(again), json.dumps(first["output"]))

    def strict(
        self, row: str, fine: Callable[[JsonObject], bool], *before: JsonObject, **settings: Any
    ) -> None:
        """A server that refuses a request that is not fine answers every request of a run."""
        checked = objects_unless(fine, CASES[row])
        first = [lambda request, one=one: one if fine(request.json) else checked(request) for one in before]
        with Server(*first, checked) as server:
            self.assertEqual(server.ask(**settings), "12:00")
            with (
                self.assertRaises(ModelRequestError),
                Server(objects_unless(lambda payload: False, CASES[row])) as refuser,
            ):
                refuser.ask(**settings)

    def test_b06_a_call_without_id(self) -> None:
        with Server(reply(CASES["B06"]["received"]), ANSWER) as server:
            self.assertEqual(server.ask(), "12:00")
        self.assertNotIn("id", items(server.requests[1].json, "function_call")[0])
        self.assertEqual(EXECUTED, [{"city": "Rome"}])

    def test_b07_the_final_object_of_a_stream_is_the_truth(self) -> None:
        received = CASES["B07"]["received"]
        done = {"type": "response.output_item.done", "item": received["item_done"]}
        final = {"type": "response.completed", "response": received["completed"]}
        lines = "".join(f"data: {json.dumps(event)}\n\n" for event in (done, final))
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
        with Server(Raw(head, lines.encode()), ANSWER) as server:
            self.assertEqual(server.ask(stream=True), "12:00")
        sent = server.requests[1].json
        pairs = [items(sent, kind)[0]["call_id"] for kind in ("function_call", "function_call_output")]
        self.assertEqual(pairs, ["chatcmpl-tool-b"] * 2)

    def test_c10_reasoning_is_replayed_byte_for_byte(self) -> None:
        self.replayed({**THOUGHT, "encrypted_content": None, "status": None})
        self.replayed(CASES["C10"]["received"]["sent"])

    def test_d04_reasoning_keeps_its_place_and_neighbours(self) -> None:
        self.replayed(*CASES["D04"]["received"]["sent"], message("beside"), {**THOUGHT, "id": "rs_2"})

    def test_d07_the_status_of_items_is_kept(self) -> None:
        self.replayed(message("beside"), THOUGHT)
        self.strict(
            "D07", lambda p: all("status" in i for i in p["input"] if i.get("id")), response(call("get_time"))
        )

    def test_c13_the_question_is_one_input_text_part(self) -> None:
        expected = [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "几点了？"}]}
        ]
        with Server(CASES["C13"]["received"]["got"]) as server:
            self.assertEqual(server.ask(), "unrelated")
        self.assertEqual(server.requests[0].json["input"], expected)

    def test_d02_every_item_the_loop_adds_has_its_required_fields(self) -> None:
        def complete(payload: JsonObject) -> bool:
            return all("type" in item or item.get("role") == "user" for item in payload["input"])

        self.strict("D02", complete, response(message("beside"), call("get_time")))

    def test_d12_after_ctrl_c_in_a_tool_every_call_has_its_output(self) -> None:
        def interrupt(_: Any) -> str:
            raise KeyboardInterrupt

        def paired(payload: JsonObject) -> bool:
            ids = [[i["call_id"] for i in items(payload, f"function_call{end}")] for end in ("", "_output")]
            return ids[0] == ids[1] and len(set(ids[0])) == len(ids[0])

        two = response(call("get_time", call_id="call_1"), call("get_time", call_id="call_2"))
        with Server(two, objects_unless(paired, CASES["D12"])) as server:
            tool = AgentTool("get_time", "看时间", {"type": "object"}, interrupt)
            talk = Conversation(ResponsesClient(server.url), [tool], server.config())
            self.assertRaises(KeyboardInterrupt, talk.ask, "几点了？")
            self.assertEqual(talk.ask("还在吗？"), "12:00")

    def test_d16_a_further_question_never_leaves_the_assistant_last(self) -> None:
        def play(request: Request) -> JsonObject:
            last = request.json["input"][-1]
            return ANSWER if last.get("role") == "user" else CASES["D16"]["received"]

        with Server(play, play) as server:
            talk = Conversation(ResponsesClient(server.url), TOOLS, server.config())
            self.assertEqual([talk.ask("几点了？"), talk.ask("现在呢？")], ["12:00", "12:00"])

    def test_g06_strict_is_sent_as_the_tool_declares_it(self) -> None:
        self.strict("G06", lambda payload: all("strict" in tool for tool in payload["tools"]))

    def test_g07_description_and_parameters_are_never_null(self) -> None:
        self.strict(
            "G07", lambda p: all(t["description"] is not None and t["parameters"] for t in p["tools"])
        )

    def test_g10_no_key_is_sent_with_a_null_value(self) -> None:
        options = {"top_logprobs": None, "reasoning": None, "temperature": 0}
        self.strict("G10", no_nulls, response(call("get_time")), request_options=options)

    def test_h17_a_kept_connection_that_died_is_replaced_unseen(self) -> None:
        with Server(response(call("get_time")), reply(CASES["H17"]["received"]), ANSWER) as server:
            self.assertEqual(server.ask(), "12:00")

    def test_h20_gzip_is_decoded_in_answers_and_in_errors(self) -> None:
        headers = CASES["H20"]["received"]["headers"]
        with Server(Reply(200, headers, gzip.compress(json.dumps(ANSWER).encode()))) as server:
            self.assertEqual(server.ask(), "12:00")
        with Server(Reply(400, headers, gzip.compress(b'{"error": "packed"}'))) as server:
            self.assertRaisesRegex(ModelRequestError, "packed", server.ask)

    def test_h21_a_byte_order_mark_is_tolerated(self) -> None:
        with Server(reply(CASES["H21"]["received"])) as server:
            self.assertEqual(ResponsesClient(server.url).create({"input": []}), {})
        with Server(Reply(200, {}, b"\xef\xbb\xbf" + json.dumps(ANSWER).encode())) as server:
            self.assertEqual(server.ask(), "12:00")

    def test_h22_loopback_never_goes_through_a_proxy(self) -> None:
        with ScriptedServer() as proxy, Server(ANSWER) as server:
            names = dict.fromkeys(CASES["H22"]["received"]["env"], proxy.url)
            with mock.patch.dict(os.environ, {**names, "no_proxy": ""}):
                self.assertEqual(server.ask(), "12:00")
        self.assertEqual(proxy.requests, [])

    def test_h25_a_base_url_may_end_in_v1_or_not(self) -> None:
        def play(request: Request) -> Any:
            return ANSWER if request.path == "/v1/responses" else reply(CASES["H25"]["received"])

        with Server(play, forever=True) as server:
            for ending in ("", "/", "/v1", "/v1/"):
                self.assertEqual(server.ask(ending=ending), "12:00")


class LargeAndDeep(unittest.TestCase):
    def test_a_hundred_thousand_brackets_in_the_arguments(self) -> None:
        for text in ('{"a":' * 100_000, "[" * 100_000, '{"a":' + "[" * 100_000 + "]" * 100_000 + "}"):
            with Server(response(call("get_time", text))) as server:
                self.assertRaisesRegex(ProtocolError, "^第 1 轮：.*嵌套.*请", server.ask)
        self.assertEqual(EXECUTED, [])

    def test_a_hundred_thousand_brackets_in_the_body(self) -> None:
        with Server(Reply(200, {}, b'{"output":' + b"[" * 100_000)) as server:
            self.assertRaisesRegex(ProtocolError, "^第 1 轮：.*嵌套.*请", server.ask)

    def test_four_mebibytes_of_arguments_go_to_the_tool_and_back_whole(self) -> None:
        text = "汉" * (4 * MIB // 3)
        with Server(response(call("get_time", {"text": text})), ANSWER) as server:
            self.assertEqual(server.ask(), "12:00")
        self.assertEqual(EXECUTED, [{"text": text}])
        self.assertEqual(items(server.requests[1].json, "function_call"), [call("get_time", {"text": text})])

    def test_a_body_of_64_mebibytes_is_refused(self) -> None:
        with Server(Reply(200, {}, b" " * (64 * MIB))) as server:
            self.assertRaisesRegex(ModelRequestError, "^第 1 轮：.*太大.*请", server.ask)

    def test_no_half_of_a_surrogate_pair_reaches_the_wire(self) -> None:
        seen: list[AgentEvent] = []
        sent = [message("a\ud83d"), call("get_time", '{"x": "\\ud83d"}', call_id="c")]
        with Server(response(*sent), response(message("b\ude00"))) as server:
            answer = run_agent(ResponsesClient(server.url), TOOLS, server.config(), "问\ud800", seen.append)
        for shown in [answer, *(str(event) for event in seen)]:
            shown.encode()
        question, text, replayed, _ = server.requests[1].json["input"]
        self.assertEqual(question["content"][0]["text"], "问\ufffd")
        self.assertEqual(text["content"][0]["text"], "a\ufffd")
        self.assertEqual(replayed, sent[1])


class EveryRow(unittest.TestCase):
    def test_is_driven_by_a_check_that_bears_its_id(self) -> None:
        names = {
            name.split("_")[1].upper()
            for kind in (Errors, Answers, ToolErrors, Accepted)
            for name in dir(kind)
            if name.startswith("test_")
        }
        self.assertEqual(names, set(CASES))
        self.assertEqual(len(CASES), 64)

    def test_errors_in_later_turns_name_that_turn(self) -> None:
        for bad, kind in (
            (Reply(500), ModelRequestError),
            (response("x"), ProtocolError),
            (response(), AgentRunError),
        ):
            with Server(response(call("get_time")), bad) as server, self.assertRaises(kind) as caught:
                server.ask()
            error: MiniPiError = caught.exception
            self.assertTrue(str(error).startswith("第 2 轮："))
            self.assertEqual((error.turn, len(error.history or [])), (2, 3))


if __name__ == "__main__":
    raise SystemExit(harness.main())
