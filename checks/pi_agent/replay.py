"""What a model said goes back to it as it came, whatever it was and however the run ended.

A property check: random output items from a seed, which is printed; `REPLAY_SEED=N` repeats a run.
"""

from __future__ import annotations

import copy
import itertools
import json
import os
import random
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

from checks.support import harness
from checks.support.harness import ScriptedModel, call, message, response, table
from checks.support.server import Reply, ScriptedServer
from packages.pi_agent import AgentEvent, AgentLoopConfig, AgentTool, Conversation, run_agent
from packages.pi_ai import JsonObject, ModelRequestError, ProtocolError, ResponsesClient
from packages.pi_ai.reading import whole_characters

SEED = int(os.environ.get("REPLAY_SEED") or random.SystemRandom().randrange(2**32))
RUNS = 150
EACH_PLANE = [range(plane << 16, (plane << 16) + 0x10000) for plane in range(17)]
AWKWARD = [
    "\0",
    "\x1b",
    '"',
    "\\",
    "\n",
    "\u2028",
    "\ufeff",
    "\ufffe",
    "\ud800",
    "\udfff",
    "\udc80\ud83d",
    "\U0010ffff",
    "e\u0301",
]


class Maker:
    """Random JSON values and output items, all from one seed."""

    def __init__(self, seed: object) -> None:
        self.random = random.Random(f"{SEED} {seed}")

    def text(self) -> str:
        pick = self.random
        parts = [chr(pick.choice(pick.choice(EACH_PLANE))) for _ in range(pick.randrange(6))]
        return "".join([*parts, pick.choice([*AWKWARD, "", "type", "call_id"])])

    def value(self, depth: int = 0) -> Any:
        pick = self.random
        kind = pick.randrange(9 if depth < 4 else 7)
        if kind == 7:
            return [self.value(depth + 1) for _ in range(pick.randrange(4))]
        if kind == 8:
            return self.object(depth + 1)
        number = pick.choice([0, -1, 2**63, -(10**40), 1.5, -0.0, 1e-300, 1.7e308, 3.0])
        return [None, True, False, number, self.text(), self.text(), "{}"][kind]

    def object(self, depth: int = 0) -> JsonObject:
        return {self.text(): self.value(depth) for _ in range(self.random.randrange(5))}

    def shuffled(self, item: JsonObject) -> JsonObject:
        pairs = list(item.items())
        self.random.shuffle(pairs)
        return dict(pairs)

    def item(self) -> JsonObject:
        """Any output item but a call: reasoning, a message, or a type that nobody has heard of."""
        extra = {f"x_{self.text()}": self.value() for _ in range(self.random.randrange(3))}
        unknown = {"type": f"odd_{self.text()}", **extra}
        reasoning = {"type": "reasoning", "summary": [], "encrypted_content": self.value(), **extra}
        spoken = message(self.text(), phase=self.value(), **extra)
        return self.shuffled(
            self.random.choice([unknown, reasoning, spoken, {"type": self.value(2), **extra}])
        )

    def call(self, call_id: str) -> JsonObject:
        arguments = json.dumps(self.object(), ensure_ascii=self.random.random() < 0.5)
        extra = {f"x_{self.text()}": self.value() for _ in range(self.random.randrange(3))}
        name = self.random.choice(["tool", "tool", "failing", "unheard_of"])
        return self.shuffled(call(name, arguments, call_id, **extra))

    def output(self, prefix: str) -> list[JsonObject]:
        """The items of a response that asks for one to three calls."""
        items = [self.call(f"{prefix}_{n}") for n in range(self.random.randrange(1, 4))]
        items += [self.item() for _ in range(self.random.randrange(4))]
        self.random.shuffle(items)
        return items


def tools(handler: Callable[[Any], str] = lambda arguments: "ok") -> list[AgentTool]:
    def failing(arguments: Any) -> str:
        raise ValueError("failing")

    return [
        AgentTool("tool", "", {"type": "object"}, handler),
        AgentTool("failing", "", {"type": "object"}, failing),
    ]


CONFIG = AgentLoopConfig("m", "i")


