"""What the agent loop promises, one test a promise, on a strict scripted model: read it as a list.

No real model is asked: whether one is able is a matter of luck, whether the loop is right is not.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
import json
import unittest
from collections.abc import Callable
from typing import Any

from checks.support import harness
from checks.support.harness import JsonObject, ScriptedModel, call, message, response, table
from packages.pi_agent import AgentEvent, AgentLoopConfig, AgentTool, ToolResult, run_agent
from packages.pi_ai import (
    AgentRunError,
    ContextFullError,
    CutOffCallError,
    FunctionCall,
    MiniPiError,
    ModelRequestError,
    ProtocolError,
    ToolError,
)

QUESTION = "帮我看看 reports 目录里的日报，告诉我这份日报的日期、订单数和营收。"
REPORT = "reports/daily-2026-09-06.json"
CONTENT = '{"date": "2026-09-06", "orders": 128, "revenue_yuan": 9600}'
ANSWER = "这份日报的日期是 2026-09-06，订单数 128，营收 9600 元。"
PATH: JsonObject = {
    "type": "object",
    "properties": {"path": {"type": "string", "minLength": 1}},
    "required": ["path"],
    "additionalProperties": False,
}


def tool(name: str, handler: Callable[[Any], Any]) -> AgentTool:
    return AgentTool(name, f"说明 {name}", PATH, handler)


class Case(unittest.TestCase):
    """Two tools over one report, what they were called with, and the events of the run."""

    def setUp(self) -> None:
        self.ran: list[tuple[str, str]] = []
        self.events: list[AgentEvent] = []
        self.tools = [tool("list_files", self.list_files), tool("read_file", self.read_file)]

    def list_files(self, arguments: Any) -> str:
        self.ran.append(("list_files", arguments["path"]))
        if arguments["path"] != "reports":
            raise ToolError("没有这个目录，请换一个")
        return REPORT

    def read_file(self, arguments: Any) -> str:
        self.ran.append(("read_file", arguments["path"]))
        if arguments["path"] != REPORT:
            raise ToolError(f"路径不存在，这里有 {REPORT}")
        return CONTENT

    def run_loop(self, model: Any, emit: Any = None, **settings: Any) -> str:
        config = AgentLoopConfig("qwen", "只读项目文件", **settings)
        return run_agent(model, self.tools, config, QUESTION, emit or self.events.append)

    def fails(self, kind: type[MiniPiError], model: Any, **settings: Any) -> Any:
        """The error of a run that must end with exactly this kind, checked for what every one carries."""
        with self.assertRaises(kind) as caught:
            self.run_loop(model, **settings)
        error = caught.exception
        self.assertIs(type(error), kind)
        self.assertEqual(error.turn, len(model.requests))
        self.assertTrue(str(error).startswith(f"第 {error.turn} 轮："), str(error))
        self.assertRegex(str(error), "请|可以", "it says what to do next")
        assert error.turn is not None and error.history is not None and error.usage is not None
        self.assertEqual(len(error.usage), error.turn)
        self.assert_paired(error.history)
        self.assert_turns_end_once(error.turn)
        return error

    def assert_paired(self, history: list[JsonObject]) -> None:
        waiting: list[str] = []
        for item in history:
            if item.get("type") == "function_call":
                waiting.append(item["call_id"])
            elif item.get("type") == "function_call_output":
                self.assertIn(item["call_id"], waiting)
                waiting.remove(item["call_id"])
        self.assertEqual(waiting, [])

    def assert_turns_end_once(self, turns: int) -> None:
        ends = [event.turn for event in self.events if event.type == "turn_end"]
        self.assertEqual(ends, list(range(1, turns + 1)))

    def seen(self) -> list[tuple[str, int]]:
        return [(event.type, event.turn) for event in self.events]


FIRST = response(call("list_files", {"path": "reports"}, "call_01"))
SECOND = response(call("read_file", {"path": REPORT}, "call_02"))
THIRD = response(message(ANSWER))


def output(call_id: str, text: str) -> JsonObject:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


class TheArticlesRun(Case):
    """Question, directory, file, answer."""

    def setUp(self) -> None:
        super().setUp()
        with ScriptedModel(FIRST, SECOND, THIRD) as model:
            self.answer = self.run_loop(model)
        self.inputs = [request["input"] for request in model.requests]

    def test_the_answer_is_returned(self) -> None:
        self.assertEqual(self.answer, ANSWER)

    def test_the_first_request_holds_the_question_alone_as_one_input_text_part(self) -> None:
        user = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": QUESTION}]}
        self.assertEqual(self.inputs[0], [user])

    def test_the_directory_result_is_inside_the_second_request(self) -> None:
        self.assertEqual(self.inputs[1][1:], [*FIRST["output"], output("call_01", REPORT)])

    def test_the_second_turn_reads_that_very_path(self) -> None:
        self.assertEqual(self.ran, [("list_files", "reports"), ("read_file", self.inputs[1][-1]["output"])])

    def test_both_results_are_inside_the_third_request(self) -> None:
        outputs = [item for item in self.inputs[2] if item.get("type") == "function_call_output"]
        self.assertEqual(outputs, [output("call_01", REPORT), output("call_02", CONTENT)])

    def test_the_events_tell_it_in_order(self) -> None:
        self.assertEqual(
            self.seen(),
            [
                ("tool_call", 1),
                ("tool_result", 1),
                ("turn_end", 1),
                ("tool_call", 2),
                ("tool_result", 2),
                ("turn_end", 2),
                ("assistant_text", 3),
                ("turn_end", 3),
            ],
        )

    def test_the_events_carry_call_result_text_and_usage(self) -> None:
        asked = FunctionCall("list_files", "call_01", {"path": "reports"})
        self.assertEqual(self.events[0], AgentEvent("tool_call", 1, call=asked))
        self.assertEqual(self.events[1], AgentEvent("tool_result", 1, call=asked, result=ToolResult(REPORT)))
        self.assertEqual(self.events[2], AgentEvent("turn_end", 1, usage=FIRST["usage"]))
        self.assertEqual(self.events[6], AgentEvent("assistant_text", 3, text=ANSWER))


class Rule1TheHistoryIsReplayedAsItCame(Case):
    def test_unknown_items_reasoning_and_unknown_keys_are_kept_in_their_order(self) -> None:
        reasoning: JsonObject = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None}
        unknown = {"z": 1, "type": "web_search_call", "a": {"nested": [None, {"deep": "值"}]}}
        asked = {"x_extra": True, **call("list_files", {"path": "reports"})}
        with ScriptedModel(response(reasoning, unknown, asked, message("看看")), THIRD) as model:
            self.run_loop(model)
        replayed = model.requests[1]["input"][1:5]
        expected = [reasoning, unknown, asked, message("看看")]
        self.assertEqual(json.dumps(replayed), json.dumps(expected), "equal, and in the same key order")

    def test_the_output_items_come_before_the_results(self) -> None:
        both = response(call("list_files", {"path": "reports"}, "a"), call("read_file", {"path": "x"}, "b"))
        with ScriptedModel(both, THIRD) as model:
            self.run_loop(model)
        kinds = [item.get("type") for item in model.requests[1]["input"]]
        self.assertEqual(kinds, ["message", *["function_call"] * 2, *["function_call_output"] * 2])

    def test_only_arguments_given_as_an_object_become_the_string_that_the_protocol_asks_for(self) -> None:
        given = {
            "type": "function_call",
            "arguments": {"path": "reports"},
            "name": "list_files",
            "call_id": "c",
        }
        with ScriptedModel(response(given), THIRD) as model:
            self.run_loop(model)
        self.assertEqual(self.ran, [("list_files", "reports")])
        replayed = model.requests[1]["input"][1]
        self.assertEqual(list(replayed), list(given))
        self.assertEqual(replayed, {**given, "arguments": '{"path": "reports"}'})


class Rule2CallsFirstTextSecond(Case):
    def test_text_beside_a_call_is_shown_and_ends_nothing(self) -> None:
        with ScriptedModel(response(message("我先看看日报"), *FIRST["output"]), THIRD) as model:
            self.assertEqual(self.run_loop(model), ANSWER)
        self.assertEqual(self.seen()[:2], [("assistant_text", 1), ("tool_call", 1)])
        self.assertEqual(self.events[0].text, "我先看看日报")

    def test_blank_text_beside_a_call_is_not_shown(self) -> None:
        with ScriptedModel(response(message("\n\n"), *FIRST["output"]), THIRD) as model:
            self.run_loop(model)
        self.assertEqual(self.seen()[0], ("tool_call", 1))

    def test_all_calls_of_a_response_run_in_order_each_with_its_own_output(self) -> None:
        paths = ["reports", "nowhere", "reports"]
        calls = [call("list_files", {"path": path}, f"c{i}") for i, path in enumerate(paths)]
        with ScriptedModel(response(*calls), THIRD) as model:
            self.run_loop(model)
        self.assertEqual([path for _, path in self.ran], paths)
        answers = [REPORT, "没有这个目录，请换一个", REPORT]
        expected = [output(f"c{i}", answer) for i, answer in enumerate(answers)]
        self.assertEqual(model.requests[1]["input"][4:], expected)

    def test_one_call_is_over_before_the_next_begins(self) -> None:
        both = response(call("list_files", {"path": "reports"}, "a"), call("read_file", {"path": "x"}, "b"))
        with ScriptedModel(both, THIRD) as model:
            self.run_loop(model)
        told = [(event.type, event.call and event.call.call_id) for event in self.events[:4]]
        expected = [("tool_call", "a"), ("tool_result", "a"), ("tool_call", "b"), ("tool_result", "b")]
        self.assertEqual(told, expected)

    def test_a_call_id_used_again_in_a_later_turn_is_paired_anew(self) -> None:
        again = response(call("read_file", {"path": REPORT}, "call_01"))
        with ScriptedModel(FIRST, again, THIRD) as model:
            self.run_loop(model)
        self.assert_paired(model.requests[2]["input"])
        self.assertEqual(model.requests[2]["input"][-1], output("call_01", CONTENT))

    def test_a_call_id_twice_in_one_response_cannot_be_paired(self) -> None:
        twice = response(call("list_files", {"path": "reports"}), call("read_file", {"path": REPORT}))
        self.fails(ProtocolError, ScriptedModel(twice))
        self.assertEqual(self.ran, [])

    def test_an_output_that_the_server_brings_along_is_refused(self) -> None:
        self.fails(ProtocolError, ScriptedModel(response(*FIRST["output"], output("call_01", "made up"))))
        self.assertEqual(self.ran, [])


class ErrorsGoBackToTheModelThatMadeThem(Case):
    def one_error(self, item: JsonObject) -> str:
        with ScriptedModel(response(item), THIRD) as model:
            self.assertEqual(self.run_loop(model), ANSWER)
        fed_back = model.requests[1]["input"][-1]
        self.assertEqual(fed_back["call_id"], item["call_id"])
        [result] = [event.result for event in self.events if event.result]
        self.assertEqual(result, ToolResult(fed_back["output"], is_error=True))
        return result.content

    def test_an_unknown_tool_with_the_tools_that_there_are(self) -> None:
        said = self.one_error(call("search", {"path": "."}))
        self.assertEqual(said, "未知工具：search。可用的工具：list_files、read_file。")

    def test_an_unknown_tool_where_there_are_none(self) -> None:
        self.tools = []
        self.assertIn("（无）", self.one_error(call("search")))

    def test_arguments_that_do_not_fit_before_anything_runs(self) -> None:
        self.assertIn("缺少参数 path", self.one_error(call("read_file", {"file": "a"})))
        self.assertEqual(self.ran, [])

    def test_a_tool_that_fails_with_its_reason(self) -> None:
        self.assertIn(REPORT, self.one_error(call("read_file", {"path": "daily.json"})))

    def test_each_kind_of_failure_that_a_handler_may_have(self) -> None:
        for error in (MiniPiError("e"), ValueError("e"), OSError("e"), RuntimeError("e")):
            with self.subTest(error=type(error)):
                self.setUp()

                def handler(arguments: Any, error: Exception = error) -> str:
                    raise error

                self.tools[1] = tool("read_file", handler)
                self.assertEqual(self.one_error(call("read_file", {"path": "a"})), "e")

    def test_but_not_a_bug_in_a_handler(self) -> None:
        self.tools[1] = tool("read_file", lambda arguments: arguments["file"])
        with self.assertRaises(KeyError):
            self.run_loop(ScriptedModel(SECOND))

    def test_nor_a_handler_that_returns_no_text(self) -> None:
        self.tools[1] = tool("read_file", lambda arguments: None)
        with self.assertRaises(TypeError):
            self.run_loop(ScriptedModel(SECOND))


class Rule3ATurnIsOneModelRequest(Case):
    def test_an_answer_on_the_last_allowed_turn_counts(self) -> None:
        with ScriptedModel(FIRST, SECOND, THIRD) as model:
            self.assertEqual(self.run_loop(model, max_turns=3), ANSWER)

    def test_two_turns_run_both_tools_and_still_have_no_answer(self) -> None:
        error = self.fails(AgentRunError, ScriptedModel(FIRST, SECOND), max_turns=2)
        self.assertIn("达到最大轮数 2", str(error))
        self.assertEqual([name for name, _ in self.ran], ["list_files", "read_file"])
        self.assertEqual(error.history[-1], output("call_02", CONTENT))

    def test_a_model_that_repeats_one_call_is_told_as_that_and_not_to_take_more_turns(self) -> None:
        again = [response(call("list_files", {"path": "reports"}, f"call_{n}")) for n in range(4)]
        error = self.fails(AgentRunError, ScriptedModel(*again), max_turns=4)
        self.assertIn('重复调用 list_files {"path": "reports"}，最后连续 4 次', str(error))
        self.assertNotIn("--max-turns", str(error))

    def test_nor_one_that_takes_turns_between_two_calls(self) -> None:
        paths = ("x", "a", "b", "a", "b", "a")
        turns = [response(call("list_files", {"path": path}, f"call_{n}")) for n, path in enumerate(paths)]
        error = self.fails(AgentRunError, ScriptedModel(*turns), max_turns=6)
        self.assertIn(
            '轮流重复调用 list_files {"path": "b"} 和 list_files {"path": "a"}，最后连续 5 次', str(error)
        )
        self.assertNotIn("--max-turns", str(error))

    def advises_more_turns_after(self, *paths: str) -> None:
        turns = [response(call("list_files", {"path": p}, f"call_{n}")) for n, p in enumerate(paths)]
        error = self.fails(AgentRunError, ScriptedModel(*turns), max_turns=len(paths))
        self.assertIn("--max-turns", str(error))

    def test_a_repeated_call_that_was_left_behind_is_no_circle(self) -> None:
        self.advises_more_turns_after("a", "a", "b")

    def test_a_call_made_again_after_another_is_no_circle_yet(self) -> None:
        self.advises_more_turns_after("a", "b", "a")

    def test_calls_that_differ_are_no_circle(self) -> None:
        self.advises_more_turns_after("a", "b", "c")

    def test_the_last_text_beside_a_call_is_no_answer(self) -> None:
        self.fails(AgentRunError, ScriptedModel(response(message(ANSWER), *FIRST["output"])), max_turns=1)

    def test_many_calls_in_one_response_are_one_turn(self) -> None:
        calls = [call("list_files", {"path": "reports"}, f"c{i}") for i in range(10)]
        with ScriptedModel(response(*calls), THIRD) as model:
            self.assertEqual(self.run_loop(model, max_turns=2), ANSWER)

    def test_without_a_setting_it_is_eight(self) -> None:
        self.fails(AgentRunError, ScriptedModel(*[FIRST] * 8))


class CallsOfAnotherKind(Case):
    """They cannot be run here: the error names the kind, and the next question can be answered."""

    def test_end_the_run_and_leave_no_orphan(self) -> None:
        for kind in ("custom_tool_call", "mcp_approval_request", "computer_call", "local_shell_call"):
            foreign = {"type": kind, "id": "x", "call_id": "c", "name": "f"}
            for output in ([foreign], [message("I try."), foreign], [call("list_files", {}, "d"), foreign]):
                history: list[JsonObject] = []
                with self.subTest(kind=kind, items=len(output)):
                    with ScriptedModel(response(*output), THIRD) as model:
                        with self.assertRaisesRegex(AgentRunError, kind):
                            run_agent(model, self.tools, AgentLoopConfig("m", "i"), QUESTION, history=history)
                        run_agent(model, self.tools, AgentLoopConfig("m", "i"), QUESTION, history=history)
                    kinds = [item["type"] for item in model.requests[1]["input"]]
                    self.assertEqual(kinds, ["message", "message"])
        self.assertEqual(self.ran, [])

    def test_hosted_ones_are_the_server_s_and_are_sent_back(self) -> None:
        search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
        with ScriptedModel(response(search, *FIRST["output"]), THIRD) as model:
            self.assertEqual(self.run_loop(model), ANSWER)
        self.assertEqual(model.requests[1]["input"][1], search)


class WhatIsNotTheEnd(Case):
    def test_commentary_is_shown_and_never_the_answer(self) -> None:
        looking = message("我先看看。", phase="commentary")
        seen: list[str | None] = []
        with ScriptedModel(response(looking, *THIRD["output"])) as model:
            answer = self.run_loop(model, emit=lambda event: seen.append(event.text))
        self.assertEqual((answer, seen[0]), (ANSWER, "我先看看。" + ANSWER))
        self.events.clear()
        self.fails(AgentRunError, ScriptedModel(response(looking)))

    def test_end_turn_false_is_no_end(self) -> None:
        with ScriptedModel({**response(message("还没完。")), "end_turn": False}, THIRD) as model:
            self.assertEqual(self.run_loop(model), ANSWER)
        with ScriptedModel(response(message("还没完。", end_turn=False)), THIRD) as model:
            self.assertEqual(self.run_loop(model), ANSWER)
        self.assertEqual(model.requests[1]["input"][1]["content"][0]["text"], "还没完。")
        self.events.clear()
        self.fails(AgentRunError, ScriptedModel(*[{**THIRD, "end_turn": False}] * 8))

    def test_a_cut_response_of_reasoning_alone_leaves_none_behind(self) -> None:
        thought = {"type": "reasoning", "id": "rs_1", "summary": []}
        for cut in (response(thought, status="incomplete"), response(thought)):
            history: list[JsonObject] = []
            with self.assertRaises(AgentRunError):
                run_agent(
                    ScriptedModel(cut), self.tools, AgentLoopConfig("m", "i"), QUESTION, history=history
                )
            self.assertEqual([item["type"] for item in history], ["message"])


class Rule4WhatARequestHolds(Case):
    def test_a_choice_is_left_out_where_there_are_no_tools(self) -> None:
        self.tools = []
        with ScriptedModel(THIRD) as model:
            self.run_loop(model)
        [request] = model.requests
        self.assertEqual(request["tools"], [])
        self.assertFalse({"tool_choice", "parallel_tool_calls"} & set(request))

    def test_the_core_fields_and_nothing_else(self) -> None:
        with ScriptedModel(THIRD) as model:
            self.run_loop(model)
        [request] = model.requests
        del request["input"]
        expected = {
            "model": "qwen",
            "instructions": "只读项目文件",
            "tools": [each.schema() for each in self.tools],
            "tool_choice": "auto",
            "parallel_tool_calls": False,
            "store": False,
        }
        self.assertEqual(request, expected)

    def test_options_are_sent_unless_they_are_none(self) -> None:
        options = {"temperature": 0, "top_p": None, "reasoning": {"effort": "none"}, "x": False}
        with ScriptedModel(THIRD) as model:
            self.run_loop(model, request_options=options)
        sent = {name: value for name, value in model.requests[0].items() if name in options}
        self.assertEqual(sent, {"temperature": 0, "reasoning": {"effort": "none"}, "x": False})

    def test_no_key_has_a_null_value(self) -> None:
        with ScriptedModel(FIRST, THIRD) as model:
            self.run_loop(model, request_options={"temperature": None, "seed": None})
        for request in model.requests:
            self.assertEqual([name for name, value in request.items() if value is None], [])

    def test_everything_but_the_growing_end_is_the_same_from_turn_to_turn(self) -> None:
        with ScriptedModel(FIRST, SECOND, THIRD) as model:
            self.run_loop(model, request_options={"temperature": 0, "max_output_tokens": 2048})
        sent = [json.dumps(request, ensure_ascii=False) for request in model.requests]
        for before, after in itertools.pairwise(sent):
            self.assertTrue(after.startswith(before.removesuffix("]}")), "what a prefix cache goes by")
        self.assertEqual(list(model.requests[0])[-1], "input")


class Rule5RequiredTools(Case):
    def setUp(self) -> None:
        super().setUp()
        self.tools.append(tool("write", lambda arguments: "written"))

    def offers(self, model: ScriptedModel) -> list[tuple[list[str], object]]:
        """What each request offered: the tools' names, and tool_choice."""
        return [([each["name"] for each in r["tools"]], r["tool_choice"]) for r in model.requests]

    def test_while_it_is_pending_only_that_tool_is_offered_as_required(self) -> None:
        with ScriptedModel(FIRST, SECOND, THIRD) as model:
            self.run_loop(model, required_tool_names=("list_files",))
        everything = (["list_files", "read_file", "write"], "auto")
        self.assertEqual(self.offers(model), [(["list_files"], "required"), everything, everything])

    def test_or_as_the_object_that_names_it(self) -> None:
        with ScriptedModel(FIRST, THIRD) as model:
            self.run_loop(model, required_tool_names=("list_files",), required_tool_choice="named")
        named = {"type": "function", "name": "list_files"}
        self.assertEqual(self.offers(model)[0], (["list_files"], named))
        self.assertEqual(self.offers(model)[1][1], "auto")

    def test_it_stays_pending_until_it_has_succeeded(self) -> None:
        failing = response(call("list_files", {"path": "nowhere"}))
        unfit = response(call("list_files", {}))
        with ScriptedModel(failing, unfit, FIRST, THIRD) as model:
            self.run_loop(model, required_tool_names=("list_files",))
        self.assertEqual([choice for _, choice in self.offers(model)], ["required"] * 3 + ["auto"])

    def test_another_tool_s_success_does_not_count(self) -> None:
        with ScriptedModel(SECOND, FIRST, THIRD) as model:
            self.run_loop(model, required_tool_names=("list_files",))
        self.assertEqual([choice for _, choice in self.offers(model)], ["required", "required", "auto"])

    def test_several_are_required_one_after_the_other(self) -> None:
        with ScriptedModel(FIRST, SECOND, THIRD) as model:
            self.run_loop(model, required_tool_names=("list_files", "read_file"))
        expected = [["list_files"], ["read_file"], ["list_files", "read_file", "write"]]
        self.assertEqual([offered for offered, _ in self.offers(model)], expected)

    def test_several_may_succeed_in_one_response_in_their_order_only(self) -> None:
        in_order = response(*FIRST["output"], *SECOND["output"])
        with ScriptedModel(in_order, THIRD) as model:
            self.run_loop(model, required_tool_names=("list_files", "read_file"))
        self.assertEqual(self.offers(model)[1][1], "auto")
        backwards = response(*SECOND["output"], *FIRST["output"])
        with ScriptedModel(backwards, SECOND, THIRD) as model:
            self.run_loop(model, required_tool_names=("list_files", "read_file"))
        self.assertEqual(self.offers(model)[1], (["read_file"], "required"))

    def test_the_same_one_twice_must_succeed_twice(self) -> None:
        with ScriptedModel(FIRST, FIRST, THIRD) as model:
            self.run_loop(model, required_tool_names=("list_files", "list_files"))
        self.assertEqual([choice for _, choice in self.offers(model)], ["required", "required", "auto"])

    def test_an_answer_while_one_is_pending_is_none(self) -> None:
        error = self.fails(AgentRunError, ScriptedModel(THIRD), required_tool_names=("list_files",))
        self.assertIn("必选工具 list_files 还没有成功执行", str(error))

    def test_an_answer_after_it_has_only_failed_is_none_either(self) -> None:
        failing = response(call("list_files", {"path": "nowhere"}))
        self.fails(AgentRunError, ScriptedModel(failing, THIRD), required_tool_names=("list_files",))


