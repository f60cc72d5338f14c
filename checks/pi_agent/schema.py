"""JSON Schema: the official test suite, the schemas that no tool can work with, and what a whole float becomes."""

from __future__ import annotations

import json
import unittest
from pathlib import Path
from typing import Any

from checks.support import harness
from checks.support.harness import JsonObject, table
from packages.pi_agent import AgentLoopConfig, AgentTool, ToolResult, run_agent
from packages.pi_agent.schema import PATTERN_READS, problems
from packages.pi_ai import MiniPiError

# JSON-Schema-Test-Suite, draft 2020-12, as the source package of jsonschema 4.26.0 has it (MIT, see LICENSE there).
SUITE = Path(__file__).parent / "json_schema_suite"
# Groups about these keywords, and about schemas elsewhere, are left out: schema.py does not promise them.
LEFT_OUT = ('"$id"', '"$anchor"', '"$dynamic', '"$ref": "http', '"unevaluated')
CASES_KEPT, CASES_LEFT_OUT = 634, 49


def cases() -> list[tuple[str, Any, Any, bool]]:
    found = []
    for file in sorted(SUITE.glob("*.json")):
        for group in json.loads(file.read_text("utf-8")):
            if not any(words in json.dumps(group["schema"]) for words in LEFT_OUT):
                for case in group["tests"]:
                    name = f"{file.stem}: {group['description']}: {case['description']}"
                    found.append((name, group["schema"], case["data"], case["valid"]))
    return found


@table(cases())
class TheOfficialSuite(unittest.TestCase):
    def row(self, schema: Any, data: Any, valid: bool) -> None:
        self.assertEqual(not any(problems(data, schema, schema)), valid)


class TheSuiteItself(unittest.TestCase):
    def test_it_is_all_there_and_little_of_it_is_left_out(self) -> None:
        groups = [group for file in SUITE.glob("*.json") for group in json.loads(file.read_text("utf-8"))]
        whole = sum(len(group["tests"]) for group in groups)
        self.assertEqual((len(cases()), whole - len(cases())), (CASES_KEPT, CASES_LEFT_OUT))


def field(**schema: Any) -> JsonObject:
    return {"type": "object", "properties": {"x": schema}}


DAY = field(type="string", pattern=r"^\d{4}-(?<month>\d\d)$")
PIECES = field(anyOf=[{"type": "string", "minLength": 2}, {"type": "null"}])


@table(
    [
        ("const", field(const="a"), "b", '参数 x 必须是 "a"'),
        ("too_long", field(maxLength=2), "😀😀😀", "参数 x 不能超过 2 个字符"),
        ("too_small", field(minimum=1), 0, "参数 x 不能小于 1"),
        ("too_large", field(maximum=1.5), 2, "参数 x 不能大于 1.5"),
        ("at_the_lower_end", field(exclusiveMinimum=0), 0, "参数 x 必须大于 0"),
        ("at_the_upper_end", field(exclusiveMaximum=9), 9, "参数 x 必须小于 9"),
        ("no_multiple", field(multipleOf=0.01), 0.075, "参数 x 必须是 0.01 的倍数"),
        ("odd", field(multipleOf=2, description="偶数"), 3, "参数 x（偶数） 必须是 2 的倍数"),
        ("too_few_items", field(minItems=1), [], "参数 x 不能少于 1 项"),
        ("too_many_items", field(maxItems=1), [1, 2], "参数 x 不能超过 1 项"),
        ("twice_the_same", field(uniqueItems=True), [{"a": 1}, {"a": 1.0}], "参数 x 不能有重复的项"),
        ("too_few_fields", field(minProperties=1), {}, "参数 x 不能少于 1 个字段"),
        ("too_many_fields", field(maxProperties=0), {"a": 1}, "参数 x 不能超过 0 个字段"),
        ("pattern", DAY, "2026-9", r"参数 x 必须匹配 ^\d{4}-(?<month>\d\d)$"),
        ("a_line_end_is_a_character", DAY, "2026-09\n", r"参数 x 必须匹配 ^\d{4}-(?<month>\d\d)$"),
        ("digits_are_0_to_9", field(pattern=r"^[\d]$"), "٣", r"参数 x 必须匹配 ^[\d]$"),
        ("none_of_any", PIECES, 5, "参数 x 必须是 string，或者参数 x 必须是 null"),
        ("close_to_one_of_any", PIECES, "a", "参数 x 不能少于 2 个字符，或者参数 x 必须是 null"),
        (
            "several_of_one",
            field(oneOf=[{"minimum": 1}, {"maximum": 5}]),
            3,
            "参数 x 只能符合 oneOf 中的一种，却符合 2 种",
        ),
        ("none_of_one", field(oneOf=[{"type": "string"}]), 3, "参数 x 必须是 string"),
        ("all", field(allOf=[{"minimum": 5}]), 3, "参数 x 不能小于 5"),
        ("not", field(**{"not": {"enum": ["b"]}}), "b", '参数 x 不能符合 {"enum": ["b"]}'),
        ("never", field(items=False), [1], "多余的参数 x[0]"),
        (
            "further_fields",
            field(additionalProperties={"type": "string"}),
            {"y": 1},
            "参数 x.y 必须是 string",
        ),
        (
            "by_pattern",
            field(patternProperties={"^n_": {"type": "integer"}}),
            {"n_1": "1"},
            "参数 x.n_1 必须是 integer",
        ),
        ("first_items", field(prefixItems=[{"type": "string"}]), [1], "参数 x[0] 必须是 string"),
        (
            "reference",
            {**field(**{"$ref": "#/$defs/n"}), "$defs": {"n": {"type": "integer"}}},
            1.5,
            "参数 x 必须是 integer",
        ),
        (
            "longer_than_a_pattern_is_tried_on",
            field(pattern="(a+)+b"),
            "a" * (PATTERN_READS + 1),
            "参数 x 不能超过 2000 个字符（要按 pattern 检查）",
        ),
    ]
)
class WhatTheModelIsTold(unittest.TestCase):
    """One clear line a problem, with the name of the argument and what is right."""

    def row(self, schema: JsonObject, value: Any, said: str) -> None:
        some = AgentTool("some", "…", schema, lambda _: self.fail("the handler ran"))
        result = some.execute({"x": value})
        self.assertTrue(result.is_error)
        self.assertEqual(result.content.partition("。收到的参数")[0], f"参数不符合要求：{said}")

    def test_of_very_many_problems_the_first_ten_are_said(self) -> None:
        some = AgentTool("some", "…", field(items={"type": "string"}), lambda _: "")
        said = some.execute({"x": [1] * 5000}).content
        self.assertIn("x[9] 必须是 string；……。收到", said)
        self.assertNotIn("x[10]", said)

    def test_many_items_are_compared_without_comparing_each_with_each(self) -> None:
        schema = field(uniqueItems=True)
        self.assertFalse(any(problems({"x": [[n] for n in range(100_000)]}, schema, schema)))


