"""The rules for reading a response, as tables: calls, output, text, and what is half a product."""

from __future__ import annotations

import json
import unittest
from typing import Any

from checks.support import harness
from checks.support.harness import JsonObject, call, message, response
from packages.pi_ai import (
    AgentRunError,
    CutOffCallError,
    FunctionCall,
    MiniPiError,
    ModelRequestError,
    ProtocolError,
    output_text,
    parse_function_calls,
    response_output,
    strict_json,
    unfinished,
)

MIB = 1024 * 1024


def refused(check: unittest.TestCase, error: type[MiniPiError], step: Any, *arguments: Any) -> str:
    """The message of exactly this error, which must say what to do next."""
    with check.assertRaises(error) as caught:
        step(*arguments)
    check.assertIs(type(caught.exception), error)
    check.assertRegex(str(caught.exception), "请")
    str(caught.exception).encode()
    return str(caught.exception)


@harness.table(
    [
        ("an_object", '{"path": "a"}', {"path": "a"}),
        ("an_empty_object", "{}", {}),
        ("white_space_around_it", ' \n{"a": [1, 2.5, null, true]}\r\n', {"a": [1, 2.5, None, True]}),
        ("an_object_that_is_parsed_already", {"path": "a"}, {"path": "a"}),
        ("a_pair_of_escapes", '{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
        ("half_a_pair_of_escapes", '{"a\\ud83d": ["\\ude00b"]}', {"a\ufffd": ["\ufffdb"]}),
        ("a_long_string", json.dumps({"a": "x" * 4 * MIB}), {"a": "x" * 4 * MIB}),
        ("many_brackets_side_by_side", '{"a": [' + "[]," * 5000 + "[]]}", {"a": [[]] * 5001}),
    ]
)
class ArgumentsThatAreAccepted(unittest.TestCase):
    def row(self, arguments: Any, expected: JsonObject) -> None:
        item = {**call("f", call_id="c"), "arguments": arguments}
        calls = parse_function_calls([{"type": "reasoning"}, item, message("beside")])
        self.assertEqual(calls, [FunctionCall("f", "c", expected)])
        json.dumps(calls[0].arguments, ensure_ascii=False).encode()


@harness.table(
    [
        ("an_empty_string", "", "JSON 对象"),
        ("blanks", "  ", "JSON 对象"),
        ("nothing", None, "JSON 对象"),
        ("a_number", 5, "JSON 对象"),
        ("a_list", [], "JSON 对象"),
        ("a_list_as_text", "[]", "JSON 对象"),
        ("null_as_text", "null", "JSON 对象"),
        ("a_number_as_text", "1", "JSON 对象"),
        ("an_object_inside_a_string", '"{\\"a\\": 1}"', "JSON 对象"),
        ("plain_text", "path=a", "JSON 对象"),
        ("text_before_it", 'Sure: {"a": 1}', "JSON 对象"),
        ("text_after_it", '{"a": 1}\n\nNow I will search.', "Extra data"),
        ("a_letter_after_it", '{"a": 1} t', "Extra data"),
        ("two_objects", '{"a": 1}{"a": 2}', "Extra data"),
        ("a_fence_around_it", '```json\n{"a": 1}\n```', "JSON 对象"),
        ("single_quotes", "{'a': 1}", "JSON 对象"),
        ("a_trailing_comma", '{"a": 1,}', "JSON 对象"),
        ("a_comment", '{"a": 1 /* one */}', "JSON 对象"),
        ("python_constants", '{"a": True}', "JSON 对象"),
        ("a_raw_newline_in_a_string", '{"a": "x\ny"}', "control character"),
        ("a_wrong_escape", '{"a": "\\x41"}', "escape"),
        ("a_byte_order_mark", '\ufeff{"a": 1}', "JSON 对象"),
        ("nan", '{"a": NaN}', "NaN"),
        ("infinity", '{"a": [-Infinity]}', "Infinity"),
        ("a_float_too_large", '{"a": 1e999}', "1e999"),
        ("an_integer_too_long", '{"a": ' + "9" * 5000 + "}", "数字"),
        ("a_key_twice", '{"a": 1, "a": 2}', "重复"),
        ("a_key_twice_further_in", '{"a": [{"b": 1, "b": 1}]}', "重复"),
        ("a_hundred_levels_and_more", '{"a":' * 101 + "1" + "}" * 101, "嵌套"),
        ("a_hundred_thousand_brackets", '{"a":' + "[" * 100_000 + "]" * 100_000 + "}", "嵌套"),
    ]
)
class ArgumentsThatAreRefused(unittest.TestCase):
    """Nothing is guessed: a ProtocolError that names the tool."""

    def row(self, arguments: Any, words: str) -> None:
        text = refused(self, ProtocolError, parse_function_calls, [{**call("shout"), "arguments": arguments}])
        self.assertIn("shout", text)
        self.assertIn(words, text)
        self.assertLess(len(text), 500)


WHOLE = '{"path": "a\\u00e9", "n": [12.5e+3, -1, true, null], "o": {"x": false}}'


@harness.table([(f"after_{length}_characters", WHOLE[:length]) for length in range(1, len(WHOLE))])
class ArgumentsCutOff(unittest.TestCase):
    """However far the JSON came, a CutOffCallError: a run error and a protocol error at once."""

    def row(self, arguments: str) -> None:
        text = refused(self, CutOffCallError, parse_function_calls, [{**call("f"), "arguments": arguments}])
        self.assertIn("QWEN_MAX_OUTPUT_TOKENS", text)
        self.assertTrue(
            issubclass(CutOffCallError, AgentRunError) and issubclass(CutOffCallError, ProtocolError)
        )


class ArgumentsCutOffInAWholeResponse(unittest.TestCase):
    def test_are_the_model_s_doing_and_not_the_cap_s(self) -> None:
        item = {**call("f"), "arguments": '{"path": "rep'}
        with self.assertRaisesRegex(CutOffCallError, "chat template 或 tool parser") as caught:
            parse_function_calls([item], {"output_tokens": 12})
        self.assertNotIn("QWEN_MAX_OUTPUT_TOKENS", str(caught.exception))
        for unknown in (None, {}, {"output_tokens": 0}, [1]):
            with self.assertRaisesRegex(CutOffCallError, "QWEN_MAX_OUTPUT_TOKENS"):
                parse_function_calls([item], unknown)


@harness.table(
    [
        ("no_name", {"name": None}, "name"),
        ("an_empty_name", {"name": ""}, "name"),
        ("a_blank_name", {"name": " \n"}, "name"),
        ("a_name_that_is_a_list", {"name": ["f"]}, "name"),
        ("no_call_id", {"call_id": None}, "call_id"),
        ("an_empty_call_id", {"call_id": ""}, "call_id"),
        ("a_blank_call_id", {"call_id": "\t"}, "call_id"),
        ("a_call_id_that_is_a_number", {"call_id": 7}, "call_id"),
        ("a_call_id_that_is_no_unicode", {"call_id": "c\ud800"}, "call_id"),
        ("a_call_id_that_was_there_before", {"call_id": "first"}, "first"),
    ]
)
class CallsThatCannotBePaired(unittest.TestCase):
    def test_what_the_server_made_up_is_told_in_short(self) -> None:
        endless = "\x1b\ud83d" + "x" * 100_000
        for item in ({**call("f"), "name": endless, "arguments": "x"}, {**call("f"), "call_id": endless}):
            text = refused(self, ProtocolError, parse_function_calls, [item])
            self.assertLess(len(text), 300)
            self.assertNotIn("\x1b", text)

    def row(self, fields: JsonObject, words: str) -> None:
        first, second = call("f", call_id="first"), {**call("g", call_id="second"), **fields}
        self.assertIn(words, refused(self, ProtocolError, parse_function_calls, [first, second]))
        for key in [key for key, value in fields.items() if value is None]:
            del second[key]
            refused(self, ProtocolError, parse_function_calls, [first, second])


@harness.table(
    [
        ("missing", {}, ProtocolError),
        ("null", {"id": "r", "output": None}, ProtocolError),
        ("an_object", {"output": {}}, ProtocolError),
        ("a_string", {"output": "hi"}, ProtocolError),
        ("a_string_as_item", {"output": ["hi"]}, ProtocolError),
        ("null_as_item", {"output": [message("a"), None]}, ProtocolError),
        ("a_list_as_item", {"output": [[]]}, ProtocolError),
        ("a_stream_event", {"type": "response.completed", "response": response()}, ProtocolError),
        ("a_chat_completion", {"choices": [{"message": {"content": "hi"}}]}, ProtocolError),
        ("an_empty_shell", {"id": None, "output": None}, ModelRequestError),
        ("an_error_object", response(error={"message": "quota gone", "code": 1}), ModelRequestError),
        ("an_error_text", response(message("hi"), error="quota gone"), ModelRequestError),
        ("an_error_alone", {"error": {"message": "quota gone"}}, ModelRequestError),
        ("an_error_without_words", response(error={"message": ""}), ModelRequestError),
        ("status_failed", response(message("hi"), status="failed"), ModelRequestError),
        ("status_error", response(message("hi"), status="error"), ModelRequestError),
        ("an_error_without_its_envelope", {"object": "error", "message": "quota gone"}, ModelRequestError),
        ("a_detail_alone", {"detail": "quota gone"}, ModelRequestError),
        ("details_alone", {"detail": [{"loc": ["body"], "msg": "quota gone"}]}, ModelRequestError),
        ("a_chat_of_ollama", {"message": {"role": "assistant", "content": "hi"}}, ProtocolError),
    ]
)
class OutputsThatAreRefused(unittest.TestCase):
    def row(self, body: JsonObject, error: type[MiniPiError]) -> None:
        text = refused(self, error, response_output, body)
        if "quota gone" in json.dumps(body):
            self.assertIn("quota gone", text)


class OutputsThatAreAccepted(unittest.TestCase):
    def test_items_come_back_as_they_are_in_order(self) -> None:
        items = [
            {"type": "new_kind", "z": {"b": [None], "a": "\ud800"}, "id": None},
            call("f"),
            message("hi"),
            {},
        ]
        output = response_output(response(*items, error=None))
        self.assertEqual([list(item.items()) for item in output], [list(item.items()) for item in items])

    def test_arguments_that_came_as_an_object_go_back_as_json_text(self) -> None:
        item = {"arguments": {"路径": 1}, **{k: v for k, v in call("f").items() if k != "arguments"}}
        (replayed,) = response_output(response(item))
        self.assertEqual(replayed, {**item, "arguments": '{"路径": 1}'})
        self.assertEqual(list(replayed), list(item))
        self.assertEqual(item["arguments"], {"路径": 1})
        self.assertEqual(parse_function_calls([replayed])[0].arguments, {"路径": 1})


def parts(*content: Any) -> JsonObject:
    return message("", content=list(content))


def text_part(text: Any) -> JsonObject:
    return {"type": "output_text", "text": text}


@harness.table(
    [
        ("one_part", [message("hi")], {}, "hi"),
        ("parts_are_joined", [parts(text_part("a"), text_part("b")), message("c")], {}, "abc"),
        ("a_plain_text_part", [parts({"type": "text", "text": "a"})], {}, "a"),
        ("content_is_a_string", [message("", content="Hi")], {}, "Hi"),
        ("content_is_null", [message("", content=None)], {}, ""),
        ("content_is_an_object", [message("", content={"text": "a"})], {}, ""),
        ("a_null_text", [parts(text_part(None), text_part("b"))], {}, "b"),
        ("a_text_that_is_a_number", [parts(text_part(5))], {}, ""),
        ("parts_that_are_no_objects", [parts("a", None, 5, text_part("b"))], {}, "b"),
        ("a_refusal_is_no_text", [parts({"type": "refusal", "refusal": "No.", "text": "No."})], {}, ""),
        ("reasoning_is_no_text", [{"type": "reasoning", "content": [text_part("hm")]}], {}, ""),
        ("a_user_message_is_not_the_answer", [message("q", role="user"), message("a")], {}, "a"),
        ("a_message_whose_role_is_null", [message("a", role=None, type=None)], {}, "a"),
        ("a_message_without_type", [{"role": "assistant", "content": [text_part("a")]}], {}, "a"),
        ("the_top_level_field_when_output_is_empty", [], {"output_text": "ping"}, "ping"),
        ("the_top_level_field_when_output_is_blank", [message(" ")], {"output_text": "ping"}, "ping"),
        ("the_top_level_field_does_not_win", [message("a")], {"output_text": "b"}, "a"),
        ("the_top_level_field_is_null", [message("a")], {"output_text": None}, "a"),
        ("the_top_level_field_is_a_list", [], {"output_text": ["a"]}, ""),
        ("half_a_surrogate_pair", [message("a\ud800b")], {}, "a\ufffdb"),
        ("a_pair_split_over_parts", [parts(text_part("\ud83d"), text_part("\ude00"))], {}, "😀"),
        ("a_think_block", [message("<think>\nhm\n</think>\n\nHello")], {}, "Hello"),
        ("an_empty_think_block", [message("\n<think></think>Hello\n")], {}, "Hello\n"),
        ("a_think_block_in_its_own_part", [parts(text_part("<think>a</think>"), text_part("b"))], {}, "b"),
        ("a_think_block_that_never_ends", [message("<think>hm, 4")], {}, ""),
        ("a_think_block_and_nothing_else", [message("<think>4</think>\n")], {"output_text": "x"}, ""),
        ("only_the_end_of_a_think_block", [message("I should greet.\n</think>\n\nHello")], {}, "Hello"),
        ("several_think_blocks", [message("<think>a</think>\n<think>b</think>\n\nHello")], {}, "Hello"),
        ("a_second_think_block_that_never_ends", [message("<think>a</think>\n<think>b")], {}, ""),
        ("a_thinking_block", [message("<Thinking>\nhm\n</Thinking>\nHello")], {}, "Hello"),
        (
            "the_end_of_a_think_block_behind_its_text",
            [message("I should greet.</think>\n\nHello")],
            {},
            "Hello",
        ),
        (
            "a_think_block_in_the_middle",
            [message("a\n<think>b\n</think>\nc")],
            {},
            "a\n<think>b\n</think>\nc",
        ),
        ("other_tags_before_the_end_of_one", [message("if a<b, <i>x</i>\n</think>\nHello")], {}, "Hello"),
        ("only_the_end_at_the_start", [message("</think>\nHello")], {}, "Hello"),
        ("only_the_end_and_no_answer", [message("I should greet.\n</think>")], {}, "I should greet."),
        ("an_answer_and_a_stray_end", [message("The answer is 5.</think>")], {}, "The answer is 5."),
        (
            "a_sentence_that_begins_with_the_tag",
            [message("<think> opens the reasoning.")],
            {},
            "<think> opens the reasoning.",
        ),
        (
            "an_answer_about_both_tags",
            [message("Qwen writes\n<think>\nhm\n</think>\nand then answers.")],
            {},
            "Qwen writes\n<think>\nhm\n</think>\nand then answers.",
        ),
        (
            "an_end_that_a_sentence_is_about",
            [message("It ends with </think>\nand the answer follows.")],
            {},
            "It ends with </think>\nand the answer follows.",
        ),
        ("commentary_is_no_answer", [message("I look.", phase="commentary"), message("5")], {}, "5"),
        (
            "commentary_alone_is_no_answer",
            [message("I look.", phase="commentary")],
            {"output_text": "I look."},
            "",
        ),
        ("a_final_answer_by_its_phase", [message("5", phase="final_answer")], {}, "5"),
        ("a_think_tag_within_a_line", [message("the tag </think> ends it")], {}, "the tag </think> ends it"),
        ("a_think_block_further_down", [message("a\n<think>b")], {}, "a\n<think>b"),
        ("the_top_level_field_with_a_think_block", [], {"output_text": "<think>a</think>b"}, "b"),
    ]
)
class Text(unittest.TestCase):
    def row(self, output: list[JsonObject], fields: JsonObject, expected: str) -> None:
        self.assertEqual(output_text(output, response(*output, **fields)), expected)


def refusal(text: Any) -> JsonObject:
    return parts(text_part("Part"), {"type": "refusal", "refusal": text})


HI = message("hi")
USED_64 = {"usage": {"output_tokens": 64}}
GARBAGE = {"usage": [1], "incomplete_details": "x", "max_output_tokens": "64", "status": ["completed"]}


@harness.table(
    [
        ("whole", [HI], {}, None, None),
        ("whole_below_the_cap", [HI], USED_64, 65, None),
        ("whole_without_a_cap", [HI], USED_64, None, None),
        ("whole_without_a_status", [HI], {"status": None}, None, None),
        ("whole_with_garbage_beside_it", [HI], GARBAGE, "64", None),
        ("garbage_in_usage", [HI], {"usage": {"output_tokens": "64"}}, 64, None),
        ("a_cap_of_zero_or_less", [HI], {"max_output_tokens": -1, **USED_64}, 0, None),
        ("a_cap_that_is_true", [HI], {"usage": {"output_tokens": 1}}, True, None),
        ("an_empty_refusal", [refusal("")], {}, None, None),
        ("incomplete_details_without_reason", [HI], {"incomplete_details": {}}, None, None),
        ("refusal_wins_over_text", [refusal("No.")], {}, None, "拒绝.*No\\."),
        ("content_filter", [], {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, None,
         "content_filter"),
        ("cut_by_the_cap", [HI], {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, None,
         "max_output_tokens.*QWEN_MAX_OUTPUT_TOKENS"),
        ("incomplete_for_another_reason", [HI], {"status": "incomplete", "incomplete_details": {"reason": "odd"}}, None,
         "odd"),
        ("incomplete_without_details", [HI], {"status": "incomplete"}, None, "incomplete"),
        ("a_reason_though_completed", [HI], {"incomplete_details": {"reason": "max_output_tokens"}}, None,
         "QWEN_MAX_OUTPUT_TOKENS"),
        ("the_cap_was_reached_though_completed", [HI], USED_64, 64, "max_output_tokens=64"),
        ("the_cap_was_passed_though_completed", [HI], USED_64, 10, "max_output_tokens=10"),
        ("the_servers_own_cap_was_reached", [HI], {"max_output_tokens": 64, **USED_64}, None, "max_output_tokens=64"),
        ("the_servers_cap_is_the_lower_one", [HI], {"max_output_tokens": 64, **USED_64}, 2048, "max_output_tokens=64"),
        ("the_count_is_a_float", [HI], {"usage": {"output_tokens": 64.0}}, 64, "max_output_tokens=64"),
        ("nothing_came_under_a_cap", [], {"usage": {"output_tokens": 0}, "max_output_tokens": 1}, None,
         "max_output_tokens=1"),
        ("an_item_stopped_half_way", [message("In", status="incomplete")], {}, None, "incomplete"),
        ("a_call_stopped_half_way", [call("f", status="incomplete")], {}, None, "incomplete"),
        ("incomplete_for_an_endless_reason", [HI], {"incomplete_details": {"reason": "x\ud800" * 9999}}, None, "^.{,200}$"),
        ("nothing_came_although_some_tokens_were_used", [], {"usage": {"output_tokens": 5}}, 64, None),
        ("a_text_that_repeats_itself_to_the_cap", [message("目录：\n" + "- notes\n- logs\n" * 40)], USED_64, 64,
         "重复自己.*- notes - logs"),
        ("a_character_that_repeats_itself", [message("好" * 500)], {"status": "incomplete"}, None, "重复自己"),
        ("a_table_that_was_cut", [message("|---" * 3 + "-" * 300)], USED_64, 64, "max_output_tokens=64"),
        ("a_text_that_was_cut_and_does_not_repeat", [message("".join(map(str, range(200))))], USED_64, 64, "max_output_tokens=64"),
        ("a_text_that_repeats_itself_and_ends", [message("好" * 500)], USED_64, 65, None),
        ("a_custom_tool_call", [{"type": "custom_tool_call", "call_id": "c", "name": "f", "input": ""}], {}, None,
         "custom_tool_call"),
        ("a_request_for_approval_beside_text", [HI, {"type": "mcp_approval_request", "id": "a"}], {}, None,
         "mcp_approval_request"),
        ("a_computer_call", [{"type": "computer_call", "call_id": ["c"]}], {}, None, "computer_call"),
        ("a_call_of_a_kind_that_nobody_knows", [{"type": "teleport_call", "call_id": "c"}], {}, None, "teleport_call"),
        ("a_hosted_call", [{"type": "web_search_call", "id": "w"}, HI], {}, None, None),
        ("a_call_that_the_server_answered", [{"type": "shell_call", "call_id": "c"},
         {"type": "shell_call_output", "call_id": "c"}, HI], {}, None, None),
        ("cancelled", [HI], {"status": "cancelled"}, None, "cancelled"),
        ("queued", [], {"status": "queued"}, None, "queued"),
        ("in_progress", [HI], {"status": "in_progress"}, None, "in_progress"),
    ]
)  # fmt: skip
class HalfAProduct(unittest.TestCase):
    """None for what is whole; else a reason that says what to do."""

    def row(self, output: list[JsonObject], fields: JsonObject, cap: Any, words: str | None) -> None:
        reason = unfinished(response(*output, **fields), output, cap)
        if words is None:
            self.assertIsNone(reason)
        else:
            self.assertRegex(str(reason), words)
            self.assertIn("请", str(reason))


class StrictJson(unittest.TestCase):
    def test_a_hundred_levels_are_read_and_one_more_is_not(self) -> None:
        for levels, allowed in ((100, True), (101, False)):
            for opening, closing in ("[]", ('{"a":', "}")):
                text = opening * levels + ("" if opening == "[" else "1") + closing * levels
                with self.subTest(levels=levels, opening=opening):
                    if allowed:
                        strict_json(text)
                    else:
                        self.assertRaises(ProtocolError, strict_json, text)

    def test_brackets_inside_strings_are_no_levels(self) -> None:
        self.assertEqual(strict_json(json.dumps(["[{" * 500])), ["[{" * 500])


if __name__ == "__main__":
    raise SystemExit(harness.main())
