"""What a model can put into the arguments of a call: 100,000 strings and as many values, made from a seed.

The seed is printed; `SOAK_SEED=N` repeats a run. Each outcome is compared with what a second, slower
reading of the rules says; nothing but our own errors comes out, and nothing hangs.
"""

from __future__ import annotations

import json
import math
import os
import random
import time
import unittest
from collections.abc import Callable, Iterator
from typing import Any

from checks.support import harness
from packages.pi_agent import AgentTool, ToolResult
from packages.pi_agent.answer import written_call
from packages.pi_ai import JsonObject, ProtocolError, parse_function_calls

SEED = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randrange(2**32))
COUNT = 100_000
SECONDS = 10  # of CPU for one input; the longest takes a fraction of one
TOKENS = [
    *'{}[],:" \t\n\\',
    *(
        '"a"',
        '"path"',
        "0",
        "-1",
        "1.5",
        "1e999",
        "NaN",
        "-Infinity",
        "true",
        "null",
        "\\u",
        "\\ud800",
        "\ufeff",
    ),
    *('{"path": ', '"reports"', "{}", "[[", "]]", "'", "//", "```json", "</tool_call>", "日", "\0", "\udc00"),
]
WRITTEN = [
    *TOKENS,
    '{"name": "f", ',
    '"arguments": ',
    "<tool_call>",
    "<function=f>",
    "f(",
    ")",
    "f",
    "Action: ",
    "<|",
    "|>",
]


class Slow(unittest.TestCase):
    def setUp(self) -> None:
        self.random = random.Random(f"{SEED} {self.id()}")

    def timed(self, inputs: Iterator[Any]) -> Iterator[Any]:
        """The inputs one by one; the caller's work on each must not take long."""
        for number, each in enumerate(inputs):
            started = time.process_time()
            yield each
            self.assertLess(time.process_time() - started, SECONDS, f"seed {SEED}, number {number}")


def value(pick: random.Random, depth: int = 0) -> Any:
    kind = pick.randrange(10 if depth < 4 else 8)
    if kind == 8:
        return [value(pick, depth + 1) for _ in range(pick.randrange(4))]
    if kind == 9:
        return {text(pick): value(pick, depth + 1) for _ in range(pick.randrange(4))}
    return [None, True, False, pick.randrange(-5, 5), 10**30, pick.uniform(-9, 9), "", text(pick)][kind]


def text(pick: random.Random) -> str:
    return "".join(
        chr(pick.randrange(pick.choice((128, 0x3000, 0x110000)))) for _ in range(pick.randrange(8))
    )


def damaged(pick: random.Random, whole: str) -> str:
    """A string with a few places cut out, doubled or replaced."""
    for _ in range(pick.randrange(1, 4)):
        start = pick.randrange(len(whole) + 1)
        end = start + pick.randrange(4)
        whole = whole[:start] + pick.choice(("", whole[start:end] * 2, pick.choice(TOKENS))) + whole[end:]
    return whole


def nested(pick: random.Random) -> str:
    depth = pick.choice((3, 98, 99, 100, 101, 500, 5_000))
    opening, closing = pick.choice((("[", "]"), ('{"a":', "}")))
    return f'{{"path": {opening * depth}0{closing * pick.choice((depth, depth, 0))}}}'


def strings(pick: random.Random) -> Iterator[str]:
    for number in range(COUNT):
        kind = number % 8
        if number % 10_000 == 0:
            yield pick.choice(('{"a": "%s"}', '{"a": %s}', "%s")) % (
                pick.choice(("x", "1", "[", "\\", '"')) * 2**20
            )
        elif number % 500 == 0:
            yield nested(pick)
        elif kind == 0:
            yield text(pick)
        elif kind < 4:
            yield "".join(pick.choice(TOKENS) for _ in range(pick.randrange(12)))
        else:
            whole = json.dumps({text(pick): value(pick)}, ensure_ascii=pick.random() < 0.5)
            yield damaged(pick, whole) if kind < 7 else whole


def acceptable(given: str) -> bool:
    """Whether a string is one object of strict JSON, at most 100 levels deep."""

    def once(pairs: list[tuple[str, Any]]) -> JsonObject:
        if len({key for key, _ in pairs}) < len(pairs):
            raise ValueError("a key twice")
        return dict(pairs)

    def finite(digits: str) -> float:
        if not math.isfinite(float(digits)):
            raise ValueError("no number")
        return float(digits)

    try:
        found = json.loads(given, object_pairs_hook=once, parse_constant=finite, parse_float=finite)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and depth(found) <= 100


def depth(found: Any) -> int:
    deepest, level = 0, [found]
    while level := [each for each in level if isinstance(each, dict | list)]:
        deepest += 1
        level = [child for each in level for child in (each.values() if isinstance(each, dict) else each)]
    return deepest