INTEGER = {"type": "integer"}


@table(
    [
        ("integer", INTEGER, 3.0, 3),
        ("integer_or_null", {"type": ["integer", "null"]}, 3.0, 3),
        ("number", {"type": "number"}, 3.0, 3.0),
        ("either", {"type": ["integer", "number"]}, 3.0, 3.0),
        ("no_type", {}, 3.0, 3.0),
        ("in_an_array", {"items": INTEGER}, [1, 2.0], [1, 2]),
        ("the_first_of_an_array", {"prefixItems": [INTEGER]}, [2.0, 2.0], [2, 2.0]),
        ("in_an_object", {"properties": {"n": INTEGER}}, {"n": 4.0, "m": 4.0}, {"n": 4, "m": 4.0}),
        ("further_fields", {"additionalProperties": INTEGER}, {"n": 4.0}, {"n": 4}),
        ("by_reference", {"$ref": "#/$defs/n"}, 3.0, 3),
        ("in_any", {"anyOf": [{"type": "string"}, INTEGER]}, 3.0, 3),
        ("in_one", {"oneOf": [INTEGER, {"type": "null"}]}, 3.0, 3),
        ("in_all", {"allOf": [INTEGER]}, 3.0, 3),
        ("large", INTEGER, 1e20, 10**20),
        ("text", {"type": "string"}, "3.0", "3.0"),
    ]
)
class WholeNumbers(unittest.TestCase):
    """3.0 is an integer to JSON Schema, and to the handler as well."""

    def row(self, kind: Any, sent: Any, received: Any) -> None:
        given: list[Any] = []

        def handler(arguments: Any) -> str:
            given.append(arguments["x"])
            return "ran"

        some = AgentTool("some", "…", {**field(**kind), "$defs": {"n": INTEGER}}, handler)
        arguments = {"x": sent}
        self.assertEqual(some.execute(arguments), ToolResult("ran"))
        self.assertEqual(repr(given), repr([received]))
        self.assertEqual(repr(arguments["x"]), repr(sent))


LOOP = {"$ref": "#/$defs/a"}