HALF = message("订单数是", status="incomplete")
CUT = {"incomplete_details": {"reason": "max_output_tokens"}, "status": "incomplete"}
CAP = {"max_output_tokens": 5}
REFUSAL = message("", content=[{"type": "refusal", "refusal": "不能回答"}])
CALL_AS_TEXT = '{"name": "read_file", "arguments": {"path": "a"}}'


@table(
    [
        ("empty_response", response(), {}, "既没有返回文本，也没有调用工具"),
        ("empty_text", response(message("")), {}, "既没有返回文本"),
        ("blank_text", response(message(" \n\t")), {}, "既没有返回文本"),
        (
            "the_tags_of_a_call_and_no_call",
            response(message("<tool_call>\n</tool_call>\n")),
            {},
            "既没有返回文本",
        ),
        ("the_first_tag_of_a_call", response(message("<tool_call>")), {}, "既没有返回文本"),
        ("reasoning_alone", response({"type": "reasoning", "summary": []}), {}, "既没有返回文本"),
        ("refusal", response(REFUSAL), {}, "拒绝回答：不能回答"),
        ("refusal_beside_text", response(message("部分"), REFUSAL), {}, "拒绝回答"),
        ("refusal_beside_a_call", response(REFUSAL, *FIRST["output"]), {}, "拒绝回答"),
        (
            "content_filter",
            response(HALF, incomplete_details={"reason": "content_filter"}),
            {},
            "content_filter",
        ),
        ("status_incomplete", response(HALF, **CUT), {}, "incomplete：max_output_tokens"),
        ("status_incomplete_without_a_reason", response(message("x"), status="incomplete"), {}, "incomplete"),
        ("status_incomplete_with_a_call", response(*FIRST["output"], **CUT), {}, "incomplete"),
        ("item_incomplete", response(HALF), {}, "incomplete"),
        ("cap_reached_though_completed", response(message("x")), CAP, "max_output_tokens=5"),
        ("cap_reached_by_a_call", response(*FIRST["output"]), CAP, "max_output_tokens=5"),
        ("cap_of_the_server_reached", response(message("x"), max_output_tokens=5), {}, "max_output_tokens=5"),
        ("call_as_text", response(message(CALL_AS_TEXT)), {}, "对 read_file 的调用写成了普通文本"),
        (
            "call_in_a_fence",
            response(message(f"```json\n{CALL_AS_TEXT}\n```")),
            {},
            "chat template 或 tool parser",
        ),
        (
            "call_in_a_tag",
            response(message(f"<tool_call>{CALL_AS_TEXT}")),
            {},
            "chat template 或 tool parser",
        ),
    ]
)
class Rule6HalfAProductIsNeverAnAnswer(Case):
    def row(self, half: JsonObject, options: JsonObject, reason: str) -> None:
        error = self.fails(AgentRunError, ScriptedModel(FIRST | {"usage": {}}, half), request_options=options)
        self.assertIn(reason, str(error))
        self.assertEqual(self.ran, [("list_files", "reports")], "nothing of it was executed")


