"""A record shown as text and as a page: what is told, in which order, and that nothing in it can act."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unicodedata
import unittest
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

from checks.support import harness
from checks.support.harness import JsonObject, call, message, response, table
from checks.support.scripted_records import (
    ANSWER,
    PATH,
    answer_turn,
    chat_record,
    list_turn,
    step_record,
    usage,
)
from examples import show
from packages.qianchat.record import VERSION

EVIL = (
    "</script><img src=x onerror=alert(1)></pre></details><style>*{}</style>\u202e\x1b[31m\x00\ud800&amp;\"'"
)
SHOWN = EVIL.replace("\u202e", "\\u202e").replace("\x1b", "\\u001b").replace("\x00", "\\u0000")
SHOWN = SHOWN.replace("\ud800", "\\ud800")


def record_of(*turns: JsonObject, **fields: object) -> JsonObject:
    """A record with these turns, as plain as can be."""
    outcome = {"status": "answered", "text": "好"}
    head = {"version": VERSION, "command": "python3 -m x", "recorded_at": "2026-09-06T03:00:00+00:00"}
    settings = {"model": "qwen", "tools": [], "tool_choice": "auto"}
    rest = {"settings": settings, "turns": list(turns), "added_after_last_request": [], "outcome": outcome}
    return {**head, **rest, "usage": [None] * len(turns), **fields}


def turn_of(new_items: list[JsonObject], *output: object, **fields: object) -> JsonObject:
    """A turn whose request newly carried new_items and whose response held output."""
    answered = {"response": response(*output)} if "error" not in fields else {}
    return {"new_items": new_items, "changed_settings": {}, "seconds": 1.5, **answered, **fields}


def user(text: str) -> JsonObject:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def result(text: object, call_id: str = "call_1") -> JsonObject:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def hostile() -> JsonObject:
    """A chat in which everyone writes EVIL, and of which every kind of part is there."""
    reasoning = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "想" + EVIL}]}
    unknown = {"type": "web_search_call", "deep": {"a": [1, {"b": EVIL}]}}
    record = chat_record(
        response(
            reasoning, message("先看看" + EVIL), call("list_files", {"path": EVIL}, "call_a"), usage=usage(1)
        ),
        response(unknown, call("nobody" + EVIL, {EVIL: EVIL}, "call_b"), usage=usage(2)),
        answer_turn("答" + EVIL + "长" * 500),
        answer_turn("再答" + EVIL * 40, 4),
        questions=("问" + EVIL * 9, EVIL),
    )
    record = dict(json.loads(json.dumps(record).replace('"call_a"', json.dumps(EVIL))))
    record["turns"][2]["new_items"][-1]["output"] = EVIL + "\n" * 40 + EVIL
    failed = {"new_items": [user(EVIL)], "changed_settings": {EVIL: EVIL}, "history_replaced": True}
    record["turns"].append({**failed, "error": EVIL, "seconds": 1, "first_text_seconds": 0.5})
    record["added_after_last_request"] = [message(EVIL)]
    return record | {"outcome": {"status": EVIL, "error": EVIL}, "command": EVIL, "recorded_at": EVIL}


def names(folder: str | Path) -> set[str]:
    return {path.name for path in Path(folder).iterdir()}


def run(record: JsonObject | bytes, *flags: str) -> tuple[int, str, str, str | None]:
    """Exit status, stdout, stderr, and the page where --html was given as flag."""
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder, "record.json"), Path(folder, "page.html")
        data = record if isinstance(record, bytes) else json.dumps(record).encode()
        path.write_bytes(data)
        stdout, stderr = io.StringIO(), io.StringIO()
        arguments = [str(path), *(flag if flag != "--html" else f"--html={out}" for flag in flags)]
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            status = show.main(arguments)
        if path.read_bytes() != data or names(folder) - {"record.json", "page.html"}:
            raise AssertionError("something else was written")
        page = out.read_text(encoding="utf-8") if out.exists() else None
        return status, stdout.getvalue(), stderr.getvalue(), page


def text_of(record: JsonObject) -> str:
    status, stdout, stderr, page = run(record)
    if (status, stderr, page) != (0, "", None):
        raise AssertionError((status, stderr, page))
    return stdout


def page_of(record: JsonObject) -> str:
    status, stdout, stderr, page = run(record, "--html")
    if (status, stdout, stderr) != (0, "", "") or page is None:
        raise AssertionError((status, stdout, stderr))
    return page


class Parsed(HTMLParser):
    """A page as a browser understands it: its tags with attributes, its text, and each element's text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.pres: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "pre":
            self.pres.append("")
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open.pop() != tag:
            raise AssertionError(f"</{tag}> closes another element")

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data
            if "pre" in self.open:
                self.pres[-1] += data


