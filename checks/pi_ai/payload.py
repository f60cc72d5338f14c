"""The growing request buffer: cheap, and never a stale or broken body."""

from __future__ import annotations

import json
import socket
import threading
import unittest
from typing import Any
from unittest import mock

from checks.support import harness
from checks.support.harness import JsonObject, call, message, response
from checks.support.server import ScriptedServer
from packages.pi_ai import MiniPiError, ResponsesClient, payload
from packages.pi_ai.payload import PayloadEncoder

SEED = 20260906


def user(text: str) -> JsonObject:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def output(text: str) -> JsonObject:
    return {"type": "function_call_output", "call_id": "call_1", "output": text}


def start() -> JsonObject:
    return {"model": "m", "tools": [{"name": "f"}], "input": [user("问"), call("f", {"a": 1}), output("b")]}


class Interrupted(list[int]):
    """A list during whose growth Ctrl-C comes."""

    def append(self, _: int) -> None:
        raise KeyboardInterrupt


def change(payload: JsonObject, how: Any) -> JsonObject:
    how(payload)
    return payload


@harness.table(
    [
        ("an_item_is_appended", lambda p: p["input"].append(output("c"))),
        ("nothing_changes", lambda p: None),
        ("the_last_item_is_dropped", lambda p: p["input"].pop()),
        ("all_items_are_dropped", lambda p: p["input"].clear()),
        ("the_input_becomes_another_list", lambda p: p.update(input=[user("other")])),
        ("the_first_item_is_replaced", lambda p: p["input"].__setitem__(0, user("else"))),
        ("an_item_is_inserted_in_front", lambda p: p["input"].insert(0, user("before"))),
        ("a_value_changes_in_place", lambda p: p["input"][1].update(name="g")),
        ("a_key_is_added_in_place", lambda p: p["input"][1].update(new=None)),
        ("a_key_is_removed_in_place", lambda p: p["input"][1].pop("status")),
        ("a_nested_value_changes_in_place", lambda p: p["input"][0]["content"][0].update(text="x")),
        ("a_nested_list_grows_in_place", lambda p: p["input"][0]["content"].append({"type": "x"})),
        ("an_item_that_was_a_dict_is_a_string", lambda p: p["input"].__setitem__(1, "text")),
        ("the_tools_change", lambda p: p.update(tools=[{"name": "only"}], tool_choice="required")),
        ("a_tool_changes_in_place", lambda p: p["tools"][0].update(name="renamed")),
        ("an_option_is_dropped", lambda p: p.pop("tools")),
        ("an_option_becomes_none", lambda p: p.update(tools=None)),
        ("head_and_items_change_at_once", lambda p: (p.update(model="a-longer-name"), p["input"].pop(0))),
        ("the_input_becomes_a_string", lambda p: p.update(input="just a question")),
        ("the_input_is_left_out", lambda p: p.pop("input")),
    ]
)
class TheBodyIsThePayload(unittest.TestCase):
    """Whatever happened to the payload since the last call, the body says what it says now."""

    def row(self, how: Any) -> None:
        encoder, sent = PayloadEncoder(), start()
        for _ in range(2):
            self.assertEqual(json.loads(encoder.encode(sent)), start())
        how(sent)
        now = {name: value for name, value in sent.items() if value is not None}
        for _ in range(2):
            self.assertEqual(json.loads(encoder.encode(sent)), now)
        self.assertEqual(bytes(encoder.encode(sent)), bytes(PayloadEncoder().encode(sent)))
        self.assertEqual(json.loads(encoder.encode(start())), start())


@harness.table(
    [
        ("not_a_number", {"input": [{"x": float("nan")}]}),
        ("infinity_in_the_head", {"temperature": float("inf"), "input": []}),
        ("bytes", {"input": [{"x": b"bytes"}]}),
        ("a_set", {"input": [{"x": {1}}]}),
        ("an_object_in_an_option", {"option": object(), "input": []}),
    ]
)
class WhatJsonCannotHold(unittest.TestCase):
    """An error of ours that says so, and the encoder works on afterwards."""

    def row(self, bad: JsonObject) -> None:
        encoder = PayloadEncoder()
        encoder.encode(start())
        with self.assertRaisesRegex(MiniPiError, "JSON.*请"):
            encoder.encode(bad)
        self.assertEqual(json.loads(encoder.encode(start())), start())