class Rule6TheRest(Case):
    def test_an_answer_below_the_cap_counts(self) -> None:
        with ScriptedModel(THIRD) as model:
            self.assertEqual(self.run_loop(model, request_options={"max_output_tokens": 6}), ANSWER)

    def test_a_call_written_as_text_is_told_as_such_although_a_required_tool_is_pending(self) -> None:
        model = ScriptedModel(response(message(CALL_AS_TEXT)))
        error = self.fails(AgentRunError, model, required_tool_names=("read_file",))
        self.assertIn("chat template", str(error))

    def test_a_call_that_stops_in_its_arguments_is_cut_off_and_not_executed(self) -> None:
        half = response(*FIRST["output"], call("read_file", '{"path": "rep', "call_02"))
        self.fails(CutOffCallError, ScriptedModel(half))
        self.assertEqual(self.ran, [])

    def test_of_incomplete_and_broken_at_once_incomplete_is_told(self) -> None:
        half = response(call("read_file", '{"path": "rep', status="incomplete"), **CUT)
        self.assertIn("incomplete：max_output_tokens", str(self.fails(AgentRunError, ScriptedModel(half))))

    def test_the_whole_items_of_a_half_product_stay_in_the_history(self) -> None:
        half = response(message("我先"), *FIRST["output"], **CUT)
        history = self.fails(AgentRunError, ScriptedModel(half)).history
        self.assertEqual(history[1:3], half["output"])
        self.assertIn("没有完成", history[3]["output"])

    def test_with_half_a_call_none_of_it_stays_since_no_server_takes_that_back(self) -> None:
        half = response(message("我先"), call("read_file", '{"pa'), **CUT)
        self.assertEqual(len(self.fails(AgentRunError, ScriptedModel(half)).history), 1)

    def test_nor_of_a_response_that_breaks_the_protocol(self) -> None:
        broken = response(message("我先"), call("", {}))
        self.assertEqual(len(self.fails(ProtocolError, ScriptedModel(broken)).history), 1)