FIGURE_2 = (
    "用户 ─▶ Loop  提问",
    "Loop ─▶ Qwen  带上用户问题（历史共 1 项）",
    "Qwen ╌▶ Loop  调用 A：list_files",
    '{"path": "reports"}',
    "call_id=call_1a",
    "Loop ─▶ 工具  执行调用 A",
    "工具 ╌▶ Loop  结果 A（call_id=call_1a）",
    PATH,
    "history       追加调用 A 与结果 A",
    "400 token（缓存 0%）",
    "Loop ─▶ Qwen  带上结果 A（历史共 3 项）",
    "Qwen ╌▶ Loop  调用 B：read_file",
    "Loop ─▶ 工具  执行调用 B",
    "工具 ╌▶ Loop  结果 B（call_id=call_2b）",
    '"orders": 128',
    "history       追加调用 B 与结果 B",
    "800 token（缓存 48%）",
    "Loop ─▶ Qwen  带上结果 B（历史共 5 项）",
    "Qwen ╌▶ Loop  文本，不再调用工具",
    "Loop ─▶ 用户  已回答",
    ANSWER,
    "输出 20 token",
)
TWO_CALLS = turn_of([user("问")], call("f", {}, "c1"), call("g", {}, "c2"))
TWO_OUTPUTS = [*TWO_CALLS["response"]["output"]]
SAME_ID = turn_of([user("问")], call("f", {"n": 1}, "c"))
OBJECT_CALL = call("f", {}, "c") | {"arguments": {"n": 1}}