class Replay(unittest.TestCase):
    def assert_each_call_has_one_output(self, history: list[JsonObject]) -> None:
        waiting: list[str] = []
        for item in history:
            if item.get("type") == "function_call":
                waiting.append(item["call_id"])
            elif item.get("type") == "function_call_output":
                self.assertIn(item["call_id"], waiting)
                waiting.remove(item["call_id"])
        self.assertEqual(waiting, [])

    def assert_sendable(self, history: list[JsonObject]) -> None:
        """Paired, and what a next question sends begins with exactly this."""
        self.assert_each_call_has_one_output(history)
        before = json.dumps(history)
        model = ScriptedModel(response(message("ok")))
        self.assertEqual(run_agent(model, tools(), CONFIG, "next", history=history), "ok")
        self.assertEqual(json.dumps(model.requests[0]["input"][:-1]), before)


class WhatGoesOutAgain(Replay):
    def test_is_equal_in_the_same_key_order_in_every_later_request(self) -> None:
        for run in range(RUNS):
            with self.subTest(seed=SEED, run=run):
                maker = Maker(run)
                outputs = [maker.output(f"c{turn}") for turn in range(3)]
                steps = [response(*copy.deepcopy(output)) for output in outputs]
                with ScriptedModel(*steps, response(maker.item() | message("end"))) as model:
                    run_agent(model, tools(), CONFIG, maker.text() + "?")
                for turn, request in enumerate(model.requests[1:], 1):
                    given = [json.dumps(item) for output in outputs[:turn] for item in output]
                    loops_own = ("function_call_output", None)
                    sent = [
                        json.dumps(item)
                        for item in request["input"][1:]
                        if item.get("type") not in loops_own or "output" not in item
                    ]
                    self.assertEqual(sent, given)
                    self.assert_each_call_has_one_output(request["input"])

    def test_has_the_same_bytes_in_every_request_on_the_wire(self) -> None:
        for run in range(RUNS // 5):
            with self.subTest(seed=SEED, run=run):
                maker = Maker(f"wire {run}")
                outputs = [maker.output(f"c{turn}") for turn in range(4)]
                replies = [Reply(200, body=response(*output)) for output in outputs]
                with ScriptedServer(*replies, response(message("end"))) as server:
                    run_agent(ResponsesClient(server.url), tools(), CONFIG, "q")
                for earlier, later in itertools.pairwise(server.requests):
                    self.assertTrue(later.body.startswith(earlier.body.removesuffix(b"]}")))
                sent = json.loads(server.requests[-1].body)["input"]
                for item in (item for output in outputs for item in output):
                    on_the_wire = json.dumps(
                        json.loads(whole_characters(json.dumps(item, ensure_ascii=False))), ensure_ascii=False
                    )
                    self.assertIn(on_the_wire, [json.dumps(each, ensure_ascii=False) for each in sent])

    def test_is_the_same_after_saving_and_loading(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for run in range(RUNS // 5):
                with self.subTest(seed=SEED, run=run):
                    maker, path = Maker(f"saved {run}"), Path(folder) / "chat.json"
                    steps = [response(*maker.output("c")), response(message("end"))]
                    conversation = Conversation(ScriptedModel(*steps), tools(), CONFIG)
                    conversation.ask("q")
                    conversation.save(path)
                    model = ScriptedModel(response(message("ok")))
                    Conversation.load(path, model, tools(), CONFIG).ask("next")
                    self.assertEqual(
                        json.dumps(model.requests[0]["input"][:-1]), json.dumps(conversation.history)
                    )


class StopError(Exception):
    """Not one of ours."""


def nth(number: int, error: BaseException) -> Callable[[Any], str]:
    """A handler or sink that raises on its n-th call, counted from 0."""
    seen = iter(range(10**9))

    def function(_: Any) -> str:
        if next(seen) == number:
            raise error
        return "ok"

    return function


HALF_CALL = call("tool", '{"path": "rep')


@table(
    [
        ("an_answer", [response(message("end"))]),
        ("an_empty_response", [response()]),
        ("blank_text", [response(message(" "))]),
        ("a_refusal", [response({"type": "message", "content": [{"type": "refusal", "refusal": "no"}]})]),
        (
            "a_content_filter",
            [response(message("x"), call("tool"), incomplete_details={"reason": "content_filter"})],
        ),
        ("an_incomplete_response", [response(message("x"), call("tool", {}, "z"), status="incomplete")]),
        (
            "an_incomplete_response_with_half_a_call",
            [response(call("tool", {}, "y"), HALF_CALL, status="incomplete")],
        ),
        ("a_response_that_reached_the_cap", [response(call("tool", {}, "z"), max_output_tokens=5)]),
        ("half_a_call", [response(message("x"), call("tool", {}, "y"), HALF_CALL)]),
        ("arguments_that_are_no_json", [response(call("tool", {}, "y"), call("tool", "reports"))]),
        ("a_call_without_a_name", [response(call("tool", {}, "y"), call(""))]),
        (
            "a_call_without_an_id",
            [response(call("tool", {}, "y"), {"type": "function_call", "name": "tool"})],
        ),
        ("a_call_id_twice", [response(call("tool", {}, "y"), call("tool", {}, "y"))]),
        (
            "an_output_from_the_server",
            [response(call("tool", {}, "y"), {"type": "function_call_output", "call_id": "y"})],
        ),
        ("an_output_without_an_id", [response(call("tool", {}, "y"), {"type": "function_call_output"})]),
        ("no_output", [{"id": "r"}]),
        ("an_output_that_is_no_list", [response() | {"output": {}}]),
        ("a_failure_under_http_200", [response(call("tool"), status="failed")]),
        ("a_call_as_text", [response(message('{"name": "tool", "arguments": {}}'))]),
        ("a_request_error", [ModelRequestError("gone", 500)]),
        ("a_protocol_error", [ProtocolError("nonsense")]),
        ("ctrl_c_in_the_request", [KeyboardInterrupt()]),
        ("a_client_s_bug", [StopError()]),
        ("a_client_that_returns_none", [lambda request: None]),
        ("the_turn_limit", [response(call("tool", {}, f"t{n}")) for n in range(8)]),
    ]
)
class AfterARunThatEndsWith(Replay):
    """Two random turns first, then this end: the history is whole and can be sent again."""

    def row(self, last: list[Any]) -> None:
        for run in range(5):
            with self.subTest(seed=SEED, run=run):
                maker = Maker(f"end {run}")
                outputs = [maker.output(f"c{turn}") for turn in range(2)]
                history: list[JsonObject] = []
                model = ScriptedModel(*[response(*output) for output in outputs], *last)
                ended: BaseException | None = None
                try:
                    run_agent(model, tools(), CONFIG, "q", history=history)
                except (Exception, KeyboardInterrupt) as error:
                    ended = error
                self.assertNotIsInstance(ended, AssertionError)
                kept = [json.dumps(item) for item in history]
                for item in (item for output in outputs for item in output):
                    self.assertIn(json.dumps(item), kept)
                self.assert_sendable(history)


class AfterAnInterruption(Replay):
    def interrupted(self, maker: Maker, kind: type[BaseException], **parts: Any) -> bool:
        """Whether a random run of two turns was interrupted; either way its history must be whole."""
        steps = [response(*maker.output(f"c{turn}")) for turn in range(2)]
        history: list[JsonObject] = []
        ended = False
        try:
            handler, emit = parts.get("handler", lambda _: "ok"), parts.get("emit")
            model = ScriptedModel(*steps, response(message("end")))
            run_agent(model, tools(handler), CONFIG, "q", emit, history=history)
        except kind:
            ended = True
        self.assert_sendable(history)
        return ended

    def test_by_ctrl_c_or_a_bug_inside_each_call_of_a_tool(self) -> None:
        for kind in (KeyboardInterrupt, StopError, SystemExit):
            for run in range(20):
                number = 0
                while self.interrupted(Maker(f"tool {run}"), kind, handler=nth(number, kind())):
                    number += 1

    def test_by_the_sink_at_each_event(self) -> None:
        for kind in (KeyboardInterrupt, StopError):
            for run in range(20):
                number = 0
                while self.interrupted(Maker(f"sink {run}"), kind, emit=nth(number, kind())):
                    number += 1
                self.assertGreater(number, 5, "every event was tried")

    def test_by_the_sink_from_some_event_on(self) -> None:
        def emit(event: AgentEvent) -> None:
            if event.type == "tool_result":
                broken.append(True)
            if broken:
                raise StopError

        broken: list[bool] = []
        self.interrupted(Maker("from now on"), StopError, emit=emit)


class TheMakerItself(unittest.TestCase):
    def test_reaches_every_plane_and_lone_surrogates(self) -> None:
        maker = Maker("planes")
        text = "".join(maker.text() for _ in range(2000))
        self.assertEqual({ord(character) >> 16 for character in text}, set(range(17)))
        self.assertRegex(text, "[\ud800-\udfff]")


def load_tests(loader: unittest.TestLoader, suite: unittest.TestSuite, pattern: object) -> unittest.TestSuite:
    print(f"REPLAY_SEED={SEED}", flush=True)
    return suite


if __name__ == "__main__":
    raise SystemExit(harness.main())