@table(
    [
        ("output_missing", {"id": "r", "status": "completed"}, ProtocolError),
        ("output_null", response() | {"output": None}, ProtocolError),
        ("output_of_strings", response("hello"), ProtocolError),
        (
            "call_without_a_name",
            response({"type": "function_call", "call_id": "c", "arguments": "{}"}),
            ProtocolError,
        ),
        (
            "call_without_a_call_id",
            response({"type": "function_call", "name": "f", "arguments": "{}"}),
            ProtocolError,
        ),
        ("arguments_that_are_no_object", response(call("read_file", "[1]")), ProtocolError),
        ("arguments_with_text_behind", response(call("read_file", '{"path": "a"} ok')), ProtocolError),
        ("arguments_with_nan", response(call("read_file", '{"path": NaN}')), ProtocolError),
        (
            "arguments_with_a_key_twice",
            response(call("read_file", '{"path": "a", "path": "b"}')),
            ProtocolError,
        ),
        ("arguments_empty", response(call("read_file", "")), ProtocolError),
        ("status_failed_though_http_200", response(status="failed"), ModelRequestError),
        ("error_object_though_http_200", response(error={"message": "overloaded"}), ModelRequestError),
        ("client_returns_none", lambda request: None, ProtocolError),
        ("client_returns_a_list", lambda request: [], ProtocolError),
        ("client_returns_text", lambda request: "text", ProtocolError),
    ]
)
class BrokenProtocolEndsTheRun(Case):
    def row(self, broken: Any, kind: type[MiniPiError]) -> None:
        self.fails(kind, ScriptedModel(FIRST, broken))
        self.assertEqual(self.ran, [("list_files", "reports")], "nothing of it was executed")


