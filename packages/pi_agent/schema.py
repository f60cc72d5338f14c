"""The check of a call's arguments, by JSON Schema (draft 2020-12).

The keywords are those of OpenAI's strict mode and what tool authors use besides: type, enum, const, the limits
of strings, numbers, arrays and objects, properties, required, additionalProperties, patternProperties, items,
prefixItems, anyOf, oneOf, allOf, not, and $ref within the schema. Any other keyword (format, title, …) is an
annotation, as the standard has it. A $ref to another document, $id, $anchor and unevaluated… are not followed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# Characters: the pattern is the author's, the string the model's, and time is the user's.
PATTERN_READS = 2_000

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: _TYPES["number"](value) and value == value // 1,
}
# keyword: the type that it limits, when a value breaks it, and what is then said
_LIMITS: dict[str, tuple[str, Callable[[Any, Any], bool], str]] = {
    "minLength": ("string", lambda value, limit: len(value) < limit, "不能少于 {} 个字符"),
    "maxLength": ("string", lambda value, limit: len(value) > limit, "不能超过 {} 个字符"),
    "minimum": ("number", lambda value, limit: value < limit, "不能小于 {}"),
    "maximum": ("number", lambda value, limit: value > limit, "不能大于 {}"),
    "exclusiveMinimum": ("number", lambda value, limit: value <= limit, "必须大于 {}"),
    "exclusiveMaximum": ("number", lambda value, limit: value >= limit, "必须小于 {}"),
    "multipleOf": ("number", lambda value, step: _exact(value) % _exact(step) != 0, "必须是 {} 的倍数"),
    "minItems": ("array", lambda value, limit: len(value) < limit, "不能少于 {} 项"),
    "maxItems": ("array", lambda value, limit: len(value) > limit, "不能超过 {} 项"),
    "minProperties": ("object", lambda value, limit: len(value) < limit, "不能少于 {} 个字段"),
    "maxProperties": ("object", lambda value, limit: len(value) > limit, "不能超过 {} 个字段"),
}
_BOTH_ENDS = (
    ("minLength", "maxLength"),
    ("minimum", "maximum"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
)
_ONE = ("items", "additionalProperties", "not")
_SEVERAL = ("prefixItems", "allOf", "anyOf", "oneOf")
_NAMED = ("properties", "patternProperties", "$defs", "definitions")


def problems(value: Any, schema: Any, root: Any, where: str = "") -> Iterator[str]:
    """Say, one by one, what keeps value from fitting schema, a part of root. where: its place in the arguments."""
    if not isinstance(schema, Mapping):
        if schema is False:
            yield f"多余的参数 {where}" if where else "参数 不会被接受"
        return
    label = f"参数 {where}{_about(schema)}" if where else "参数"
    if "$ref" in schema:
        yield from problems(value, _target(schema["$ref"], root), root, where)
    types = [schema["type"]] if isinstance(schema.get("type"), str) else schema.get("type", [])
    if types and not any(name not in _TYPES or _TYPES[name](value) for name in types):
        yield f"{label} 必须是 {' 或 '.join(types)}"
        return
    if "enum" in schema and _identity(value) not in map(_identity, schema["enum"]):
        yield f"{label} 必须是其中之一：{_json(schema['enum'])}"
    if "const" in schema and _identity(value) != _identity(schema["const"]):
        yield f"{label} 必须是 {_json(schema['const'])}"
    for keyword, (kind, breaks, said) in _LIMITS.items():
        if keyword in schema and _TYPES[kind](value) and breaks(value, schema[keyword]):
            yield f"{label} {said.format(schema[keyword])}"
    if isinstance(value, str) and "pattern" in schema:
        if len(value) > PATTERN_READS:
            yield f"{label} 不能超过 {PATTERN_READS} 个字符（要按 pattern 检查）"
        elif not _pattern(schema["pattern"]).search(value):
            yield f"{label} 必须匹配 {schema['pattern']}"
    if isinstance(value, list) and schema.get("uniqueItems") and len(set(map(_identity, value))) < len(value):
        yield f"{label} 不能有重复的项"
    if isinstance(value, Mapping):
        for name in schema.get("required", ()):
            if name not in value:
                yield f"缺少参数 {where and where + '.'}{name}{_about(schema.get('properties', {}).get(name))}"
    for part, part_schema, part_where in _parts(value, schema, where):
        yield from problems(part, part_schema, root, part_where)
    yield from _combined(value, schema, root, where, label)


def fitted(value: Any, schema: Any, root: Any) -> Any:
    """value as the handler gets it: where an integer is declared, 3.0 is 3. The same object if nothing changes."""
    if not isinstance(schema, Mapping):
        return value
    if isinstance(value, float) and "integer" in schema.get("type", ()) and "number" not in schema["type"]:
        return int(value)
    for each in _applied(value, schema, root):
        value = fitted(value, each, root)
    changed = {}
    for part, part_schema, where in _parts(value, schema, "", keys=True):
        if (fits := fitted(part, part_schema, root)) is not part:
            changed[where] = fits
    if not changed:
        return value
    if isinstance(value, list):
        return [changed.get(index, item) for index, item in enumerate(value)]
    return {name: changed.get(name, item) for name, item in value.items()}


def flaws(schema: Any) -> Iterator[str]:
    """Say what keeps a tool's parameters from working at all, before a model ever sees them."""
    kinds = schema.get("type", "object") if isinstance(schema, Mapping) else "object"
    if isinstance(kinds, str | list) and "object" not in kinds:
        yield f'type 必须是 "object"，收到 {kinds!r:.60}：调用的参数总是一个对象'
        return
    todo, seen = [(schema, "")], set[int]()
    while todo:
        part, where = todo.pop()
        if isinstance(part, Mapping) and id(part) not in seen:
            seen.add(id(part))
            for keyword, said in _flaws_of(part, schema):
                yield f"{where}{keyword} {said}"
            todo += [(each, f"{where}{place}.") for each, place in _inside(part)]
        elif not isinstance(part, Mapping | bool):
            yield f"{where[:-1] or 'parameters'} 必须是 schema（dict 或 bool），收到 {part!r:.60}"