@table(
    [
        ("step_4_reads_as_figure_2", step_record("step04_agent_loop-daily"), FIGURE_2, ()),
        (
            "outputs_in_another_order_answer_their_own_calls",
            record_of(TWO_CALLS, turn_of([*TWO_OUTPUTS, result("乙", "c2"), result("甲", "c1")], message("好"))),
            ("执行调用 A：f", "结果 A（call_id=c1）", "甲", "执行调用 B：g", "结果 B（call_id=c2）", "乙"),
            (),
        ),
        (
            "an_id_used_again_is_paired_in_order",
            record_of(
                SAME_ID,
                turn_of([*SAME_ID["response"]["output"], result("一", "c")], call("f", {"n": 2}, "c")),
                turn_of([call("f", {"n": 2}, "c"), result("二", "c")], message("好")),
            ),
            ("调用 A：f", "结果 A", "一", "调用 B：f", "结果 B", "二"),
            ("调用 C",),
        ),
        (
            "a_call_with_object_arguments_is_one_call",
            record_of(
                turn_of([user("问")], OBJECT_CALL),
                turn_of([call("f", {"n": 1}, "c"), result("一", "c")], message("好")),
            ),
            ("调用 A：f", '{"n": 1}', "结果 A（call_id=c）", "一", "带上结果 A（历史共 3 项）"),
            ("调用 B", "另外"),
        ),
        (
            "an_unfinished_call_says_so",
            step_record("step03_one_round-daily"),
            ("2 次工具调用，其中 1 次没有结果", "调用 B（没有执行，或没有留下结果）", "任务尚未完成"),
            ("执行调用 B", "追加调用 B"),
        ),
        ("step_1_has_no_tools", step_record("step01_model_call-daily"), ("不提供工具", "已回答", "请提供"), ("调用 A",)),
        ("step_2_stops_before_the_call", step_record("step02_tool_request-daily"), ("调用 A：list_files",), ("执行调用",)),
        (
            "step_5_tells_when_the_tools_change",
            step_record("step05_required_tool-daily"),
            ("list_files（tool_choice=required）", "tools 改为 list_files、read_file；tool_choice 改为 auto"),
            (),
        ),
        (
            "a_failed_run_ends_with_its_error",
            step_record("max-turns-2"),
            ("结果    失败", "结果 B", "Loop ─▶ 用户  失败", "达到最大轮数 2"),
            ("已回答",),
        ),
        (
            "a_chat_shows_each_question_and_answer",
            chat_record(),
            ("提问", "reports", "已回答", ANSWER, "提问", "平均每单多少元？", "带上用户问题（历史共 7 项）", "已回答", "75"),
            (),
        ),
        (
            "a_chat_tells_of_a_question_that_failed_and_of_the_next",
            chat_record(list_turn(), response(message("")), answer_turn("好", 3), questions=("甲？", "乙？")),
            ("结果    失败", "甲？", "结果 A", "第 2 轮", "失败", "没有返回文本", "乙？", "已回答", "好"),
            (),
        ),
        (
            "a_chat_of_unknown_runs_goes_by_its_texts",
            record_of(
                turn_of([user("甲？")], message("子")),
                turn_of([message("子"), user("乙？")], error="断开"),
                turn_of([user("丙？")], message("丑")),
                outcome={"status": "answered", "text": "丑"},
            ),
            ("甲？", "已回答", "子", "乙？", "断开", "失败", "丙？", "已回答", "丑"),
            (),
        ),
        (
            "a_turn_without_a_response_shows_its_error",
            record_of(turn_of([user("问")], error="连接断开"), outcome={"status": "failed", "error": "没有答案"}),
            ("Qwen ─✕ Loop  没有响应", "连接断开", "失败", "没有答案", "没有用量"),
            (),
        ),
        (
            "an_interrupted_run_says_so",
            record_of(turn_of([user("问")], message("写到一")), outcome={"status": "interrupted"}),
            ("结果    被中断", "文本", "写到一", "Loop ─▶ 用户  被中断"),
            ("已回答",),
        ),
        (
            "a_replaced_history_is_told_and_its_calls_keep_their_letters",
            record_of(
                SAME_ID,
                turn_of([*SAME_ID["response"]["output"], result("一", "c")], message("好")),
                turn_of([user("新"), call("f", {"n": 1}, "c"), result("一", "c")], message("好"), history_replaced=True),
            ),
            ("调用 A：f", "执行调用 A", "一", "带上换过的历史（历史共 3 项）", "用户", "新"),
            ("调用 B",),
        ),
        (
            "a_conversation_taken_up_again_shows_what_it_brings",
            record_of(
                turn_of([user("旧"), call("f", {}, "c"), result("一", "c"), message("旧答"), user("新")], message("好"))
            ),
            ("提问", "新", "带上用户问题、另外 4 项（历史共 5 项）", "旧", "调用 A：f", "结果 A", "一", "旧答", "好"),
            (),
        ),
        (
            "an_output_without_a_call_is_shown_as_it_is",
            record_of(turn_of([user("问"), result("谁的", "c9")], message("好"))),
            ("其他条目", '"call_id": "c9"', "谁的"),
            ("结果 A",),
        ),
        (
            "reasoning_and_unknown_items_are_shown",
            record_of(
                turn_of(
                    [user("问")],
                    {"type": "reasoning", "encrypted_content": "x"},
                    {"type": "image_call", "size": 3},
                    {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "不行"}]},
                    message("好"),
                )
            ),
            ("推理", "没有可读的内容", "其他条目", "image_call", "不行"),
            (),
        ),
        (
            "what_no_server_should_send_is_shown_too",
            record_of(
                turn_of([user("问")], 7, None, ["x"], {"type": "function_call"}, {"content": 5}),
                {"new_items": [{}], "changed_settings": 3, "response": {"output": "x", "usage": {"input_tokens": "1"}}},
                {"new_items": [], "response": [], "seconds": "x"},
                {"new_items": [], "response": {"usage": {"input_tokens": 10**400, "output_tokens": -1}}, "seconds": -3},
            ),
            ("其他条目", "7", "null", "调用 A：None", "同样的历史"),
            (),
        ),
        (
            "a_run_that_never_asked_is_still_a_record",
            record_of(settings={}, outcome={"status": "failed", "error": "没有服务器"}),
            ("0 次模型请求", "没有用量", "没有发出请求", "失败", "没有服务器"),
            (),
        ),
        (
            "items_that_joined_last_are_told",
            record_of(turn_of([user("问")], message("好")), added_after_last_request=[message("好"), user("没问出去")]),
            ("history 又加入用户，没有再发给模型", "没问出去"),
            (),
        ),
        (
            "a_long_output_is_cut_and_counted",
            record_of(SAME_ID, turn_of([call("f", {"n": 1}, "c"), result("行\n" * 100, "c")], message("好"))),
            ("行", "……还有 76 行"),
            (),
        ),
    ]
)  # fmt: skip
class TheText(unittest.TestCase):
    """`told` in this order, and `untold` nowhere; the page tells the same."""

    def row(self, record: JsonObject, told: tuple[str, ...], untold: tuple[str, ...]) -> None:
        text = text_of(record)
        position = 0
        for words in told:
            self.assertIn(words, text[position:], text)
            position = text.index(words, position) + len(words)
        for words in untold:
            self.assertNotIn(words, text)
        page = Parsed(page_of(record))
        self.assertEqual(page.open, [])
        for words in told:
            if not re.search(r"[─╌（：]|结果    |……|history  |执行", words):
                self.assertIn(words, page.text)