class Rule7ErrorsCarryWhatHappened(Case):
    def test_history_turn_and_usage(self) -> None:
        spent = [{"input_tokens": 1}, None, {"input_tokens": 3}]
        steps = [{**FIRST, "usage": spent[0]}, {**SECOND, "usage": "unknown"}, response(usage=spent[2])]
        error = self.fails(AgentRunError, ScriptedModel(*steps))
        self.assertEqual(error.usage, spent)
        self.assertEqual(error.history[1], FIRST["output"][0])
        self.assertEqual(error.history[-1], output("call_02", CONTENT))

    def test_a_client_s_error_is_the_same_object_with_the_turn_added(self) -> None:
        for raised in (ModelRequestError("连不上，请检查服务器", 503), ProtocolError("不是 JSON，请检查")):
            with self.subTest(kind=type(raised)):
                self.setUp()
                text = str(raised)
                error = self.fails(type(raised), ScriptedModel(FIRST, raised))
                self.assertIs(error, raised)
                self.assertEqual(str(error), f"第 2 轮：{text}")
                self.assertEqual(error.usage, [FIRST["usage"], None])
        self.assertEqual(ModelRequestError("x", 503).status, 503)

    def test_a_full_context_says_how_long_the_history_is(self) -> None:
        error = self.fails(
            ContextFullError, ScriptedModel(FIRST, ContextFullError("上下文超出。请开始新的对话。", 400))
        )
        self.assertEqual(
            str(error), "第 2 轮：上下文超出。请开始新的对话。历史现有 3 项，上一轮读入了 10 个 token。"
        )
        self.setUp()
        error = self.fails(
            ContextFullError, ScriptedModel(ContextFullError("上下文超出。请开始新的对话。", 400))
        )
        self.assertEqual(str(error), "第 1 轮：上下文超出。请开始新的对话。历史现有 1 项。")
        self.setUp()
        error = self.fails(
            ContextFullError,
            ScriptedModel({**FIRST, "usage": {"input_tokens": None}}, ContextFullError("请缩短。", 400)),
        )
        self.assertEqual(str(error), "第 2 轮：请缩短。历史现有 3 项。")

    def test_the_history_of_an_error_does_not_change_afterwards(self) -> None:
        history: list[JsonObject] = []
        with self.assertRaises(AgentRunError) as caught:
            config = AgentLoopConfig("m", "i")
            run_agent(ScriptedModel(response()), self.tools, config, "q", history=history)
        history.clear()
        self.assertEqual(len(caught.exception.history or []), 1)

    def test_ctrl_c_in_a_tool_passes_through_with_the_history_paired_first(self) -> None:
        def interrupted(arguments: Any) -> str:
            raise KeyboardInterrupt

        self.tools[1] = tool("read_file", interrupted)
        three = [*FIRST["output"], *SECOND["output"], call("list_files", {"path": "reports"}, "call_03")]
        history: list[JsonObject] = []
        with self.assertRaises(KeyboardInterrupt):
            config = AgentLoopConfig("m", "i")
            run_agent(
                ScriptedModel(response(*three)), self.tools, config, "q", self.events.append, history=history
            )
        self.assert_paired(history)
        self.assertEqual(history[4], output("call_01", REPORT))
        self.assertEqual([item["call_id"] for item in history[5:]], ["call_02", "call_03"])
        self.assertIn("没有完成", history[5]["output"])
        self.assert_turns_end_once(1)

    def test_ctrl_c_in_the_request_passes_through(self) -> None:
        with self.assertRaises(KeyboardInterrupt):
            self.run_loop(ScriptedModel(FIRST, KeyboardInterrupt()))
        self.assert_turns_end_once(2)


