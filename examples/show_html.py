"""A record as one page that needs nothing else: no script, no request, light and dark, wide and narrow."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

from examples.record_reader import NO_RESULT, Call, Ending, Part, Record, Turn
from packages.qianchat.terminal import printable

# Nothing in a record may run or fetch anything, even if a mistake of ours let its markup through.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
HUES = 6  # colours for pairs of call and output, defined in show.css
MAX_TITLE = 60  # characters; the whole question stands in the first turn
MAX_LINES = 16  # of one text; the rest opens on demand


class Html(str):
    """Markup that tag() made. Every other string is text and gets escaped."""

    __slots__ = ()


def tag(name: str, *children: object, **attributes: str) -> Html:
    """An element. A trailing underscore in an attribute's name is dropped, others become hyphens."""
    pairs = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    head = "".join([name, *(f' {key}="{html.escape(printable(value))}"' for key, value in pairs)])
    return Html(f"<{head}>{_join(*children)}</{name}>")


def _join(*children: object) -> Html:
    return Html("".join(c if isinstance(c, Html) else html.escape(printable(str(c))) for c in children))


def page(record: Record) -> str:
    """The whole document."""
    title = (record.questions or [record.name])[0]
    title = title if len(title) <= MAX_TITLE else title[:MAX_TITLE] + "……"
    head = _join(
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        tag("title", f"{record.name} · {record.ending.title}"),
        tag("style", Html(Path(__file__).with_name("show.css").read_text(encoding="utf-8"))),
    )
    lanes = [("user", "用户"), ("loop", "Agent Loop"), ("model", record.model_lane), ("tool", "工具")]
    body = _join(
        tag("header", _headline(record, title), _facts(record)),
        tag(
            "main",
            tag(
                "div",
                *(tag("span", name, class_=lane) for lane, name in lanes),
                class_="lanes",
                aria_hidden="true",
            ),
            *(_turn(turn, record) for turn in record.turns),
            _left(record),
        ),
        tag("footer", _settings(record)),
    )
    return f'<!doctype html>\n<html lang="zh-CN">\n<head>{head}</head>\n<body>{body}</body>\n</html>\n'


def _headline(record: Record, title: str) -> Html:
    status = tag("span", record.ending.title, class_=f"status {_tone(record.ending)}")
    return _join(tag("p", status, f" {record.name}", class_="name"), tag("h1", title))


def _facts(record: Record) -> Html:
    rows = [tag("div", tag("dt", name), tag("dd", value)) for name, value in record.facts]
    return tag("dl", *rows, class_="facts")


def _tone(ending: Ending) -> str:
    return {"answered": "good", "failed": "bad"}.get(ending.status, "open")


def _turn(turn: Turn, record: Record) -> Html:
    model = record.model_lane
    steps = []
    if turn.question is not None:
        steps.append(_message("user", "用户", "Agent Loop", "提问", _prose(turn.question)))
    background = [tag("div", tag("b", part.title), _text(part.text)) for part in turn.background]
    changed = tag("p", turn.changed_line, class_="changed") if turn.changed_line else ""
    steps.append(_message("model", "Agent Loop", model, turn.request_line, changed, *background))
    if turn.error is not None:
        steps.append(_message("model back bad", model, "Agent Loop", "没有响应", _prose(turn.error)))
    steps += [_said(part, turn, model) for part in turn.said]
    steps += [_execution(call) for call in turn.calls]
    if turn.appended_line:
        steps.append(tag("li", tag("p", f"history {turn.appended_line}"), class_="note"))
    if turn.ending:
        steps.append(_delivered(turn.ending))
    name = f"turn-{turn.number}"
    heading = tag("h2", f"第 {turn.number} 轮", id=name)
    return tag(
        "section",
        tag("div", heading, tag("p", turn.cost_line, class_="cost"), class_="bar"),
        tag("ol", *steps, class_="flow"),
        _exact(turn),
        aria_labelledby=name,
    )


def _said(part: Part, turn: Turn, model: str) -> Html:
    """What came back, item by item; an answer is shown where the user gets it."""
    if part.call:
        title = _join(_chip("调用", part.call), " ", tag("code", part.call.name))
        body = _join(tag("pre", part.text), _call_id(part.call))
        return _message(f"model back {_hue(part.call)}", model, "Agent Loop", title, body)
    if turn.ending and turn.ending.text == part.text:
        return _message("model back", model, "Agent Loop", "文本，不再调用工具")
    return _message(
        "model back",
        model,
        "Agent Loop",
        part.title,
        _text(part.text) if part.kind == "other" else _prose(part.text),
    )