class Hostile(unittest.TestCase):
    """A record may hold anything; shown, it is nothing but text."""

    def test_the_text_cannot_steer_the_terminal_and_stays_narrow(self) -> None:
        text = text_of(hostile())
        self.assertGreater(text.count("onerror=alert(1)"), 20)
        for character in set(text) - {"\n"}:
            self.assertNotIn(unicodedata.category(character), ("Cc", "Cf", "Cs"), repr(character))
        widest = max(text.splitlines(), key=show._columns)
        self.assertLessEqual(show._columns(widest), show.WIDTH, widest)

    def test_a_forged_line_in_a_name_does_not_become_a_line(self) -> None:
        text = text_of(record_of(turn_of([user("问")], call("f\n工具 ╌▶ Loop  结果 A", {}, "c\n伪造"))))
        self.assertIn("调用 A：f", text)
        self.assertFalse([line for line in text.splitlines() if line.strip().startswith(("工具 ╌▶", "伪造"))])

    def test_the_page_holds_only_our_tags_and_no_way_out(self) -> None:
        page = page_of(hostile())
        parsed = Parsed(page)
        self.assertEqual(parsed.open, [], "every element is closed")
        ours = "html head meta title style body header main footer section div p span b h1 h2 h3 dl dt dd ol li pre"
        self.assertLessEqual({tag for tag, _ in parsed.tags}, {*ours.split(), "code", "details", "summary"})
        attributes = {name for _, attrs in parsed.tags for name in attrs}
        ours = "lang charset http-equiv content name class id aria-labelledby aria-hidden"
        self.assertLessEqual(attributes, set(ours.split()))
        self.assertGreater(parsed.text.count(SHOWN), 20)
        self.assertEqual(page.count("<style>"), 1)
        css = page[page.index("<style>") : page.index("</style>")]
        self.assertNotRegex(css, r"url\(|@import|https?:|expression")
        for character in set(page) - {"\n"}:
            self.assertNotIn(unicodedata.category(character), ("Cc", "Cf", "Cs"), repr(character))

    def test_the_page_forbids_scripts_and_requests_should_any_slip_through(self) -> None:
        metas = [attrs for tag, attrs in Parsed(page_of(hostile())).tags if tag == "meta"]
        policy = [attrs["content"] for attrs in metas if attrs.get("http-equiv") == "Content-Security-Policy"]
        self.assertEqual(policy, ["default-src 'none'; style-src 'unsafe-inline'"])
        self.assertIn({"name": "viewport", "content": "width=device-width, initial-scale=1"}, metas)