def _flaws_of(schema: Mapping[str, Any], root: Any) -> Iterator[tuple[str, str]]:
    types = schema.get("type", "object")
    for name in types if isinstance(types, list) and types else [types]:
        if not isinstance(name, str) or name not in _TYPES:
            yield "type", f"不能是 {name!r:.60}，只能是 {'、'.join(_TYPES)}"
    for keyword in ("required", "enum", *_SEVERAL):
        if keyword in schema and not isinstance(schema[keyword], list | tuple):
            yield keyword, f"必须是数组，收到 {schema[keyword]!r:.60}"
        elif keyword == "required" and not all(isinstance(name, str) for name in schema.get(keyword, ())):
            yield keyword, "里只能有字符串"
        elif (
            keyword == "required"
            and schema.get("additionalProperties") is False
            and not schema.get("patternProperties")
        ):
            if unknown := [
                name for name in schema.get(keyword, ()) if name not in (schema.get("properties") or ())
            ]:
                yield (
                    keyword,
                    f"要求 {'、'.join(unknown)}，properties 里没有，additionalProperties 又不许有别的",
                )
        elif keyword in ("allOf", "anyOf", "oneOf") and keyword in schema and not schema[keyword]:
            yield keyword, "不能是空的"
    for keyword in _NAMED:
        if keyword in schema and not isinstance(schema[keyword], Mapping):
            yield keyword, f"必须是对象，收到 {schema[keyword]!r:.60}"
    for keyword, (kind, _, _) in _LIMITS.items():
        if keyword in schema:
            limit = schema[keyword]
            if not _TYPES["number" if kind == "number" else "integer"](limit):
                yield keyword, f"必须是{'数' if kind == 'number' else '整数'}，收到 {limit!r:.60}"
            elif (kind != "number" and limit < 0) or (keyword == "multipleOf" and limit <= 0):
                yield keyword, f"不能是 {limit!r:.60}"
    for least, most in _BOTH_ENDS:
        if (
            all(_TYPES["number"](schema.get(keyword)) for keyword in (least, most))
            and schema[least] > schema[most]
        ):
            yield least, f"{schema[least]} 大于 {most} {schema[most]}"
    if not isinstance(schema.get("uniqueItems", False), bool):
        yield "uniqueItems", f"只能是 true 或 false，收到 {schema['uniqueItems']!r:.60}"
    named = schema.get("patternProperties")
    for pattern in (*([schema["pattern"]] if "pattern" in schema else ()), *(named or ())):
        try:
            _pattern(pattern)
        except (re.error, TypeError, OverflowError, RecursionError) as error:
            yield "pattern", f"{pattern!r:.60} 不是能用的正则表达式（{error}）"
    if "$ref" in schema:
        try:
            if _leads_back(schema, root):
                yield "$ref", f"{schema['$ref']!r:.60} 绕回到自己"
        except (LookupError, TypeError, ValueError):
            yield "$ref", f"{schema['$ref']!r:.60} 在 parameters 里找不到（只支持 # 与 #/…）"


def _inside(schema: Mapping[str, Any]) -> Iterator[tuple[Any, str]]:
    """The schemas in schema, and the keyword under which each stands."""
    for keyword in _ONE:
        if keyword in schema:
            yield schema[keyword], keyword
    for keyword in _SEVERAL:
        if isinstance(schema.get(keyword), list | tuple):
            yield from ((each, f"{keyword}[{index}]") for index, each in enumerate(schema[keyword]))
    for keyword in _NAMED:
        if isinstance(schema.get(keyword), Mapping):
            yield from ((each, f"{keyword}.{name}") for name, each in schema[keyword].items())


