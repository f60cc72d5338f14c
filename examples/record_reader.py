"""A record of a run read as what happened in it: per turn what was sent, said, called and given back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

from packages.pi_ai import JsonObject, MiniPiError, ProtocolError, strict_json
from packages.qianchat.record import VERSION

STATUS = {"answered": "已回答", "unfinished": "任务尚未完成", "failed": "失败", "interrupted": "被中断"}
NO_RESULT = "（没有执行，或没有留下结果）"


@dataclass
class Call:
    """A tool call and, once one with its call_id was seen, its output. label: A, B, … as in Figure 2."""

    label: str
    name: str
    arguments: str
    call_id: str
    output: str | None = None


@dataclass(frozen=True)
class Part:
    """One item in words. `other` is an item of a kind that this page has no words for: text is its JSON."""

    kind: Literal["user", "text", "reasoning", "call", "output", "other"]
    text: str
    call: Call | None = None

    @property
    def title(self) -> str:
        """What the item is."""
        if self.call:
            return (
                f"调用 {self.call.label}：{self.call.name}"
                if self.kind == "call"
                else f"结果 {self.call.label}"
            )
        return {"user": "用户", "text": "文本", "reasoning": "推理"}.get(self.kind, "其他条目")


@dataclass(frozen=True)
class Ending:
    """status: one of STATUS, or whatever else the record says; text: the answer, or why there is none."""

    status: str
    text: str

    @property
    def title(self) -> str:
        """The status in words."""
        return STATUS.get(self.status, self.status)


@dataclass
class Turn:
    """One model request.

    raw: the turn as recorded; history: how many items the request carried; question: the user's, if it
    brought one; results: outputs of earlier turns' calls that it newly brought; background: its other new
    items, such as those of a conversation taken up again; said: what came back; ending: when this turn ended
    a question, how, and what the user got; changes: settings that differ from those of the request before.
    """

    number: int
    raw: JsonObject
    history: int
    question: str | None = None
    results: list[Call] = field(default_factory=list)
    background: list[Part] = field(default_factory=list)
    said: list[Part] = field(default_factory=list)
    ending: Ending | None = None
    changes: JsonObject = field(default_factory=dict)

    @property
    def replaced(self) -> bool:
        """Whether this request did not continue the history of the one before."""
        return bool(self.raw.get("history_replaced"))

    @property
    def error(self) -> str | None:
        """Why there is no response."""
        return str(self.raw["error"]) if "error" in self.raw else None

    @property
    def calls(self) -> list[Call]:
        """What the model asked for in this turn."""
        return [part.call for part in self.said if part.kind == "call" and part.call]

    @property
    def appended_line(self) -> str:
        """The pairs with which the history grew; empty when there are none."""
        done = [call.label for call in self.calls if call.output is not None]
        return "追加" + "、".join(f"调用 {label} 与结果 {label}" for label in done) if done else ""

    @property
    def tokens(self) -> tuple[int, int, int] | None:
        """Input, cached input and output tokens, where the server reported them."""
        usage = _dict(_dict(self.raw.get("response")).get("usage"))
        if not usage:
            return None
        cached = _dict(usage.get("input_tokens_details")).get("cached_tokens")
        return _number(usage.get("input_tokens")), _number(cached), _number(usage.get("output_tokens"))

    @property
    def request_line(self) -> str:
        """What the request newly carried, in a line."""
        news = ["用户问题"] if self.question is not None else []
        news += [f"结果 {call.label}" for call in self.results]
        if self.background:
            news.append(f"另外 {len(self.background)} 项")
        if self.replaced:
            news = ["换过的历史"]
        return f"带上{'、'.join(news) or '同样的历史'}（历史共 {self.history} 项）"

    @property
    def changed_line(self) -> str:
        """Which settings differ from those of the request before; empty when none do."""
        return "；".join(f"{name} 改为 {_setting(name, value)}" for name, value in self.changes.items())

    @property
    def cost_line(self) -> str:
        """Seconds and tokens."""
        seconds, first = self.raw.get("seconds"), self.raw.get("first_text_seconds")
        words = [f"{_number(seconds):.1f} 秒"] if seconds is not None else []
        if first is not None:
            words.append(f"首字 {_number(first):.1f} 秒")
        return " · ".join([*words, _tokens_line(self.tokens)])


@dataclass(frozen=True)
class Record:
    """A whole run. left: items that joined the history after the last request and were never sent."""

    name: str
    document: JsonObject
    turns: list[Turn]
    left: list[Part]

    @property
    def ending(self) -> Ending:
        """How the whole run ended."""
        return _ending(self.document["outcome"], "")

    @property
    def questions(self) -> list[str]:
        """What the user asked, in order."""
        return [turn.question for turn in self.turns if turn.question is not None]

    @property
    def model(self) -> str:
        """The name that was asked for."""
        return str(self.document["settings"].get("model", "（未记录）"))

    @property
    def model_lane(self) -> str:
        """What Figure 2 calls the model."""
        return "本地 Qwen" if "qwen" in self.model.lower() else "模型"

    @property
    def facts(self) -> list[tuple[str, str]]:
        """The run in a few named facts."""
        settings = self.document["settings"]
        reported = [turn.tokens for turn in self.turns if turn.tokens]
        total = (sum(t[0] for t in reported), sum(t[1] for t in reported), sum(t[2] for t in reported))
        seconds = sum(_number(turn.raw.get("seconds")) for turn in self.turns)
        calls = [call for turn in self.turns for call in turn.calls]
        undone = sum(call.output is None for call in calls)
        rest = f"，其中 {undone} 次没有结果" if undone else ""
        choice = _text(settings.get("tool_choice"))
        return [
            ("命令", str(self.document.get("command"))),
            ("模型", self.model),
            ("工具", f"{_setting('tools', settings.get('tools', []))}（tool_choice={choice}）"),
            ("轮次", f"{len(self.turns)} 次模型请求，{len(calls)} 次工具调用{rest}"),
            ("用量", _tokens_line(total if reported else None)),
            ("用时", f"{seconds:.1f} 秒（模型请求合计）"),
            ("记录于", str(self.document.get("recorded_at")).replace("T", " ").replace("+00:00", " UTC")),
        ]


def read_record(path: Path) -> Record:
    """Read what --record wrote. Raises MiniPiError for anything else, saying what to do."""
    try:
        if path.exists() and not path.is_file():
            raise MiniPiError(f"{path} 不是普通文件。请给出 --record 写下的 JSON 文件。")
        document = strict_json(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise MiniPiError(
            f"没有 {path} 这个文件。已有的记录在 evidence/；新的用 --record FILE 写。"
        ) from None
    except OSError as error:
        raise MiniPiError(f"无法读取 {path}：{error.strerror}。请检查权限。") from None
    except (ValueError, ProtocolError):
        raise MiniPiError(f"{path} 不是完整的 JSON，或嵌套过深。请用 --record 重新记录一次。") from None
    return _record(path.name, _checked(document, path))


def _checked(document: Any, path: Path) -> JsonObject:
    if not isinstance(document, dict) or "turns" not in document:
        raise MiniPiError(f"{path} 不是一次运行的记录（没有 turns）。请给出 --record 写下的文件。")
    version = document.get("version")
    if type(version) is not int or version != VERSION:
        raise MiniPiError(
            f"{path} 的版本是 {version!r}，这里只认识版本 {VERSION}。请用写它的程序打开，或重新记录。"
        )
    turns = document["turns"]
    whole = (
        isinstance(document.get("settings"), dict)
        and isinstance(document.get("outcome"), dict)
        and _are_objects(document.get("added_after_last_request"))
        and _are_objects(turns)
        and all(_are_objects(turn.get("new_items")) for turn in turns)
    )
    if not whole:
        raise MiniPiError(f"{path} 缺少记录应有的内容，可能被改过。请用 --record 重新记录一次。")
    return document


def _record(name: str, document: JsonObject) -> Record:
    ledger, turns = _Ledger(), list[Turn]()
    history, output, settings = 0, list[Any](), document["settings"]
    for number, raw in enumerate(document["turns"], 1):
        items = raw["new_items"]
        if raw.get("history_replaced"):
            history, output = 0, []
            ledger.start_again()
        history += len(items)
        earlier = [call for turn in turns for call in turn.calls]
        before, settings = settings, document["settings"] | _dict(raw.get("changed_settings"))
        turn = Turn(number, raw, history)
        turn.changes = {name: value for name, value in settings.items() if before.get(name) != value}
        for part in _sent(items, output, ledger):
            if part.kind == "output" and part.call in earlier:
                turn.results.append(part.call)
            else:
                turn.background.append(part)
        if turn.background and turn.background[-1].kind == "user":
            turn.question = turn.background.pop().text
        output = _list(_dict(raw.get("response")).get("output"))
        turn.said = [_part(item, ledger.called) for item in output]
        turns.append(turn)
    left = _sent(document["added_after_last_request"], output, ledger)
    _end_questions(turns, document["outcome"])
    return Record(name, document, turns, left)


def _end_questions(turns: Sequence[Turn], outcome: JsonObject) -> None:
    """Find the turns that ended a question: the last one, and those before another question.

    The record of a chat tells of each question under `runs`; a single run has only its outcome.
    """
    runs = iter(map(_dict, _list(outcome.get("runs"))))
    run = outcome
    for turn, following in zip_longest(turns, turns[1:]):
        if turn.question is not None and "runs" in outcome:
            run = next((each for each in runs if each.get("question") == turn.question), {})
        if following is None or following.question is not None:
            told = run if "runs" in outcome or following is None else {}
            text = "\n\n".join(part.text for part in turn.said if part.kind == "text")
            turn.ending = _ending(told, "" if turn.calls else text)


def _ending(outcome: JsonObject, text: str) -> Ending:
    """How a run ended, by its outcome, else by whether there was a text."""
    status = str(outcome.get("status", "answered" if text else "failed"))
    said = outcome.get("text") or outcome.get("error") or (text if status == "answered" else "")
    return Ending(status, str(said) or STATUS.get(status, status))


class _Ledger:
    """Pairs outputs with calls by call_id, in order, since some servers use an id again."""

    def __init__(self) -> None:
        self._calls: list[Call] = []
        self._waiting: list[Call] = []
        self._known: list[Call] = []

    def start_again(self) -> None:
        """A history that replaces another may hold calls that are known already."""
        self._waiting, self._known = [], list(self._calls)

    def called(self, item: JsonObject) -> Call:
        """A call that the model just made."""
        name, call_id = str(item.get("name")), str(item.get("call_id"))
        call = Call(_label(len(self._calls)), name, _text(item.get("arguments")), call_id)
        self._calls.append(call)
        self._waiting.append(call)
        return call

    def sent(self, item: JsonObject) -> Call:
        """A call in a request: one that was seen, as a rule."""
        for calls in (self._waiting, self._known):
            for call in calls:
                if call.call_id == str(item.get("call_id")):
                    if calls is self._known:
                        self._known.remove(call)
                        self._waiting.append(call)
                    return call
        return self.called(item)

    def returned(self, item: JsonObject) -> Call | None:
        """The call that an output answers."""
        for call in self._waiting:
            if call.call_id == str(item.get("call_id")):
                self._waiting.remove(call)
                call.output = _text(item.get("output"))
                return call
        return None


def _sent(items: Sequence[JsonObject], output: Sequence[Any], ledger: _Ledger) -> list[Part]:
    """The new items of a request in words, without what the model itself had just put out."""
    waiting = list(output)
    parts = []
    for item in items:
        replayed = [out for out in waiting if out == item or _same_call(out, item)]
        if replayed:
            waiting.remove(replayed[0])
        elif item.get("type") == "function_call_output":
            call = ledger.returned(item)
            parts.append(Part("output", _text(item.get("output")), call) if call else _other(item))
        else:
            parts.append(_part(item, ledger.sent))
    return parts


def _part(item: Any, call_of: Any) -> Part:
    """One item in words; call_of gives the Call for a function_call."""
    if not isinstance(item, dict):
        return _other(item)
    if item.get("type") == "function_call":
        call = call_of(item)
        return Part("call", call.arguments, call)
    if item.get("type") == "reasoning":
        text = "\n".join(_texts([*_list(item.get("summary")), *_list(item.get("content"))]))
        return Part("reasoning", text or "（没有可读的内容）")
    content = item.get("content")
    texts = [content] if isinstance(content, str) else list(_texts(_list(content)))
    if item.get("type", "message") != "message" or not texts:
        return _other(item)
    return Part("user" if item.get("role") == "user" else "text", "\n".join(texts))


def _same_call(out: Any, item: JsonObject) -> bool:
    """Arguments that came as an object are sent back as a string."""
    keys = ("type", "call_id", "name")
    return item.get("type") == "function_call" and all(_dict(out).get(key) == item.get(key) for key in keys)


def _texts(parts: Iterable[Any]) -> Iterable[str]:
    for part in map(_dict, parts):
        text = part.get("text", part.get("refusal"))
        if isinstance(text, str):
            yield text


def _other(item: Any) -> Part:
    return Part("other", _text(item))


def _setting(name: str, value: Any) -> str:
    if name == "tools" and isinstance(value, list):
        return "、".join(str(_dict(tool).get("name")) for tool in value) or "不提供工具"
    return _text(value)


def _tokens_line(tokens: tuple[int, int, int] | None) -> str:
    if tokens is None:
        return "没有用量"
    sent, cached, made = tokens
    share = f"（缓存 {cached / sent:.0%}）" if sent else ""
    return f"输入 {sent} token{share} · 输出 {made} token"


def _label(index: int) -> str:
    """A … Z, then A2 … Z2."""
    return chr(ord("A") + index % 26) + (str(index // 26 + 1) if index >= 26 else "")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _dict(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> Any:
    """A number of tokens or seconds; a record may claim anything."""
    return value if isinstance(value, int | float) and 0 <= value < 1e12 else 0


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)
