"""Which text is a tool call in disguise: the forms that models were seen to write, and what only looks like one.

Qwen2.5-Coder and Qwen3-Coder, Llama, Mistral, DeepSeek, GLM, Kimi, Hermes, Gemma, gpt-oss and Claude are
quoted from reports of calls that servers had not recognised.
"""

from __future__ import annotations

import json
import time
import unittest
import warnings

from checks.support import harness
from checks.support.harness import ScriptedModel, message, response, table
from packages.pi_agent import AgentLoopConfig, AgentTool, run_agent
from packages.pi_agent.answer import written_call
from packages.pi_ai import AgentRunError

TOOLS = ("read_file", "list_files")
CALL = '{"name": "read_file", "arguments": {"path": "reports/a.json"}}'
LIST = '{"name": "list_files", "arguments": {"path": "."}}'


def fenced(text: str, language: str = "json") -> str:
    return f"```{language}\n{text}\n```"


@table(
    [
        # JSON alone, as Qwen2.5-Coder writes it
        ("bare", CALL),
        ("in_our_own_template_s_tag", f"<action>{CALL}</action>"),
        ("white_space_around_it", f"\n\n \t{CALL}\r\n\n"),
        ("spread_over_lines", json.dumps(json.loads(CALL), indent=4)),
        ("no_arguments", '{"name": "read_file"}'),
        ("empty_arguments", '{"name": "read_file", "arguments": {}}'),
        ("arguments_first", '{"arguments": {"path": "."}, "name": "read_file"}'),
        ("arguments_as_a_string", '{"name": "read_file", "arguments": "{\\"path\\": \\".\\"}"}'),
        ("arguments_with_a_raw_newline", '{"name": "read_file", "arguments": {"path": "a\nb"}}'),
        ("arguments_with_markup_in_them", '{"name": "read_file", "arguments": {"path": "```</tool_call>"}}'),
        ("parameters_as_llama_calls_them", '{"name": "read_file", "parameters": {"path": "."}}'),
        ("args", '{"tool": "read_file", "args": {"path": "."}}'),
        ("input_as_claude_calls_it", '{"type": "tool_use", "id": "t", "name": "read_file", "input": {}}'),
        ("function_as_the_name", '{"function": "read_file", "arguments": {}}'),
        ("action_as_langchain_has_it", '{"action": "read_file", "action_input": {"path": "."}}'),
        ("tool_name", '{"tool_name": "read_file", "tool_input": {"path": "."}}'),
        ("openai_chat", '{"type": "function", "function": {"name": "read_file", "arguments": "{}"}}'),
        ("openai_chat_with_id", '{"id": "c", "type": "function", "function": {"name": "read_file"}}'),
        (
            "openai_responses",
            '{"type": "function_call", "call_id": "c", "name": "read_file", "arguments": ""}',
        ),
        ("function_call", '{"function_call": {"name": "read_file", "arguments": {}}}'),
        ("tool_call", f'{{"tool_call": {CALL}}}'),
        ("tool_calls", f'{{"tool_calls": [{CALL}]}}'),
        ("an_array", f"[{CALL}]"),
        ("an_array_of_two", f"[{CALL}, {LIST}]"),
        ("two_on_lines_of_their_own", f"{CALL}\n{LIST}"),
        ("two_with_a_comma", f"{CALL}, {LIST}"),
        ("two_with_a_semicolon", f"{CALL};{LIST}"),
        ("the_same_call_many_times", f"{CALL}\n" * 50),
        # JSON that is not whole
        ("cut_off_in_the_arguments", CALL[:45]),
        ("cut_off_behind_the_name", '{"name": "read_file"'),
        ("cut_off_behind_a_comma", '{"name": "read_file",\n  '),
        ("cut_off_with_spaces_everywhere", '{\n  "name" : "read_file" ,\n  "arguments" : {'),
        ("cut_off_in_openai_chat_with_spaces", '{ "function" : { "name" : "read_file" , "arguments" : {'),
        ("cut_off_before_the_arguments", '{"name": "read_file", "arguments"'),
        ("cut_off_in_openai_chat", '{"function": {"name": "read_file", "arguments": {"pa'),
        ("cut_off_in_an_array", f"[{CALL[:50]}"),
        ("cut_off_in_the_second_of_two", f"{CALL}\n{LIST[:40]}"),
        ("one_brace_too_many", CALL + "}"),
        ("one_brace_too_few", CALL[:-1]),
        ("one_bracket_too_many", CALL + "]"),
        ("single_quotes", CALL.replace('"', "'")),
        ("a_trailing_comma", '{"name": "read_file", "arguments": {"path": ".",}}'),
        # fences
        ("fence", fenced(CALL)),
        ("fence_without_a_language", fenced(CALL, "")),
        ("fence_that_says_tool_call", fenced(CALL, "tool_call")),
        ("fence_that_says_xml", fenced(f"<tool_call>{CALL}</tool_call>", "xml")),
        ("backticks", f"`{CALL}`"),
        ("fence_not_closed", f"```json\n{CALL}\n"),
        ("fence_only_closed", f"{CALL}\n```"),
        ("fence_and_blank_lines_to_the_cap", fenced(CALL) + "\n" * 400),
        ("two_fences", f"{fenced(CALL)}\n\n{fenced(LIST)}"),
        ("two_calls_in_one_fence", fenced(f"{CALL}\n{LIST}")),
        ("fence_cut_off", f"```json\n{CALL[:50]}"),
        # tags around JSON
        ("tool_call_tag_as_qwen_and_hermes_have_it", f"<tool_call>\n{CALL}\n</tool_call>"),
        ("tool_call_tag_not_closed", f"<tool_call>\n{CALL}"),
        ("tool_call_tag_only_closed", f"{CALL}\n</tool_call>"),
        ("tool_call_tag_opened_twice", f"<tool_call>\n{CALL}\n<tool_call>"),
        ("tool_call_tags_for_two", f"<tool_call>{CALL}</tool_call>\n<tool_call>{LIST}</tool_call>"),
        ("tool_call_tag_in_capitals", f"<TOOL_CALL>{CALL}</TOOL_CALL>"),
        ("tools_tag_as_qwen_coder_has_it", f"<tools>\n{CALL}\n</tools>"),
        ("tool_tag", f"<tool>{CALL}</tool>"),
        ("function_call_tag", f"<function_call>{CALL}</function_call>"),
        ("functioncall_tag", f"<functioncall> {CALL}"),
        ("tag_and_fence", f"<tool_call>\n{fenced(CALL)}\n</tool_call>"),
        ("fence_and_tag", fenced(f"<tools>\n{CALL}\n</tools>")),
        ("tag_cut_off", '<tool_call>\n{"name": "read_file", "arguments": {"path": "rep'),
        ("token_of_granite", f"<|tool_call|>[{CALL}]"),
        ("token_of_llama", '<|python_tag|>{"name": "read_file", "parameters": {"path": "."}}<|eom_id|>'),
        ("token_of_a_turn_s_end", f"{CALL}<|im_end|>"),
        ("token_of_a_text_s_end", f"{CALL}</s>"),
        ("brackets_of_mistral", f"[TOOL_CALLS][{CALL}]"),
        ("brackets_of_mistral_closed", f"[TOOL_CALLS] [{CALL}] [/TOOL_CALLS]"),
        ("brackets_of_lm_studio", f"[TOOL_REQUEST]{CALL}[END_TOOL_REQUEST]"),
        # labels
        ("label_action", f"Action: {CALL}"),
        ("label_action_before_a_fence", f"Action:\n{fenced(CALL)}"),
        ("label_tool_call", f"Tool call: {CALL}"),
        ("label_function_call", f"function_call: {CALL}"),
        ("label_in_chinese", f"工具调用：{CALL}"),
        ("two_labels", f"Action: {CALL}\nAction: {LIST}"),
        ("label_of_react", 'Action: read_file\nAction Input: {"path": "."}'),
        # the name in a tag
        (
            "function_tag_of_qwen_coder",
            "<function=read_file>\n<parameter=path>\na.md\n</parameter>\n</function>",
        ),
        (
            "function_tag_in_a_tool_call_tag",
            "<tool_call>\n<function=read_file>\n<parameter=path>a.md</parameter>\n</function>\n</tool_call>",
        ),
        ("function_tag_with_json_as_llama_has_it", '<function=read_file>{"path": "."}</function>'),
        ("function_tag_without_its_bracket", '<function=read_file{"path": "."}</function>'),
        ("function_tag_not_closed", "<function=read_file>\n<parameter=path>\na.md"),
        ("function_tag_closed_by_another", "<function=read_file>\n<parameter=path>\na.md\n</tool_call>"),
        ("function_tag_cut_off_at_once", "<function=read_file"),
        ("function_name_attribute", '<function name="read_file"><param name="path">.</param></function>'),
        ("two_function_tags", "<function=read_file>a</function>\n<function=list_files>b</function>"),
        (
            "invoke_tag_of_claude",
            '<function_calls>\n<invoke name="read_file">\n<parameter name="path">.</parameter>\n</invoke>\n'
            "</function_calls>",
        ),
        (
            "invoke_tag_with_two_parameters",
            '<invoke name="read_file"><parameter name="path">a</parameter><parameter name="b">c</parameter></invoke>',
        ),
        ("invoke_tag_alone", '<invoke name="read_file"><parameter name="path">.</parameter></invoke>'),
        ("invoke_tag_without_quotes", "<invoke name=read_file><parameter name=path>.</parameter></invoke>"),
        (
            "invoke_tag_of_minimax",
            '<minimax:tool_call><invoke name="read_file"><parameter name="path">.</parameter></invoke>'
            "</minimax:tool_call>",
        ),
        (
            "invoke_tag_of_deepseek",
            '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="read_file">\n<｜DSML｜parameter name="path" string="true">.'
            "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
        ),
        ("tool_tag_with_a_name", '<tool name="read_file"><path>.</path></tool>'),
        ("tool_call_tag_with_a_name", '<tool_call name="read_file">{"path": "."}</tool_call>'),
        ("tag_that_is_the_name", "<read_file>\n<path>a.md</path>\n</read_file>"),
        ("tag_that_is_the_name_not_closed", "<read_file>\n<path>a.md"),
        # the name before its arguments
        ("name_before_json", 'read_file {"path": "."}'),
        ("name_before_json_cut_off", 'read_file {"path": "rep'),
        ("name_and_json_of_mistral", '[TOOL_CALLS]read_file{"path": "."}'),
        ("name_and_args_of_mistral", '[TOOL_CALLS]read_file[ARGS]{"path": "."}'),
        ("two_names_and_args_of_mistral", "[TOOL_CALLS]read_file[ARGS]{}[TOOL_CALLS]list_files[ARGS]{}"),
        (
            "tokens_of_deepseek_v3",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read_file\n"
            '```json\n{"path": "."}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        ),
        (
            "tokens_of_deepseek_v31",
            '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>read_file<｜tool▁sep｜>{"path": "."}<｜tool▁call▁end｜>',
        ),
        (
            "tokens_of_kimi",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.read_file:0<|tool_call_argument_begin|>"
            '{"path": "."}<|tool_call_end|><|tool_calls_section_end|>',
        ),
        (
            "channel_of_gpt_oss",
            "<|start|>assistant<|channel|>commentary to=functions.read_file <|constrain|>json<|message|>"
            '{"path": "."}<|call|>',
        ),
        (
            "arg_keys_of_glm",
            "<tool_call>read_file\n<arg_key>path</arg_key>\n<arg_value>a.md</arg_value>\n</tool_call>",
        ),
        (
            "two_arg_keys_of_glm",
            "<tool_call>read_file\n<arg_key>path</arg_key>\n<arg_value>a</arg_value>\n"
            "<arg_key>b</arg_key>\n<arg_value>c</arg_value>\n</tool_call>",
        ),
        ("arg_keys_of_glm_cut_off", "<tool_call>read_file\n<arg_key>path</arg_key>\n<arg_value>a."),
        ("no_arg_keys_of_glm", "<tool_call>list_files\n</tool_call>"),
        ("python_of_llama", '[read_file(path="a.md")]'),
        ("python_of_llama_for_two", '[read_file(path="a.md"), list_files(path=".")]'),
        ("python_of_gemma", fenced("read_file(path='a.md')", "tool_code")),
        ("python_by_position", 'read_file("a.md")'),
        ("python_without_arguments", "list_files()"),
        ("python_cut_off", '[read_file(path="a.m'),
        ("python_over_several_lines", 'read_file(\n    path="a.md",\n)'),
        ("python_that_prints", 'print(read_file(path="a.md"))'),
        ("python_that_prints_without_end", 'print(read_file(path="a.md"'),
        ("python_that_keeps_the_result", fenced('text = read_file("a.md")\nprint(text)', "python")),
        ("python_that_awaits", "await read_file('a.md')"),
        ("python_of_gemini", 'default_api.read_file(path="a.md")'),
        ("python_of_gemini_printed", fenced('print(default_api.read_file(path="a.md"))', "tool_code")),
        ("python_of_gpt_oss", 'functions.read_file(path="a.md")'),
        ("python_with_an_object", 'read_file({"path": "a.md"})'),
        ("python_with_an_object_of_json", 'read_file({"path": "a.md", "all": true})'),
        ("python_with_an_object_cut_off", 'read_file({"path": "a.'),
        ("python_with_an_object_printed", 'print(read_file({"path": "a.md"}))'),
        ("tools_tag_with_half_an_end", f"<tools> {CALL} </tool"),
        ("tool_call_tag_with_half_an_end", f"<tool_call>\n{CALL}\n</tool_c"),
        (
            "tool_use_tag_with_a_name",
            '<tool_use><name>read_file</name><arguments>{"path": "."}</arguments></tool_use>',
        ),
        (
            "tool_use_tag_with_a_name_on_lines",
            "<tool_use>\n  <name>read_file</name>\n  <parameters>\n<path>a</path>\n</parameters>\n</tool_use>",
        ),
        ("tool_use_tag_with_a_name_cut_off", '<tool_use><name>read_file</name><arguments>{"pa'),
        (
            "tags_of_function_gemma",
            "<start_function_call>call:read_file{path:<escape>a.md<escape>}<end_function_call>",
        ),
    ]
)
class ACallInDisguise(unittest.TestCase):
    def row(self, text: str) -> None:
        self.assertIn(written_call(text, TOOLS), TOOLS)
        self.assertIsNone(written_call(text, ("get_weather",)), "no registered tool is named")
        with (
            ScriptedModel(response(message(text))) as model,
            self.assertRaisesRegex(AgentRunError, "chat template 或 tool parser"),
        ):
            tools = [AgentTool(name, "", {"type": "object"}, lambda _: "never") for name in TOOLS]
            run_agent(model, tools, AgentLoopConfig("m", "i"), "q")


@table(
    [
        ("empty", ""),
        ("white_space", " \n\t "),
        ("prose", "这份日报的日期是 2026-09-06，订单数 128，营收 9600 元。"),
        ("prose_that_names_the_tool", "read_file 用来读取文件，list_files 用来列出目录。"),
        ("the_name_alone", "read_file"),
        ("the_name_in_backticks", "`read_file`"),
        ("both_names_alone", "read_file\nlist_files"),
        ("prose_before_a_call", f"我先看看目录。\n{CALL}"),
        ("prose_before_a_fence", f"可以这样调用：\n{fenced(CALL)}"),
        ("prose_after_a_call", f"{CALL}\n这样就能读到文件。"),
        (
            "prose_after_a_raw_newline_in_a_call",
            '{"name": "read_file", "arguments": {"path": "a\nb"}} 是一例。',
        ),
        ("prose_after_a_fence", f"{fenced(CALL)}\n这样就能读到文件。"),
        ("prose_between_two_calls", f"{fenced(CALL)}\n结果会是下面这样，然后再列目录：\n{fenced(LIST)}"),
        ("prose_after_a_tag", f"<tool_call>{CALL}</tool_call> 是正确的写法。"),
        ("prose_after_a_function_tag", "<function=read_file>a</function> 是 Qwen3-Coder 的写法。"),
        ("prose_after_an_invoke_tag", '<invoke name="read_file"></invoke> 是 Claude 的写法。'),
        (
            "prose_after_deepseek_s_tag",
            '<｜DSML｜invoke name="read_file"></｜DSML｜invoke> 是 DeepSeek 的写法。',
        ),
        ("prose_after_a_tag_with_a_name", '<tool_call name="read_file">{}</tool_call> 是正确的写法。'),
        ("prose_after_a_tag_that_is_the_name", "<read_file>a</read_file> 是 XML。"),
        ("prose_after_a_name_and_json", 'read_file {"path": "."} 会读取根目录。'),
        ("prose_after_python", 'read_file(path="a.md") 会读取 a.md。'),
        ("prose_after_arg_keys", "read_file<arg_key>path</arg_key><arg_value>a</arg_value> 是 GLM 的写法。"),
        ("a_signature", "read_file(path)"),
        ("a_list_of_signatures", "read_file(path)\nlist_files(path)"),
        ("a_label_and_prose", "Action: 读取文件"),
        ("a_markdown_list", "- read_file: 读取文件\n- list_files: 列出目录"),
        ("a_code_block", fenced("print(128)", "python")),
        (
            "a_code_block_that_defines_it",
            fenced("def read_file(path):\n    return open(path).read()", "python"),
        ),
        ("an_html_answer", "<p>订单数 128</p>"),
        ("json_data", '{"date": "2026-09-06", "orders": 128, "revenue_yuan": 9600}'),
        ("json_data_in_a_fence", fenced('{"date": "2026-09-06", "orders": 128}')),
        ("json_data_cut_off", '{"date": "2026-09-06", "ord'),
        ("json_data_with_a_name", '{"name": "read_file", "size": 128}'),
        (
            "json_data_with_a_name_and_more",
            '{"name": "read_file", "description": "读取文件", "arguments": {}}',
        ),
        ("json_data_with_a_name_cut_off", '{"name": "read_file", "description": "读取'),
        ("json_data_with_a_name_that_is_no_string", '{"name": ["read_file"], "arguments": {}}'),
        ("json_declaration", '{"type": "function", "function": {"name": "read_file", "description": "d"}}'),
        ("json_names", '["read_file", "list_files"]'),
        ("json_tool_calls_that_are_names", '{"tool_calls": ["read_file"]}'),
        ("json_no_tool_calls", '{"tool_calls": []}'),
        ("json_empty_array", "[]"),
        ("json_empty_object", "{}"),
        ("json_string", '"read_file"'),
        ("json_number", "128"),
        ("json_null", "null"),
        ("json_of_an_unregistered_tool", '{"name": "get_weather", "arguments": {}}'),
        ("json_of_a_registered_and_an_unregistered_tool", f'[{CALL}, {{"name": "get_weather"}}]'),
        ("json_of_a_registered_tool_and_data", f'{CALL}\n{{"orders": 128}}'),
        ("json_with_the_name_in_capitals", '{"name": "READ_FILE", "arguments": {}}'),
        ("function_tag_of_an_unregistered_tool", "<function=get_weather>北京</function>"),
        ("broken_json_that_names_it_somewhere", '{"answer": "read_file", "arguments": '),
        ("brackets_without_end", "[" * 100_000),
        ("braces_without_end", '{"name":' * 50_000),
        ("brackets_too_deep_for_our_own_reading", "[" * 700 + "]" * 700),
        ("functions_too_deep_for_our_own_reading", '{"function":' * 900 + "{}" + "}" * 900),
        ("only_what_stands_around_a_call", "```json\n```<tool_call></tool_call>[TOOL_CALLS]"),
    ]
)
class AnAnswerAllTheSame(unittest.TestCase):
    def row(self, text: str) -> None:
        self.assertIsNone(written_call(text, TOOLS))


SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string", "minLength": 1}},
    "required": ["path"],
    "additionalProperties": False,
}
DECLARED = {
    name: AgentTool(name, "", SCHEMA, lambda _: "never")
    for name in ("read_file", "list_files", "price", "config")
}


