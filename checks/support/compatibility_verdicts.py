"""What `checks.compatibility` says of servers whose abilities are known: each probe, each verdict."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest
from collections.abc import Callable
from typing import Any, cast
from unittest import mock

from checks import compatibility as probes
from checks.compatibility import FAILS, IGNORED, UNSEEN, WORKS, Finding, Server
from checks.support import harness
from checks.support.harness import JsonObject, ScriptedModel, call, message, response, table
from packages.pi_ai import ModelRequestError, ResponsesClient

CALL = response(call("get_weather", {"city": "北京"}))
TIME = response(call("get_time", {"city": "北京"}))
HELLO = response(message("你好"))
EMPTY = response(message(""))
REASONING: JsonObject = {"type": "reasoning", "id": "rs_1", "summary": [], "content": []}
REFUSED = ModelRequestError("POST … 返回 HTTP 400：Invalid tool_choice。请检查。", 400)
UNREACHED = ModelRequestError("POST … 无法连接。请启动它。")
NO_REASONING = ModelRequestError(
    "POST … 返回 HTTP 400：unknown field。服务器不接受 reasoning。请设置 QWEN_REASONING=。", 400
)
TOO_LONG = {"usage": {"input_tokens": 9, "output_tokens": 300}}
ONE_MORE = {"usage": {"input_tokens": 9, "output_tokens": 17}}
LONG = {"usage": {"input_tokens": 9, "output_tokens": 16}}


def cached(tokens: object) -> JsonObject:
    usage = {"input_tokens": 100, "output_tokens": 1, "input_tokens_details": {"cached_tokens": tokens}}
    return response(message("好"), usage=usage)


@table(
    [
        ("a_plain_answer", probes.plain_answer, [HELLO], WORKS),
        ("no_text_at_all", probes.plain_answer, [EMPTY], FAILS),
        ("a_call", probes.tool_call, [CALL], WORKS),
        ("a_call_written_as_text", probes.tool_call, [response(message('{"name": "get_weather"}'))], FAILS),
        ("an_answer_from_the_result", probes.replay, [CALL, response(message("晴，23 度"))], WORKS),
        ("an_answer_without_it", probes.replay, [CALL, response(message("不知道"))], FAILS),
        ("the_same_call_again", probes.replay, [CALL, CALL], FAILS),
        ("nothing_to_replay", probes.replay, [HELLO], FAILS),
        ("no_reasoning", probes.reasoning_items, [HELLO], UNSEEN),
        ("reasoning_taken_back", probes.reasoning_items, [response(REASONING, message("2")), HELLO], WORKS),
        ("a_required_tool", probes.required_tool, [TIME], WORKS),
        ("a_required_tool_ignored", probes.required_tool, [HELLO], IGNORED),
        ("a_named_tool", probes.named_tool, [TIME], WORKS),
        ("a_named_tool_ignored", probes.named_tool, [HELLO], IGNORED),
        ("a_named_tool_refused", probes.named_tool, [REFUSED], FAILS),
        ("no_tool", probes.no_tool, [HELLO], WORKS),
        ("a_tool_although_none", probes.no_tool, [CALL], IGNORED),
        ("a_stream", probes.streaming, [HELLO], WORKS),
        ("a_stream_in_one_piece", probes.streaming, [response(message("1"))], IGNORED),
        ("incomplete", probes.cut_off, [response(message("长"), status="incomplete")], WORKS),
        ("completed_at_the_cap", probes.cut_off, [response(message("长"), **LONG)], WORKS),
        ("cut_off_without_a_word", probes.cut_off, [HELLO], IGNORED),
        ("a_cap_that_is_ignored", probes.cut_off, [response(message("长"), **TOO_LONG)], IGNORED),
        (
            "incomplete_although_the_cap_did_not_hold",
            probes.cut_off,
            [response(message("长"), status="incomplete", **TOO_LONG)],
            IGNORED,
        ),
        (
            "one_more_for_the_end",
            probes.cut_off,
            [response(message("长"), status="incomplete", **ONE_MORE)],
            WORKS,
        ),
        ("reasoning_refused", probes.plain_answer, [NO_REASONING, HELLO], WORKS),
        ("reasoning_refused_with_tools", probes.tool_call, [NO_REASONING, CALL], WORKS),
        ("an_error_with_a_status", probes.error_body, [REFUSED], WORKS),
        ("a_wrong_field_taken", probes.error_body, [HELLO], IGNORED),
        ("an_error_without_a_status", probes.error_body, [UNREACHED], FAILS),
        ("a_cache", probes.cached_tokens, [cached(0), cached(90)], WORKS),
        ("a_cold_cache", probes.cached_tokens, [cached(0), cached(0)], IGNORED),
        ("no_word_of_a_cache", probes.cached_tokens, [HELLO, HELLO], UNSEEN),
    ]
)
class Verdicts(unittest.TestCase):
    def row(self, probe: Callable[[Server], Finding], steps: list[Any], verdict: str) -> None:
        with ScriptedModel(*steps) as model:
            finding = probe(Server(cast(ResponsesClient, model), "scripted"))
        self.assertEqual(finding.verdict, verdict, finding)
        if verdict in (FAILS, IGNORED) and not isinstance(steps[-1], ModelRequestError):
            self.assertTrue(finding.advice, "what does not work comes with what to do")


class AllProbes(unittest.TestCase):
    def test_a_server_that_is_not_there_is_a_finding_of_every_probe(self) -> None:
        model = ScriptedModel(*[UNREACHED] * len(probes.PROBES))
        findings = probes.probe_all(Server(cast(ResponsesClient, model), "scripted"))
        self.assertEqual([finding.verdict for _, finding in findings], [FAILS] * len(probes.PROBES))

    def test_what_the_examples_send_is_sent_and_a_refused_field_names_its_variable(self) -> None:
        with ScriptedModel(NO_REASONING, HELLO, HELLO) as model:
            server = Server(cast(ResponsesClient, model), "scripted")
            finding = probes.plain_answer(server)
            server.ask("再问")
        self.assertEqual(
            [request.get("reasoning") for request in model.requests], [{"effort": "none"}, None, None]
        )
        self.assertIn("QWEN_REASONING=", finding.advice)

    def test_an_empty_setting_sends_no_reasoning(self) -> None:
        with mock.patch.dict(os.environ, QWEN_REASONING=""), ScriptedModel(HELLO) as model:
            Server(cast(ResponsesClient, model), "scripted").ask("问")
        self.assertNotIn("reasoning", model.requests[0])

    def test_one_error_for_everything_says_nothing_of_error_texts(self) -> None:
        model = ScriptedModel(*[REFUSED] * len(probes.PROBES))
        findings = dict(probes.probe_all(Server(cast(ResponsesClient, model), "scripted")))
        self.assertEqual(findings["错误说明"].verdict, UNSEEN)

    def test_advice_that_was_seen_not_to_help_is_left_out(self) -> None:
        ignored, works = Finding(IGNORED, "", "a"), Finding(WORKS, "")
        named = "必选工具 对象形式"
        self.assertEqual(probes._in_view_of({"必选工具 required": ignored}, named, ignored).advice, "")
        self.assertIn("named", probes._in_view_of({"必选工具 required": ignored}, named, works).advice)
        self.assertEqual(probes._in_view_of({"必选工具 required": works}, named, ignored).advice, "a")
        nothing = Finding(FAILS, "", probes.FIRST)
        self.assertNotEqual(
            probes._in_view_of({"工具调用": works}, "回放调用与结果", nothing).advice, probes.FIRST
        )
        self.assertEqual(
            probes._in_view_of({"工具调用": nothing}, "回放调用与结果", nothing).advice, probes.FIRST
        )

    def test_nobody_there_is_one_line(self) -> None:
        command = [sys.executable, "-m", "checks.compatibility", "http://127.0.0.1:9"]
        done = subprocess.run(command, capture_output=True, encoding="utf-8")
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (1, "", 1))
        self.assertIn("无法连接", done.stderr)


if __name__ == "__main__":
    raise SystemExit(harness.main())