def _execution(call: Call) -> Html:
    """A call as it was run, and its output: one pair, one colour."""
    hue = _hue(call)
    if call.output is None:
        title = _join(_chip("调用", call), f" {NO_RESULT}")
        return _message(f"tool undone {hue}", "Agent Loop", "工具", title)
    run = _join("执行 ", _chip("调用", call), " ", tag("code", call.name))
    return _join(
        _message(f"tool {hue}", "Agent Loop", "工具", run),
        _message(
            f"tool back {hue}", "工具", "Agent Loop", _chip("结果", call), _text(call.output), _call_id(call)
        ),
    )


def _message(classes: str, sender: str, receiver: str, title: object, *body: object) -> Html:
    """One arrow of the diagram and what it carries. classes: user, model or tool for the end that is not
    the loop, `back` when the arrow points left, and its colour."""
    way = tag("span", f"{sender} → {receiver}", class_="way")
    content = tag("div", *body, class_="body") if any(body) else ""
    arrow = Html('<span class="arrow" aria-hidden="true"></span>')
    return tag("li", tag("p", way, " ", title, class_="title"), arrow, content, class_=f"message {classes}")


def _delivered(ending: Ending) -> Html:
    """What the user gets."""
    return _message(f"user back {_tone(ending)}", "Agent Loop", "用户", ending.title, _prose(ending.text))


def _left(record: Record) -> Html:
    """What there is after the last turn, if anything."""
    steps = [
        tag("li", tag("p", f"history 又加入{part.title}，没有再发给模型"), class_="note")
        for part in record.left
        if part.kind != "output"
    ]
    if not record.turns:
        steps.append(_delivered(record.ending))
    if not steps:
        return Html()
    heading = tag("h2", "最后一次请求之后" if record.turns else "没有发出请求", id="end")
    return tag(
        "section", tag("div", heading, class_="bar"), tag("ol", *steps, class_="flow"), aria_labelledby="end"
    )


def _exact(turn: Turn) -> Html:
    """The turn as it stands in the record."""
    items = turn.raw["new_items"]
    panels = [(f"请求新带的条目（{len(items)}）", items)]
    rest = {"changed_settings": "与首次请求不同的设置", "response": "收到的响应", "error": "错误"}
    panels += [(name, turn.raw[key]) for key, name in rest.items() if turn.raw.get(key)]
    return _details(f"第 {turn.number} 轮的原始条目", panels)


def _settings(record: Record) -> Html:
    document = record.document
    return _join(
        _details("首次请求的设置与工具声明", [("除 input 外的字段", document["settings"])]),
        _details(
            "最后一次请求之后加入 history 的条目", [("没有再发给模型", document["added_after_last_request"])]
        ),
    )


def _details(summary: str, panels: list[tuple[str, Any]]) -> Html:
    written = [
        _join(tag("h3", name), tag("pre", json.dumps(value, ensure_ascii=False, indent=2)))
        for name, value in panels
    ]
    return tag("details", tag("summary", summary), *written, class_="exact")


def _text(text: str) -> Html:
    """A text as it is, the end of a long one folded away."""
    lines = text.splitlines(keepends=True)
    if len(lines) <= MAX_LINES:
        return tag("pre", text)
    rest = tag(
        "details", tag("summary", f"其余 {len(lines) - MAX_LINES} 行"), tag("pre", "".join(lines[MAX_LINES:]))
    )
    return _join(tag("pre", "".join(lines[:MAX_LINES])), rest)


def _prose(text: str) -> Html:
    """What people or the model say, in the page's own letters."""
    return tag("div", _text(text), class_="prose")


def _chip(word: str, call: Call) -> Html:
    return tag("span", f"{word} {call.label}", class_="chip")


def _call_id(call: Call) -> Html:
    return tag("p", f"call_id={call.call_id}", class_="call-id")


def _hue(call: Call) -> str:
    return f"pair hue-{(ord(call.label[0]) - ord('A')) % HUES}"