@table(
    [
        ("the_tool_as_the_key", '{"read_file": {"path": "a.md"}}', "read_file"),
        ("the_tool_as_the_key_in_a_fence", fenced('{"read_file": {"path": "a.md"}}'), "read_file"),
        ("the_tool_as_the_key_of_other_arguments", '{"config": {"debug": true}}', None),
        ("arguments_beside_the_tool", '{"tool": "read_file", "path": "a.md"}', "read_file"),
        ("arguments_beside_the_action", '{"action": "read_file", "path": "a.md"}', "read_file"),
        ("other_data_beside_the_tool", '{"tool": "read_file", "uses": 12}', None),
        ("a_name_and_its_type", '{"name": "price", "type": "number"}', None),
        ("a_name_and_a_type_that_calls_have", '{"name": "price", "type": "function"}', None),
        ("a_word_before_an_object", 'config {"debug": true}', None),
        ("a_word_before_its_arguments", 'config {"path": "a.md"}', "config"),
        ("the_name_of_a_function", "list_files()", None),
        ("the_name_of_a_function_in_backticks", "`list_files()`", None),
        ("a_function_with_a_path", 'list_files("reports")', "list_files"),
        ("a_function_with_an_empty_path", 'list_files("")', None),
        ("json_with_arguments", CALL, "read_file"),
        (
            "json_with_arguments_in_a_string",
            '{"name": "read_file", "arguments": "{\\"path\\": \\".\\"}"}',
            "read_file",
        ),
        ("json_with_wrong_arguments", '{"name": "read_file", "arguments": {"file": "a.md"}}', None),
        ("json_with_a_number", '{"name": "read_file", "arguments": {"path": 5}}', None),
        ("json_cut_off", CALL[:45], "read_file"),
        ("a_signature", "read_file(path: str) -> str", None),
        ("python_with_a_variable", "read_file(path)", None),
        ("python_that_computes", 'print(len(read_file("a.md")))', None),
        ("python_that_imports", 'import os\nread_file("a.md")', None),
        ("a_warning_in_a_string", 'read_file("a\\d.md")', "read_file"),
    ]
)
class TheToolsOwnSchemaDecides(unittest.TestCase):
    """Arguments that it refuses make no call."""

    def row(self, text: str, name: str | None) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertEqual(written_call(text, DECLARED), name)