@table(
    [
        ("required_null", {"type": "object", "required": None}, "required 必须是数组"),
        ("required_true", field(required=True), "properties.x.required 必须是数组"),
        ("required_of_numbers", {"required": [1]}, "required 里只能有字符串"),
        ("required_but_forbidden", {"required": ["y"], "additionalProperties": False}, "required 要求 y"),
        ("properties_null", {"properties": None}, "properties 必须是对象"),
        ("a_property_that_is_a_word", {"properties": {"x": "string"}}, "properties.x 必须是 schema"),
        ("unknown_type", field(type="uri"), "properties.x.type 不能是 'uri'"),
        ("type_null", field(type=None), "properties.x.type 不能是 None"),
        ("no_types", field(type=[]), "properties.x.type 不能是 []"),
        ("one_unknown_type_of_two", field(type=["str", "null"]), "type 不能是 'str'"),
        ("arguments_that_are_no_object", {"type": "string"}, 'type 必须是 "object"'),
        ("type_of_the_arguments_null", {"type": None}, "type 不能是 None"),
        ("enum_that_is_no_array", field(enum="ab"), "properties.x.enum 必须是数组"),
        ("any_of_nothing", field(anyOf=[]), "properties.x.anyOf 不能是空的"),
        ("any_of_an_object", field(anyOf={}), "properties.x.anyOf 必须是数组"),
        ("items_of_an_older_draft", field(items=[INTEGER]), "properties.x.items 必须是 schema"),
        ("limit_of_an_older_draft", field(exclusiveMinimum=True), "properties.x.exclusiveMinimum 必须是数"),
        ("length_that_is_a_word", field(minLength="1"), "properties.x.minLength 必须是整数"),
        ("length_below_zero", field(maxLength=-1), "properties.x.maxLength 不能是 -1"),
        ("multiple_of_zero", field(multipleOf=0), "properties.x.multipleOf 不能是 0"),
        ("ends_the_wrong_way_round", field(minimum=5, maximum=1), "properties.x.minimum 5 大于 maximum 1"),
        ("unique_items_that_is_a_word", field(uniqueItems="yes"), "properties.x.uniqueItems 只能是"),
        (
            "pattern_that_does_not_compile",
            field(pattern="("),
            "properties.x.pattern '(' 不是能用的正则表达式",
        ),
        ("pattern_that_is_no_text", field(pattern=5), "properties.x.pattern 5 不是能用的正则表达式"),
        ("pattern_of_a_name", field(patternProperties={"[": {}}), "properties.x.pattern '['"),
        (
            "reference_to_nowhere",
            field(**{"$ref": "#/$defs/n"}),
            "properties.x.$ref '#/$defs/n' 在 parameters 里找不到",
        ),
        (
            "reference_to_elsewhere",
            field(**{"$ref": "https://example.com/n"}),
            "$ref 'https://example.com/n' 在",
        ),
        ("reference_to_a_number", {**field(**{"$ref": "#/properties/x/minimum"}, minimum=1)}, "找不到"),
        ("reference_that_is_no_text", field(**{"$ref": 1}), "properties.x.$ref 1 在"),
        ("reference_to_itself", {"$defs": {"a": LOOP}, **field(**LOOP)}, "绕回到自己"),
        ("reference_to_itself_by_any", {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}}, "绕回到自己"),
        ("deep_inside", field(items={"anyOf": [{"type": "str"}]}), "properties.x.items.anyOf[0].type 不能是"),
    ]
)
class SchemasThatCannotWork(unittest.TestCase):
    """Refused with the tool's name before any request, and not at the model's first call."""

    def row(self, schema: JsonObject, said: str) -> None:
        class Nobody:
            def create(self, payload: JsonObject) -> JsonObject:
                raise AssertionError("the model was asked")

        some = AgentTool("order_count", "…", schema, lambda _: "")
        with self.assertRaises(MiniPiError) as caught:
            run_agent(Nobody(), [some], AgentLoopConfig("m", "i"), "?")
        self.assertIn("工具 order_count 的 parameters 不能用：", str(caught.exception))
        self.assertIn(said, str(caught.exception))
        self.assertTrue(str(caught.exception).endswith("请改正这份 JSON Schema。"))


@table(
    [
        ("nothing", {}),
        ("a_tree", {"properties": {"x": {"$ref": "#"}}}),
        (
            "a_list_of_trees",
            {"$defs": {"t": {"items": {"$ref": "#/$defs/t"}}}, **field(**{"$ref": "#/$defs/t"})},
        ),
        ("true_and_false", {"properties": {"x": True, "y": False}, "additionalProperties": True}),
        (
            "keywords_that_only_describe",
            field(type="string", format="date", title="T", examples=["a"], default=None),
        ),
        (
            "a_property_named_like_a_keyword",
            {"properties": {"$ref": {"type": "string"}, "required": {"type": "null"}}},
        ),
        (
            "required_by_pattern",
            {"required": ["n_1"], "patternProperties": {"^n_": {}}, "additionalProperties": False},
        ),
    ]
)
class SchemasThatAreAccepted(unittest.TestCase):
    def row(self, schema: JsonObject) -> None:
        from packages.pi_agent.config import check_settings

        some = AgentTool("some", "…", schema, lambda _: "")
        self.assertEqual(check_settings([some], AgentLoopConfig("m", "i")), {"some": some})
        self.assertEqual(some.execute({}) == ToolResult(""), "required" not in schema)


if __name__ == "__main__":
    raise SystemExit(harness.main())