class TheBuffer(unittest.TestCase):
    def test_input_comes_last_and_is_a_prefix_of_the_next_body(self) -> None:
        encoder = PayloadEncoder()
        sent = {"input": [user("问")], "model": "m", "store": False}
        first = bytes(encoder.encode(sent))
        sent["input"] += [call("f"), output("b")]  # type: ignore[operator]
        second = bytes(encoder.encode(sent))
        self.assertTrue(first.startswith(b'{"model":"m","store":false,"input":['))
        self.assertTrue(second.startswith(first.removesuffix(b"]}") + b","))

    def test_each_item_is_encoded_once_in_a_long_run(self) -> None:
        encoder, history = PayloadEncoder(), [user("问")]
        encode = mock.Mock(side_effect=payload._json)
        with mock.patch.object(payload, "_json", encode):
            for turn in range(50):
                body = encoder.encode({"model": "m", "input": history})
                self.assertEqual(json.loads(body)["input"], history)
                history.append(output(str(turn)))
        self.assertLessEqual(encode.call_count, 50 + 1)

    def test_other_planes_are_sent_as_they_are_and_half_a_pair_as_a_replacement_character(self) -> None:
        body = bytes(PayloadEncoder().encode({"input": [output("汉😀\ud83d!"), output('\x00\u2028\\"')]}))
        self.assertIn("汉😀\ufffd!".encode(), body)
        self.assertEqual(json.loads(body)["input"], [output("汉😀\ufffd!"), output('\x00\u2028\\"')])

    def test_the_two_halves_of_a_pair_are_joined(self) -> None:
        body = PayloadEncoder().encode(
            {"model": "\ud83d\ude00", "\udc80": 1, "input": [output("\ud83d\ude00")]}
        )
        self.assertEqual(json.loads(body), {"model": "😀", "\ufffd": 1, "input": [output("😀")]})

    def test_what_python_holds_for_equal_is_sent_as_it_is_now(self) -> None:
        for values in (
            (True, 1, 1.0),
            (False, 0, 0.0, -0.0),
            ([1], [True]),
            ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ):
            encoder = PayloadEncoder()
            for value in (*values, *reversed(values)):
                for sent in ({"x": value, "input": []}, {"input": [{"x": value}, output("a")]}):
                    fresh = bytes(PayloadEncoder().encode(sent))
                    with self.subTest(value=value):
                        self.assertEqual(bytes(encoder.encode(sent)), fresh)

    def test_no_key_with_a_null_value_is_sent_but_nulls_inside_items_are(self) -> None:
        body = json.loads(PayloadEncoder().encode({"a": None, "input": [{"encrypted_content": None}]}))
        self.assertEqual(body, {"input": [{"encrypted_content": None}]})

    def test_random_edits_never_leave_a_stale_body(self) -> None:
        import random

        draw, encoder = random.Random(SEED), PayloadEncoder()
        history: list[JsonObject] = []
        for step in range(2000):
            kind = draw.randrange(6)
            if kind < 3 or not history:
                history.append(output("".join(map(chr, draw.choices(range(32, 0xD800), k=5)))))
            elif kind == 3:
                del history[draw.randrange(len(history)) :]
            elif kind == 4:
                draw.choice(history)["output"] = f"changed {step}"
            else:
                history[draw.randrange(len(history))] = user(str(step))
            if draw.random() < 0.7:
                sent = {"model": draw.choice("ab"), "input": history}
                self.assertEqual(json.loads(encoder.encode(sent)), sent, f"seed {SEED}, step {step}")

    def test_an_interrupted_encoding_leaves_nothing_behind(self) -> None:
        encoder = PayloadEncoder()
        encoder.encode(start())
        grown = change(start(), lambda p: p["input"].append(output("c")))
        encoder._ends = Interrupted(encoder._ends)
        with self.assertRaises(KeyboardInterrupt):
            encoder.encode(grown)
        self.assertEqual(json.loads(encoder.encode(grown)), grown)

    def test_an_error_that_is_kept_does_not_lock_the_buffer(self) -> None:
        kept: list[BaseException] = []
        with socket.create_server(("127.0.0.1", 0)) as listener:  # takes what is sent, and reads nothing
            client = ResponsesClient(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=0.2)
            for turn in range(3):
                try:
                    client.create({"input": [user("x" * 8_000_000), *[user("问")] * turn]})
                except MiniPiError as error:
                    kept.append(error)
        self.assertEqual([type(each).__name__ for each in kept], ["ModelRequestError"] * 3)
        for each in kept:
            self.assertRegex(str(each), "超时")
            self.assertIsNone(each.__context__, "a context keeps frames, and the buffer in them, alive")

    def test_threads_that_share_a_client_do_not_share_a_buffer(self) -> None:
        seen: dict[int, list[Any]] = {}

        def work(client: ResponsesClient, number: int) -> None:
            history = [user(f"thread {number}")]
            for turn in range(5):
                client.create({"model": "m", "thread": number, "input": history})
                history.append(output(f"{number}/{turn}"))
            seen[number] = history[:-1]

        with ScriptedServer(response(message("x")), forever=True) as server:
            client = ResponsesClient(server.url)
            threads = [threading.Thread(target=work, args=(client, number)) for number in range(32)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(len(server.requests), 32 * 5)
        self.assertLessEqual(server.connections, 32)
        for number, history in seen.items():
            last = [request.json for request in server.requests if request.json["thread"] == number][-1]
            self.assertEqual(last["input"], history)


if __name__ == "__main__":
    raise SystemExit(harness.main())
