"""A tool: what the model is told, which arguments reach the handler, and what becomes of a handler's errors."""

from __future__ import annotations

import dataclasses
import unittest
from types import MappingProxyType
from typing import Any

from checks.support import harness
from checks.support.harness import JsonObject, table
from packages.pi_agent import AgentTool, ToolResult
from packages.pi_ai import MiniPiError, ModelRequestError, ToolError

PATH: JsonObject = {
    "type": "object",
    "properties": {"path": {"type": "string", "minLength": 1, "description": "根目录用 ."}},
    "required": ["path"],
    "additionalProperties": False,
}


def tool(handler: Any = lambda arguments: "ran", parameters: JsonObject = PATH) -> AgentTool:
    return AgentTool("read_file", "读取文件", parameters, handler)


def of(kind: Any, **more: Any) -> JsonObject:
    """The parameters of a tool that takes one optional `x` of this kind."""
    return {"type": "object", "properties": {"x": {"type": kind, **more}}}


@table(
    [
        ("path", PATH, {"path": "."}),
        ("no_properties", {"type": "object", "properties": {}}, {}),
        ("no_schema_at_all", {}, {"anything": [1, {"a": None}]}),
        ("optional_left_out", of("string"), {}),
        ("further_arguments_unless_forbidden", of("string"), {"y": 1}),
        ("string", of("string"), {"x": ""}),
        ("string_of_the_least_length", of("string", minLength=2), {"x": "ab"}),
        ("string_counted_in_characters", of("string", minLength=2), {"x": "😀😀"}),
        ("integer", of("integer"), {"x": -3}),
        ("number_that_is_whole", of("number"), {"x": 3}),
        ("number", of("number"), {"x": 3.5}),
        ("boolean", of("boolean"), {"x": False}),
        ("null", of("null"), {"x": None}),
        ("one_of_two_types", of(["string", "null"]), {"x": None}),
        ("type_unknown_to_us", of("uri"), {"x": 1}),
        ("no_type", {"properties": {"x": {}}}, {"x": [1]}),
        ("array", of("array"), {"x": [1, "a"]}),
        ("array_of_strings", of("array", items={"type": "string"}), {"x": ["a", "b"]}),
        ("empty_array", of("array", items={"type": "string"}), {"x": []}),
        ("enum", of("string", enum=["a", "b"]), {"x": "b"}),
        ("enum_with_null", of(["string", "null"], enum=["a", None]), {"x": None}),
        ("items_of_what_is_no_array", {"properties": {"x": {"items": {"type": "integer"}}}}, {"x": "ab"}),
        ("object", of("object", required=["y"]), {"x": {"y": 1}}),
        ("mapping_that_is_no_dict", PATH, MappingProxyType({"path": "."})),
    ]
)
class ArgumentsThatReachTheHandler(unittest.TestCase):
    def row(self, parameters: JsonObject, arguments: Any) -> None:
        received: list[Any] = []

        def handler(given: Any) -> str:
            received.append(given)
            return "ran"

        self.assertEqual(tool(handler, parameters).execute(arguments), ToolResult("ran"))
        self.assertIs(received[0], arguments)