class ThePage(unittest.TestCase):
    """One page that needs nothing else."""

    record = step_record("step04_agent_loop-daily")

    def test_it_says_its_language_and_names_each_turn_for_screen_readers(self) -> None:
        tags = Parsed(page_of(self.record)).tags
        self.assertIn(("html", {"lang": "zh-CN"}), tags)
        labelled = [attrs["aria-labelledby"] for tag, attrs in tags if tag == "section"]
        ids = [attrs["id"] for tag, attrs in tags if "id" in attrs]
        self.assertEqual(labelled, ["turn-1", "turn-2", "turn-3"])
        self.assertEqual(ids, labelled, "each once")
        self.assertIn("Agent Loop → 本地 Qwen", Parsed(page_of(self.record)).text)

    def test_each_turn_opens_to_its_exact_items(self) -> None:
        exact = [
            json.loads(pre) for pre in Parsed(page_of(self.record)).pres if pre[:1] in "[{" and "\n" in pre
        ]
        self.assertGreater(len(exact), 6)
        for turn in self.record["turns"]:
            self.assertIn(turn["new_items"], exact)
            self.assertIn(turn["response"], exact)
        self.assertIn(self.record["settings"], exact)

    def test_a_call_and_its_output_share_id_and_colour_and_others_have_another(self) -> None:
        page = page_of(self.record)
        pairs = re.findall(r'<li class="message (\w+)( back)? pair (hue-\d)">(.*?)</li>', page, re.DOTALL)
        found: dict[str, list[str]] = {}
        for end, _, hue, content in pairs:
            found.setdefault(hue, []).append(end)
            for call_id in re.findall(r"call_id=(\w+)", content):
                self.assertEqual(call_id, {"hue-0": "call_1a", "hue-1": "call_2b"}[hue])
        self.assertEqual(found, {"hue-0": ["model", "tool", "tool"], "hue-1": ["model", "tool", "tool"]})

    def test_every_class_and_colour_in_it_is_defined(self) -> None:
        page = page_of(hostile())
        css = Path(show.__file__).with_name("show.css").read_text(encoding="utf-8")
        used = {name for names in re.findall(r'class="([^"]*)"', page) for name in names.split()}
        plain = {"tool", "undone", "body", "flow", "status", "good", "bad", "open", "pair"}
        self.assertGreater(len(used), 20)
        for name in used - plain:
            self.assertIn(f".{name}", css, name)
        for name in re.findall(r"var\(--([\w-]+)\)", css):
            self.assertRegex(css, rf"--{name}:", name)

    def test_its_colours_can_be_read_in_light_and_in_dark(self) -> None:
        css = Path(show.__file__).with_name("show.css").read_text(encoding="utf-8")
        light, dark = (dict[str, str](), dict[str, str]())
        start = css.index("@media (prefers-color-scheme: dark)")
        for palette, part in ((light, css[:start]), (dark, css[start:])):
            for number, colour in enumerate(re.findall(r"--pair: (#\w+)", part)):
                palette[f"pair-{number}"] = colour
            palette |= dict(re.findall(r"--([\w-]+): (#\w+)", part))
        for palette in (light, dark):
            texts = [
                ("ink", "page"),
                ("ink", "card"),
                ("soft", "page"),
                ("soft", "card"),
                ("note-ink", "note"),
            ]
            texts += [(tone, f"{tone}-card") for tone in ("good", "bad", "open")]
            texts += [("chip-ink", f"pair-{number}") for number in range(6)]
            for ink, ground in texts:
                self.assertGreaterEqual(contrast(palette[ink], palette[ground]), 4.5, (ink, ground))
            self.assertGreaterEqual(contrast(palette["arrow"], palette["page"]), 3)


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2, 1 to 21."""

    def luminance(colour: str) -> float:
        digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
        parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


GOOD = record_of(turn_of([user("问")], message("好")))
DEEP = b'{"version": 1, "turns": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def without(key: str) -> JsonObject:
    return {name: value for name, value in GOOD.items() if name != key}


@table(
    [
        ("nothing", b"", "不是完整的 JSON"),
        ("half_a_file", json.dumps(GOOD).encode()[:-9], "不是完整的 JSON"),
        ("not_utf_8", b'{"version": 1, "x": "\xff"}', "不是完整的 JSON"),
        ("deep_nesting", DEEP, "嵌套过深"),
        ("not_a_number", json.dumps(GOOD | {"x": float("nan")}).encode(), "不是完整的 JSON"),
        ("a_list", b"[]", "没有 turns"),
        ("another_document", b'{"version": 1, "python": "3.11.7"}', "没有 turns"),
        ("no_version", without("version"), "版本是 None"),
        ("a_later_version", GOOD | {"version": VERSION + 1}, f"版本是 {VERSION + 1}"),
        ("a_version_that_is_no_number", GOOD | {"version": True}, "版本是 True"),
        ("no_settings", without("settings"), "缺少"),
        ("no_outcome", without("outcome"), "缺少"),
        ("no_added_items", without("added_after_last_request"), "缺少"),
        ("turns_that_are_no_list", GOOD | {"turns": {}}, "缺少"),
        ("a_turn_that_is_no_object", GOOD | {"turns": [1]}, "缺少"),
        ("a_turn_without_items", GOOD | {"turns": [{}]}, "缺少"),
        ("items_that_are_no_objects", GOOD | {"turns": [{"new_items": ["x"]}]}, "缺少"),
    ]
)  # fmt: skip
class BrokenRecords(unittest.TestCase):
    """Refused with one clear line, as text and as a page, and nothing is written."""

    def row(self, record: JsonObject | bytes, why: str) -> None:
        for flags in ((), ("--html",)):
            status, stdout, stderr, page = run(record, *flags)
            self.assertEqual((status, stdout, page), (1, "", None))
            self.assertIn(why, stderr)
            self.assertRegex(stderr, r"^[^\n]+。请[^\n]+。\n$")


def to_itself(folder: Path) -> list[str]:
    return [str(folder / "record.json"), "--html", str(folder / "record.json")]


def to_itself_by_a_link(folder: Path) -> list[str]:
    (folder / "link").symlink_to("record.json")
    return [str(folder / "record.json"), "--html", str(folder / "link")]


def to_itself_by_a_hard_link(folder: Path) -> list[str]:
    os.link(folder / "record.json", folder / "hard")
    return [str(folder / "record.json"), "--html", str(folder / "hard")]


def a_pipe(folder: Path) -> list[str]:
    os.mkfifo(folder / "pipe")
    return [str(folder / "pipe")]


def a_loop(folder: Path) -> list[str]:
    (folder / "loop").symlink_to("loop")
    return [str(folder / "loop")]


@table(
    [
        ("a_missing_file", lambda folder: [str(folder / "none.json")], 1, "没有"),
        ("a_name_that_no_file_can_have", lambda folder: ["x" * 5000], 1, "无法读取"),
        ("a_loop_of_links", a_loop, 1, "无法读取"),
        ("a_directory", lambda folder: [str(folder)], 1, "不是普通文件"),
        ("a_pipe", a_pipe, 1, "不是普通文件"),
        ("a_page_over_the_record", to_itself, 1, "记录自己"),
        ("a_page_over_the_record_by_a_link", to_itself_by_a_link, 1, "记录自己"),
        ("a_page_over_the_record_by_a_hard_link", to_itself_by_a_hard_link, 1, "记录自己"),
        ("a_page_over_a_directory", lambda f: [str(f / "record.json"), "--html", str(f)], 1, "无法写入"),
        ("a_page_in_no_directory", lambda f: [str(f / "record.json"), "--html", str(f / "a/b")], 1, "无法写入"),
        ("no_file", lambda folder: [], 2, "FILE"),
        ("two_files", lambda f: [str(f / "record.json"), "x"], 2, "x"),
        ("an_unknown_flag", lambda f: [str(f / "record.json"), "--pdf"], 2, "--pdf"),
        ("html_without_a_name", lambda f: [str(f / "record.json"), "--html"], 2, "--html"),
    ]
)  # fmt: skip
class WrongUse(unittest.TestCase):
    """A clear Chinese line on stderr, nothing on stdout, and the record as it was."""

    def row(self, arguments: Callable[[Path], list[str]], status: int, why: str) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "record.json").write_text(json.dumps(GOOD))
            words = arguments(folder)
            before = names(folder)
            stdout, stderr = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
                try:
                    got = show.main(words)
                except SystemExit as end:
                    got = int(end.code or 0)
            self.assertEqual((got, stdout.getvalue()), (status, ""))
            self.assertIn(why, stderr.getvalue())
            self.assertRegex(stderr.getvalue(), r"[\u4e00-\u9fff]")
            self.assertLessEqual(stderr.getvalue().count("\n"), 3)
            self.assertEqual(names(folder), before)
            self.assertEqual(json.loads((folder / "record.json").read_text()), GOOD)


class TheProgram(unittest.TestCase):
    """As a process of its own."""

    def test_it_prints_in_a_locale_without_chinese_and_to_a_reader_that_leaves(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "record.json")
            path.write_text(json.dumps(step_record("step04_agent_loop-daily")))
            command = [sys.executable, "-m", "examples.show", str(path)]
            ascii_only = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
            done = subprocess.run(command, capture_output=True, env=ascii_only)
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            self.assertIn(b"128", done.stdout)
            read, write = os.pipe()
            os.close(read)
            left = subprocess.run(command, stdout=write, stderr=subprocess.PIPE)
            os.close(write)
            self.assertEqual((left.returncode, left.stderr), (1, b""))

    def test_a_full_disk_is_said(self) -> None:
        if not Path("/dev/full").exists():
            self.skipTest("no /dev/full here")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "record.json")
            path.write_text(json.dumps(GOOD))
            stderr = io.StringIO()
            with contextlib.redirect_stderr(stderr):
                self.assertEqual(show.main([str(path), "--html", "/dev/full"]), 1)
            self.assertIn("无法写入 /dev/full", stderr.getvalue())


if __name__ == "__main__":
    raise SystemExit(harness.main())