class TheFirstOfSeveralIsNamed(unittest.TestCase):
    def test_in_each_form(self) -> None:
        for text in (f"{LIST}\n{CALL}", f"[{LIST}, {CALL}]", "list_files()\nread_file('a')"):
            with self.subTest(text=text):
                self.assertEqual(written_call(text, TOOLS), "list_files")

    def test_names_of_any_spelling_are_known_in_whole_json(self) -> None:
        for name in ("读文件", "read file", "mcp__files.read-file/2", '"'):
            with self.subTest(name=name):
                self.assertEqual(written_call(json.dumps({"name": name, "arguments": {}}), [name]), name)


@table(
    [
        ("open_brackets", "[" * 40_000),
        ("names_without_arguments", "read_file" * 40_000),
        ("words", "read_file " * 40_000),
        ("tag_openings", "<tool" * 40_000),
        ("tag_of_one_endless_word", "<" + "tool" * 40_000),
        ("invoke_openings", '<invoke name="read_file">' * 20_000),
        ("arg_keys_not_closed", "read_file" + "<arg_key>" * 40_000),
        ("arg_keys", "read_file" + "<arg_key>a</arg_key><arg_value>b</arg_value>" * 20_000),
        ("parentheses", 'read_file("' + "a=" * 40_000),
        ("labels", "Action: " * 40_000),
        ("fences", "```json\n" * 40_000),
        ("white_space", " \n" * 40_000),
        ("digits", "read_file:" + "1" * 40_000),
        ("whole_calls", f"{CALL}\n" * 20_000),
        ("python_calls", "read_file('a')\n" * 20_000),
        ("bars", "<|" * 40_000),
        ("backticks_after_a_name", "read_file" + "`" * 40_000 + "x"),
        ("dots_in_a_name", "read.file-" * 40_000),
        ("python_on_many_lines", "read_file(\n'a')\n" * 20_000),
        ("python_in_parentheses", "read_file(" * 40_000),
        ("python_of_many_minus_signs", "read_file(" + "-" * 90_000 + "1)"),
        ("prints", "print(" * 40_000),
        ("name_tags", "<name>" * 40_000),
        ("key_openings", '{"name": ' * 40_000),
        ("spaces_in_a_broken_call", '{"name"' + " " * 40_000 + ": "),
        ("spaces_after_function", "function" + " " * 40_000),
        ("spaces_after_the_name", "read_file" + " " * 40_000 + "x"),
    ]
)
class NoTextTakesForEver(unittest.TestCase):
    def row(self, text: str) -> None:
        started = time.process_time()
        written_call(text, TOOLS)
        # Each takes hundredths of a second; what grows with the square of the length takes ten seconds.
        self.assertLess(time.process_time() - started, 3)


if __name__ == "__main__":
    raise SystemExit(harness.main())