@table(
    [
        ("missing", PATH, {}, ["缺少参数 path（根目录用 .）"]),
        ("missing_without_a_description", {"required": ["x"]}, {}, ["缺少参数 x"]),
        ("superfluous", PATH, {"path": ".", "mode": "r"}, ["多余的参数 mode"]),
        ("empty_path", PATH, {"path": ""}, ["参数 path（根目录用 .） 不能少于 1 个字符"]),
        ("wrong_name", PATH, {"file": "a"}, ["缺少参数 path（根目录用 .）", "多余的参数 file"]),
        ("number_for_a_string", PATH, {"path": 1}, ["参数 path（根目录用 .） 必须是 string"]),
        ("null_for_a_string", of("string"), {"x": None}, ["参数 x 必须是 string"]),
        ("array_for_a_string", of("string"), {"x": ["a"]}, ["参数 x 必须是 string"]),
        ("string_for_an_integer", of("integer"), {"x": "1"}, ["参数 x 必须是 integer"]),
        ("fraction_for_an_integer", of("integer"), {"x": 1.5}, ["参数 x 必须是 integer"]),
        ("true_for_an_integer", of("integer"), {"x": True}, ["参数 x 必须是 integer"]),
        ("true_for_a_number", of("number"), {"x": True}, ["参数 x 必须是 number"]),
        ("string_for_a_number", of("number"), {"x": "1"}, ["参数 x 必须是 number"]),
        ("one_for_a_boolean", of("boolean"), {"x": 1}, ["参数 x 必须是 boolean"]),
        ("string_for_a_boolean", of("boolean"), {"x": "true"}, ["参数 x 必须是 boolean"]),
        ("string_for_null", of("null"), {"x": ""}, ["参数 x 必须是 null"]),
        ("object_for_an_array", of("array"), {"x": {}}, ["参数 x 必须是 array"]),
        ("array_for_an_object", of("object"), {"x": []}, ["参数 x 必须是 object"]),
        ("none_of_two_types", of(["string", "null"]), {"x": 1}, ["参数 x 必须是 string 或 null"]),
        (
            "not_in_the_enum",
            of("string", enum=["a", "乙"]),
            {"x": "c"},
            ['参数 x 必须是其中之一：["a", "乙"]'],
        ),
        (
            "true_for_an_enum_of_one",
            {"properties": {"x": {"enum": [1]}}},
            {"x": True},
            ["必须是其中之一：[1]"],
        ),
        ("wrong_type_for_an_enum", of("string", enum=["a"]), {"x": 1}, ["参数 x 必须是 string"]),
        ("mapping_that_is_no_dict", {"required": ["x"]}, MappingProxyType({}), ["缺少参数 x"]),
        ("too_short", of("string", minLength=3), {"x": "ab"}, ["参数 x 不能少于 3 个字符"]),
        (
            "each_item_of_an_array",
            of("array", items={"type": "string"}),
            {"x": [1, "a", None]},
            ["参数 x[0] 必须是 string", "参数 x[2] 必须是 string"],
        ),
        ("inside_an_object", of("object", required=["y"]), {"x": {}}, ["缺少参数 x.y"]),
        (
            "deep_inside",
            of("array", items=of("object", additionalProperties=False)),
            {"x": [{"x": {"z": 1}}]},
            ["多余的参数 x[0].x.z"],
        ),
        ("a_list_as_the_arguments", PATH, ["."], ["参数 必须是 object"]),
        ("a_string_as_the_arguments", PATH, '{"path": "."}', ["参数 必须是 object"]),
        ("none_as_the_arguments", {}, None, ["参数 必须是 object"]),
    ]
)
class ArgumentsThatGoBackToTheModel(unittest.TestCase):
    def row(self, parameters: JsonObject, arguments: Any, problems: list[str]) -> None:
        result = tool(lambda _: self.fail("the handler ran"), parameters).execute(arguments)
        self.assertTrue(result.is_error)
        said = result.content.removeprefix("参数不符合要求：").partition("。收到的参数：")[0].split("；")
        self.assertEqual(len(said), len(problems), said)
        for problem, expected in zip(said, problems, strict=True):
            self.assertTrue(problem.endswith(expected), problem)
        self.assertTrue(result.content.endswith("请改正后重新调用。"))