class ArgumentsAsStrings(Slow):
    def test_are_one_object_of_strict_json_or_a_protocol_error(self) -> None:
        outcomes = {True: 0, False: 0}
        for given in self.timed(strings(self.random)):
            item = {"type": "function_call", "name": "f", "call_id": "c", "arguments": given}
            try:
                [call] = parse_function_calls([item])
            except ProtocolError as error:
                accepted = False
                str(error).encode()
                self.assertIn("请", str(error))
            else:
                accepted = True
                json.dumps(call.arguments, ensure_ascii=False, allow_nan=False).encode()
            self.assertEqual(accepted, acceptable(given), f"seed {SEED}: {given[:200]!r}")
            outcomes[accepted] += 1
        self.assertGreater(min(outcomes.values()), COUNT // 20, "both outcomes were tried")

    def test_items_of_any_shape_are_calls_or_a_protocol_error(self) -> None:
        pick = self.random
        for _ in range(COUNT // 5):
            keys = ("type", "name", "call_id", "arguments", "id", "status")
            item = {key: value(pick) for key in keys if pick.random() < 0.8} | {"type": "function_call"}
            if pick.random() < 0.5:
                item |= {"name": "f", "call_id": "c"}
            try:
                [call] = parse_function_calls([item])
            except ProtocolError:
                continue
            self.assertEqual((call.call_id, type(call.arguments)), (item["call_id"], dict))


SCHEMAS: list[JsonObject] = [
    {"type": "string"},
    {"type": "string", "minLength": 2},
    {"type": "string", "enum": ["a", "日"]},
    {"type": "integer"},
    {"type": "number"},
    {"type": "boolean"},
    {"type": "null"},
    {"type": ["string", "null"]},
    {"type": "array"},
    {"type": "array", "items": {"type": "integer"}},
    {
        "type": "object",
        "properties": {"y": {"type": "boolean"}},
        "required": ["y"],
        "additionalProperties": False,
    },
    {},
]


def fits(given: Any, schema: JsonObject) -> bool:
    """A second reading of the rules, by the type of the value."""
    name = {str: "string", bool: "boolean", type(None): "null", list: "array", dict: "object"}.get(
        type(given), ""
    )
    names = {name} if name else {"number"} | ({"integer"} if type(given) is int else set())
    kinds = schema.get("type", list(names))
    if not names & set([kinds] if isinstance(kinds, str) else kinds):
        return False
    if "enum" in schema and given not in schema["enum"]:
        return False
    if name == "string":
        return len(given) >= int(schema.get("minLength", 0))
    if name == "array":
        return all(fits(each, schema.get("items", {})) for each in given)
    if name == "object":
        known = schema.get("properties", {})
        closed = schema.get("additionalProperties") is False
        return set(schema.get("required", [])) <= given.keys() and all(
            fits(each, known[key]) if key in known else not closed for key, each in given.items()
        )
    return True


def counted(ran: list[Any]) -> Callable[[Any], str]:
    def handler(arguments: Any) -> str:
        ran.append(arguments)
        return "ran"

    return handler


class ArgumentsAsValues(Slow):
    def values(self) -> Iterator[tuple[JsonObject, Any]]:
        pick = self.random
        for _ in range(COUNT):
            schema: JsonObject = {"type": "object", "properties": {"x": pick.choice(SCHEMAS)}}
            if pick.random() < 0.5:
                schema["required"] = ["x"]
            if pick.random() < 0.5:
                schema["additionalProperties"] = False
            given: Any = {"x": pick.choice((value(pick), "日", "a", {"y": True}, [1, 2], pick.randrange(9)))}
            if pick.random() < 0.2:
                given = pick.choice((value(pick), {}, {**given, text(pick): value(pick)}))
            yield schema, given

    def test_reach_the_handler_exactly_when_they_fit(self) -> None:
        outcomes = {True: 0, False: 0}
        for schema, given in self.timed(self.values()):
            ran: list[Any] = []
            result = AgentTool("f", "", schema, counted(ran)).execute(given)
            self.assertIsInstance(result, ToolResult)
            self.assertEqual(len(ran), 0 if result.is_error else 1)
            self.assertEqual(bool(ran), fits(given, schema), f"seed {SEED}: {given!r} for {schema}")
            outcomes[bool(ran)] += 1
        self.assertGreater(min(outcomes.values()), COUNT // 10, "both outcomes were tried")


class WrittenCalls(Slow):
    def texts(self) -> Iterator[str]:
        pick = self.random
        for number in range(COUNT // 2):
            size = 20_000 if number % 5_000 == 0 else 12
            parts = [pick.choice(WRITTEN) for _ in range(pick.randrange(size))]
            yield "".join(parts) if number % 3 else pick.choice(WRITTEN) * pick.randrange(size)

    def test_name_a_registered_tool_or_none(self) -> None:
        found = {written_call(given, ("f", "g")) for given in self.timed(self.texts())}
        self.assertEqual(found, {"f", None})


def load_tests(loader: unittest.TestLoader, suite: unittest.TestSuite, pattern: object) -> unittest.TestSuite:
    print(f"SOAK_SEED={SEED}", flush=True)
    return suite


if __name__ == "__main__":
    raise SystemExit(harness.main())
