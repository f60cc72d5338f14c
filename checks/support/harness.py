"""What every check shares: tables of named rows, the strict scripted model, the closing line."""

from __future__ import annotations

import copy
import json
import signal
import sys
import unittest
from collections.abc import Callable, Iterable
from typing import Any

from packages.qianchat.arguments import Parser

JsonObject = dict[str, Any]


def table(rows: Iterable[tuple[Any, ...]]) -> Callable[[type], type]:
    """Class decorator: one test per row (name, *values), which calls `self.row(*values)`."""

    def add_rows(case: type) -> type:
        for name, *values in rows:
            method = f"test_{name}"
            if hasattr(case, method):
                raise ValueError(f"two rows are named {name!r}")
            setattr(case, method, lambda self, values=values: self.row(*values))
        return case

    return add_rows


def main(module: str = "__main__") -> int:
    """Run one module's checks, print `N passed, N failed` last, return the exit status.

    Words on the command line pick the tests whose name contains one of them.
    """
    # A shell that starts us in the background lets us and our children ignore Ctrl-C, which checks send.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # likewise nohup
    words = _words(module)
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[module])
    if words:
        suite = unittest.TestSuite(t for t in _flat(suite) if any(w in t.id() for w in words))
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=0).run(suite)
    # A row that fails in several subtests is one failed row; a class that cannot start is one too.
    failed = {getattr(test, "test_case", test) for test, _ in result.failures + result.errors}
    failed |= set(result.unexpectedSuccesses)
    ran = sum(isinstance(test, unittest.TestCase) for test in failed)
    passed = result.testsRun - ran - len(result.skipped)
    for test, reason in result.skipped:
        print(f"skipped: {test.id()}: {reason}")
    skipped = f", {len(result.skipped)} skipped" if result.skipped else ""
    print(f"{passed} passed, {len(failed)} failed{skipped}", flush=True)
    return 0 if not failed and passed > 0 else 1


def _words(module: str) -> list[str]:
    spec = getattr(sys.modules[module], "__spec__", None)
    parser = Parser(
        prog=f"python3 -m {spec.name if spec else module}",
        description="运行这一组检查。最后一行是 N passed, N failed；全部通过时退出码为 0。",
    )
    parser.add_argument("words", nargs="*", metavar="WORD", help="只运行名字里含有其中一个词的检查")
    words: list[str] = parser.parse_args().words
    return words


def _flat(suite: unittest.TestSuite) -> Iterable[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from _flat(test)
        else:
            yield test


def call(name: str, arguments: object = None, call_id: str = "call_1", **fields: object) -> JsonObject:
    """A function_call item; arguments that are no string are written as JSON."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    item = {"type": "function_call", "id": "fc_" + call_id, "call_id": call_id, "name": name}
    return {**item, "arguments": text, "status": "completed", **fields}


def message(text: str, **fields: object) -> JsonObject:
    """An assistant message item with one output_text part."""
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    return {**item, "content": [part], **fields}


def response(*output: object, **fields: object) -> JsonObject:
    """A complete Responses answer around the output items."""
    body: JsonObject = {"id": "resp_1", "object": "response", "status": "completed", "model": "scripted"}
    body |= {"output": list(output), "error": None, "incomplete_details": None}
    body["usage"] = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    return {**body, **fields}


class ScriptedModel:
    """A strict model: keeps a deep copy of each request, plays each step once, and complains
    when asked once too often (at once) or once too seldom (on leaving the `with` block).

    A step is a response, an exception to raise, or a function of the request that returns one.
    """

    def __init__(self, *steps: Any) -> None:
        self.steps = list(steps)
        self.requests: list[JsonObject] = []

    def create(self, payload: JsonObject, on_text: Callable[[str], None] | None = None) -> JsonObject:
        self.requests.append(copy.deepcopy(payload))
        if len(self.requests) > len(self.steps):
            raise AssertionError(f"asked {len(self.requests)} times, scripted {len(self.steps)}")
        step = self.steps[len(self.requests) - 1]
        if callable(step):
            step = step(self.requests[-1])
        if isinstance(step, BaseException):
            raise step
        if on_text is not None:
            for item in step.get("output") or []:
                for part in item.get("content") or []:
                    for character in part.get("text") or "":
                        on_text(character)
        return copy.deepcopy(step)

    def __enter__(self) -> ScriptedModel:
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if kind is None and len(self.requests) < len(self.steps):
            raise AssertionError(f"asked {len(self.requests)} times, scripted {len(self.steps)}")