class WhatTheModelReads(unittest.TestCase):
    def test_the_arguments_received_are_shown_as_json(self) -> None:
        self.assertIn(
            '收到的参数：{"文件": "日报", "n": [1, null]}',
            tool().execute({"文件": "日报", "n": [1, None]}).content,
        )

    def test_of_very_long_arguments_only_the_beginning_is_shown(self) -> None:
        content = tool().execute({"path": 1, "text": "字" * 4_000_000}).content
        self.assertIn("字字字", content)
        self.assertLess(len(content), 700)

    def test_arguments_nested_too_deep_are_refused_and_not_a_crash(self) -> None:
        deep: list[Any] = []
        for _ in range(100_000):
            deep = [deep]
        for parameters in (PATH, of("array", items={"type": "string"})):
            self.assertTrue(tool(parameters=parameters).execute({"x": deep}).is_error)
        self.assertFalse(tool(parameters=of("array")).execute({"x": deep}).is_error)

    def test_an_error_without_a_text_is_told_by_its_name(self) -> None:
        def handler(arguments: Any) -> str:
            raise RuntimeError

        self.assertEqual(tool(handler).execute({"path": "."}), ToolResult("RuntimeError", is_error=True))

    def test_a_result_is_no_error_unless_it_says_so(self) -> None:
        self.assertFalse(ToolResult("x").is_error)
        self.assertEqual(tool(lambda _: "").execute({"path": "."}), ToolResult(""))


class WhatTheModelIsTold(unittest.TestCase):
    def test_the_declaration_is_the_article_s(self) -> None:
        declared = tool().schema()
        expected = {
            "type": "function",
            "name": "read_file",
            "description": "读取文件",
            "parameters": PATH,
            "strict": True,
        }
        self.assertEqual(declared, expected)
        self.assertEqual(list(declared), list(expected))

    def test_tools_and_results_cannot_be_changed(self) -> None:
        for value in (tool(), ToolResult("x")):
            with self.assertRaises(dataclasses.FrozenInstanceError):
                value.name = "other"  # type: ignore[union-attr, misc]


class SchemasThatAreTrueOrFalse(unittest.TestCase):
    """A boolean is a JSON Schema as well."""

    def test_they_are_left_to_the_handler(self) -> None:
        items = {"type": "array", "items": True}
        schema = {"type": "object", "properties": {"a": True, "b": items}, "required": ["a"]}
        some = AgentTool("some", "…", schema, lambda arguments: str(arguments["a"]))
        self.assertEqual(some.execute({"a": 5, "b": [1, "x"]}), ToolResult("5"))
        self.assertIn("缺少参数 a", some.execute({"b": 5}).content)


@table(
    [
        ("tool_error", ToolError("没有这个文件")),
        ("mini_pi_error", MiniPiError("不行")),
        ("error_of_a_model_asked_by_the_tool", ModelRequestError("连不上", 503)),
        ("value_error", ValueError("bad value")),
        ("unicode_error", UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")),
        ("os_error", PermissionError(13, "Permission denied")),
        ("timeout", TimeoutError("too slow")),
        ("runtime_error", RuntimeError("no loop")),
        ("recursion", RecursionError("too deep")),
    ]
)
class FailuresThatAToolIsMeantToHave(unittest.TestCase):
    def row(self, error: Exception) -> None:
        def handler(arguments: Any) -> str:
            raise error

        self.assertEqual(tool(handler).execute({"path": "."}), ToolResult(str(error), is_error=True))


@table(
    [
        ("type_error", TypeError("bug")),
        ("key_error", KeyError("bug")),
        ("attribute_error", AttributeError("bug")),
        ("index_error", IndexError("bug")),
        ("assertion", AssertionError("bug")),
        ("zero_division", ZeroDivisionError("bug")),
        ("ctrl_c", KeyboardInterrupt()),
        ("exit", SystemExit(1)),
    ]
)
class BugsThatAreNotHiddenFromTheProgrammer(unittest.TestCase):
    def row(self, error: BaseException) -> None:
        def handler(arguments: Any) -> str:
            raise error

        with self.assertRaises(type(error)) as caught:
            tool(handler).execute({"path": "."})
        self.assertIs(caught.exception, error)


@table([("none", None), ("bytes", b"text"), ("dict", {}), ("number", 1), ("result", ToolResult("x"))])
class AHandlerThatReturnsNoText(unittest.TestCase):
    def row(self, value: Any) -> None:
        with self.assertRaisesRegex(
            TypeError, f"read_file 的 handler 必须返回 str，却返回了 {type(value).__name__}"
        ):
            tool(lambda _: value).execute({"path": "."})


if __name__ == "__main__":
    raise SystemExit(harness.main())