class TheSinkIsTheCallers(Case):
    def test_its_exception_propagates_from_every_event_and_leaves_the_history_paired(self) -> None:
        steps = (response(message("看看"), *FIRST["output"]), THIRD)
        for failing in range(6):
            with self.subTest(event=failing):
                history: list[JsonObject] = []
                events: list[AgentEvent] = []
                raised = LookupError("the sink's own")

                def emit(event: AgentEvent) -> None:
                    events.append(event)  # noqa: B023
                    if len(events) == failing + 1:  # noqa: B023
                        raise raised  # noqa: B023

                with self.assertRaises(LookupError) as caught:
                    config = AgentLoopConfig("m", "i")
                    run_agent(ScriptedModel(*steps), self.tools, config, "q", emit, history=history)
                self.assertIs(caught.exception, raised)
                self.assert_paired(history)
                ends = [event.turn for event in events if event.type == "turn_end"]
                self.assertEqual(ends, list(range(1, events[-1].turn + 1)))

    def test_without_a_sink_nothing_is_missing(self) -> None:
        with ScriptedModel(FIRST, THIRD) as model:
            self.assertEqual(run_agent(model, self.tools, AgentLoopConfig("m", "i"), "q"), ANSWER)

    def test_usage_that_is_no_object_is_told_as_none(self) -> None:
        usages: tuple[Any, ...] = (None, 5, "many", [])
        for usage in usages:
            self.setUp()
            with ScriptedModel(response(message("ok"), usage=usage)) as model:
                self.run_loop(model)
            self.assertIsNone(self.events[-1].usage)