def _parts(
    value: Any, schema: Mapping[str, Any], where: str, *, keys: bool = False
) -> Iterator[tuple[Any, Any, Any]]:
    """The items or fields of value, the schema for each, and its place (keys: its index or name alone)."""
    if isinstance(value, list):
        first = schema.get("prefixItems", ())
        for index, item in enumerate(value):
            if index < len(first) or "items" in schema:
                part = first[index] if index < len(first) else schema["items"]
                yield item, part, index if keys else f"{where}[{index}]"
    elif isinstance(value, Mapping):
        known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        for name, item in value.items():
            place = name if keys or not where else f"{where}.{name}"
            fitting = [part for pattern, part in patterns.items() if _pattern(pattern).search(name)]
            fitting += [known[name]] if name in known else []
            for part in fitting or [schema.get("additionalProperties", True)]:
                yield item, part, place


def _combined(value: Any, schema: Mapping[str, Any], root: Any, where: str, label: str) -> Iterator[str]:
    """anyOf, oneOf, allOf and not."""
    for each in schema.get("allOf", ()):
        yield from problems(value, each, root, where)
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            said = [next(problems(value, each, root, where), None) for each in schema[keyword]]
            if None not in said:
                yield "，或者".join(dict.fromkeys(filter(None, said)))
            elif keyword == "oneOf" and said.count(None) > 1:
                yield f"{label} 只能符合 oneOf 中的一种，却符合 {said.count(None)} 种"
    if "not" in schema and not any(problems(value, schema["not"], root, where)):
        yield f"{label} 不能符合 {_json(schema['not'])}"


def _applied(value: Any, schema: Mapping[str, Any], root: Any) -> Iterator[Any]:
    """The further schemas that value fits: $ref, allOf, and what it chose in anyOf and oneOf."""
    if "$ref" in schema:
        yield _target(schema["$ref"], root)
    yield from schema.get("allOf", ())
    for keyword in ("anyOf", "oneOf"):
        for each in schema.get(keyword, ()):
            if not any(problems(value, each, root)):
                yield each
                break


def _target(reference: str, root: Any) -> Any:
    """What a $ref of the form # or #/… points to. Raises LookupError, TypeError or ValueError if nothing."""
    if not isinstance(reference, str) or not re.match("#(/|$)", reference):
        raise ValueError(reference)
    plain = re.sub(rb"%([0-9A-Fa-f]{2})", lambda found: bytes.fromhex(found[1].decode()), reference.encode())
    for token in plain.decode().split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        root = root[token] if isinstance(root, Mapping) else root[int(token)]
    if not isinstance(root, Mapping | bool):
        raise TypeError(reference)
    return root


def _leads_back(schema: Mapping[str, Any], root: Any) -> bool:
    """Whether schema refers to itself without going a step into the value, which would never end."""
    todo: list[Any] = [schema]
    seen: set[int] = set()
    while todo:
        part = todo.pop()
        if part is schema and seen:
            return True
        if isinstance(part, Mapping) and id(part) not in seen:
            seen.add(id(part))
            todo += [_target(part["$ref"], root)] if "$ref" in part else []
            todo += [each for each, place in _inside(part) if re.match("allOf|anyOf|oneOf|not", place)]
    return False


def _pattern(pattern: str) -> re.Pattern[str]:
    r"""The pattern as ECMAScript, whose regular expressions JSON Schema means: $ is the very end, \d is 0-9."""
    return re.compile(re.sub(r"\\(.)|\[(?:\\.|[^]\\])*\]|\$|\(\?<(?=\w)", _as_python, pattern, flags=re.S))


def _as_python(found: re.Match[str]) -> str:
    if found[0].startswith("["):
        return found[0].replace(r"\d", "0-9")
    return {"$": r"\Z", r"\d": "[0-9]", "(?<": "(?P<"}.get(found[0], found[0])


def _identity(value: Any) -> Any:
    """Equal, and hashable, for what JSON counts as equal: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, Mapping):
        return "object", frozenset((name, _identity(item)) for name, item in value.items())
    if isinstance(value, list | tuple):
        return "array", tuple(map(_identity, value))
    return isinstance(value, bool), value


def _exact(number: Any) -> Any:
    """The decimal number that was written: 0.0075 is a multiple of 0.0001, though their floats are not."""
    from fractions import Fraction  # here: a rare keyword

    return Fraction(number) if isinstance(number, int) else Fraction(str(number))


def _about(schema: Any) -> str:
    """What the tool's author wrote about a parameter says best how to fill it in."""
    return f"（{schema['description']}）" if isinstance(schema, Mapping) and schema.get("description") else ""


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)