class Streaming(Case):
    def test_text_arrives_as_events_and_the_rest_is_the_same(self) -> None:
        with ScriptedModel(FIRST, THIRD) as model:
            self.assertEqual(self.run_loop(model, stream=True), ANSWER)
        deltas = [event for event in self.events if event.type == "text_delta"]
        self.assertEqual("".join(event.text or "" for event in deltas), ANSWER)
        self.assertEqual({event.turn for event in deltas}, {2})
        streamed = [each for each in self.seen() if each[0] != "text_delta"]
        requests, self.events = model.requests, []
        with ScriptedModel(FIRST, THIRD) as model:
            self.run_loop(model)
        self.assertEqual(streamed, self.seen())
        self.assertEqual(requests, model.requests, "asking for the stream is the client's business")

    def test_only_then_is_a_client_given_on_text(self) -> None:
        class Plain:
            def create(self, payload: JsonObject) -> JsonObject:
                return copy.deepcopy(THIRD)

        self.assertEqual(self.run_loop(Plain()), ANSWER)
        with self.assertRaises(TypeError):
            self.run_loop(Plain(), stream=True)


class AnswerAfterRepeat(Case):
    """The one policy: the request after a call that repeats an earlier successful one offers no tools."""

    def offers(self, *steps: JsonObject, **settings: Any) -> list[tuple[int, object]]:
        with ScriptedModel(*steps) as model:
            self.run_loop(model, **settings)
        return [(len(request["tools"]), request.get("tool_choice")) for request in model.requests]

    def test_then_the_model_can_only_answer(self) -> None:
        offers = self.offers(FIRST, FIRST, THIRD, answer_after_repeat=True)
        self.assertEqual(offers, [(2, "auto"), (2, "auto"), (0, None)])

    def test_it_is_off_unless_asked_for(self) -> None:
        self.assertEqual(self.offers(FIRST, FIRST, THIRD), [(2, "auto")] * 3)

    def test_other_arguments_or_another_tool_are_no_repeat(self) -> None:
        other = response(call("read_file", {"path": "reports"}))
        elsewhere = response(call("list_files", {"path": "."}))
        offers = self.offers(FIRST, other, elsewhere, THIRD, answer_after_repeat=True)
        self.assertEqual(offers, [(2, "auto")] * 4)

    def test_the_order_of_the_arguments_makes_no_difference(self) -> None:
        anything = AgentTool("f", "", {"type": "object"}, lambda arguments: "ok")
        self.tools = [anything]
        steps = [response(call("f", text)) for text in ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}')]
        self.assertEqual(self.offers(*steps, THIRD, answer_after_repeat=True)[2], (0, None))

    def test_a_handler_that_changes_its_arguments_does_not_hide_the_repeat(self) -> None:
        self.tools[0] = tool("list_files", lambda arguments: arguments.pop("path"))
        self.assertEqual(self.offers(FIRST, FIRST, THIRD, answer_after_repeat=True)[2], (0, None))

    def test_a_call_that_failed_before_may_be_tried_again(self) -> None:
        failing = response(call("list_files", {"path": "nowhere"}))
        offers = self.offers(failing, failing, THIRD, answer_after_repeat=True)
        self.assertEqual(offers, [(2, "auto")] * 3)

    def test_twice_in_one_response_is_a_repeat_too(self) -> None:
        twice = response(*FIRST["output"], call("list_files", {"path": "reports"}, "call_02"))
        self.assertEqual(self.offers(twice, THIRD, answer_after_repeat=True)[1], (0, None))

    def test_a_repeat_before_another_call_of_the_same_response_still_counts(self) -> None:
        both = response(*FIRST["output"], *SECOND["output"])
        self.assertEqual(self.offers(FIRST, both, THIRD, answer_after_repeat=True)[2], (0, None))

    def test_a_call_all_the_same_runs_and_opens_the_tools_again(self) -> None:
        offers = self.offers(FIRST, FIRST, SECOND, THIRD, answer_after_repeat=True)
        self.assertEqual(offers[2:], [(0, None), (2, "auto")])
        self.assertEqual(self.ran[-1], ("read_file", REPORT))

    def test_a_required_tool_that_is_pending_comes_first(self) -> None:
        settings = {
            "answer_after_repeat": True,
            "required_tool_names": ("list_files", "list_files", "read_file"),
        }
        offers = self.offers(FIRST, FIRST, SECOND, THIRD, **settings)
        self.assertEqual(offers[2], (1, "required"))


@table(
    [
        *[
            (f"option_{name}", {"request_options": {name: None}}, name)
            for name in (
                "model",
                "instructions",
                "input",
                "tools",
                "tool_choice",
                "parallel_tool_calls",
                "store",
                "stream",
            )
        ],
        (
            "options_that_are_no_dict",
            {"request_options": [("temperature", 0)]},
            "request_options 必须是 dict",
        ),
        ("options_none", {"request_options": None}, "request_options 必须是 dict"),
        (
            "required_tool_unknown",
            {"required_tool_names": ("list_files", "search")},
            "必选工具未注册：search",
        ),
        ("required_tools_as_one_string", {"required_tool_names": "list_files"}, '("list_files",)'),
        ("required_tool_choice_unknown", {"required_tool_choice": "auto"}, "required 或 named"),
        ("max_turns_zero", {"max_turns": 0}, "max_turns"),
        ("max_turns_negative", {"max_turns": -1}, "max_turns"),
        ("max_turns_true", {"max_turns": True}, "max_turns"),
        ("max_turns_a_string", {"max_turns": "8"}, "max_turns"),
        ("max_turns_a_fraction", {"max_turns": 2.5}, "max_turns"),
        ("model_empty", {"model": ""}, "model"),
        ("model_blank", {"model": " "}, "model"),
        ("model_none", {"model": None}, "QWEN_MODEL"),
        ("instructions_none", {"instructions": None}, "instructions"),
        ("question_none", {"question": None}, "问题"),
        ("question_a_list", {"question": ["q"]}, "问题"),
        ("question_blank", {"question": " \n"}, "问题"),
        ("tool_twice", {"tools": [tool("a", str), tool("b", str), tool("a", str)]}, "工具重名：a。"),
        ("tool_that_is_a_function", {"tools": [print]}, "只能放 AgentTool"),
        ("tool_without_a_name", {"tools": [tool("", str)]}, "name 是非空字符串"),
        ("tool_with_a_name_that_is_none", {"tools": [AgentTool(None, "", {}, str)]}, "name 是"),  # type: ignore[arg-type]
        ("tool_with_a_name_that_is_a_number", {"tools": [AgentTool(5, "", {}, str)]}, "name 是"),  # type: ignore[arg-type]
        ("tool_with_null_description", {"tools": [AgentTool("a", None, {}, str)]}, "description 是"),  # type: ignore[arg-type]
        ("tool_with_null_parameters", {"tools": [AgentTool("a", "", None, str)]}, "parameters 是"),  # type: ignore[arg-type]
    ]
)
class SettingsRefusedBeforeAnyRequest(unittest.TestCase):
    def row(self, changes: JsonObject, reason: str) -> None:
        asked: JsonObject = {"tools": [tool("list_files", str)], "question": "q"}
        asked |= {name: changes[name] for name in asked if name in changes}
        settings = {"model": "m", "instructions": "i"} | {n: v for n, v in changes.items() if n not in asked}
        history: list[JsonObject] = []
        with ScriptedModel() as model, self.assertRaises(MiniPiError) as caught:
            config = AgentLoopConfig(**settings)
            run_agent(model, asked["tools"], config, asked["question"], history=history)
        self.assertIs(type(caught.exception), MiniPiError)
        self.assertIn(reason, str(caught.exception))
        self.assertIn("请", str(caught.exception))
        self.assertEqual((model.requests, history), ([], []))


class SettingsTaken(Case):
    def test_every_problem_is_told_at_once(self) -> None:
        self.tools *= 2
        wrong = {
            "max_turns": 0,
            "required_tool_names": ("search", "write"),
            "request_options": {"store": 1, "input": 2},
        }
        with self.assertRaises(MiniPiError) as caught:
            self.run_loop(ScriptedModel(), **wrong)
        for words in (
            "重名：list_files、read_file。",
            "max_turns",
            "未注册：search、write。",
            "字段：input、store。",
        ):
            self.assertIn(words, str(caught.exception))

    def test_empty_instructions_and_no_tools(self) -> None:
        with ScriptedModel(THIRD) as model:
            self.assertEqual(run_agent(model, [], AgentLoopConfig("m", ""), "q"), ANSWER)
        self.assertEqual(model.requests[0]["tools"], [])

    def test_neither_settings_nor_events_can_be_changed_in_a_run(self) -> None:
        for value in (AgentLoopConfig("m", "i"), AgentEvent("turn_end", 1)):
            with self.assertRaises(dataclasses.FrozenInstanceError):
                value.turn = 2  # type: ignore[union-attr, misc]

    def test_the_defaults_are_the_article_s(self) -> None:
        config = AgentLoopConfig("m", "i")
        self.assertEqual((config.max_turns, config.required_tool_names, config.request_options), (8, (), {}))
        self.assertEqual((config.required_tool_choice, config.stream), ("required", False))
        self.assertFalse(config.answer_after_repeat)


class ThePage(unittest.TestCase):
    def test_the_loop_s_body_stays_within_sixty_lines(self) -> None:
        source = inspect.getsource(run_agent)
        self.assertLessEqual(len(source.rpartition('"""')[2].strip().splitlines()), 60)


if __name__ == "__main__":
    raise SystemExit(harness.main())
