"""What must hold of the records in evidence/: a rule takes one and yields what is wrong with it."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import itertools
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from checks import runtime
from checks.support.harness import JsonObject
from examples import common, own_tool, step01_model_call
from packages.pi_coding_agent.tools import ProjectFiles, create_project_tools
from packages.qianchat import connection
from packages.qianchat.record import VERSION
from packages.qianchat.server.local_qwen import LOCAL_MODEL
from packages.qianchat.server.model import QWEN

ROOT = Path(__file__).parent.parent.parent


class Run:
    """A record with the questions that the rules ask of it. name: that of its file, without .json."""

    def __init__(self, name: str, document: JsonObject) -> None:
        self.name, self.document = name, document
        self.settings: JsonObject = document["settings"]
        self.turns: list[JsonObject] = document["turns"]
        self.outcome: JsonObject = document["outcome"]
        self.command = str(document["command"])

    @property
    def histories(self) -> list[list[JsonObject]]:
        """What each request carried, and last what the history was at the end."""
        carried: list[list[JsonObject]] = []
        for turn in self.turns:
            before = [] if turn.get("history_replaced") or not carried else carried[-1]
            carried.append([*before, *turn["new_items"]])
        return [*carried, [*carried[-1], *self.document["added_after_last_request"]]]

    @property
    def questions(self) -> list[str]:
        """What the user asked."""
        texts = [item["content"][0]["text"] for item in self.histories[-1] if item.get("role") == "user"]
        return [str(text) for text in texts]

    @property
    def output(self) -> list[JsonObject]:
        """All that the model put out."""
        return [item for turn in self.turns for item in turn["response"]["output"]]

    @property
    def calls(self) -> list[JsonObject]:
        """The calls among it."""
        return [item for item in self.output if item["type"] == "function_call"]

    @property
    def results(self) -> dict[str, str]:
        """The outputs by call_id."""
        items = self.histories[-1]
        return {i["call_id"]: i["output"] for i in items if i.get("type") == "function_call_output"}

    @property
    def listed(self) -> set[str]:
        """Every line of a listing."""
        listings = [self.results.get(c["call_id"], "") for c in self.calls if c["name"] == "list_files"]
        return {line for listing in listings for line in listing.splitlines()}

    @property
    def read(self) -> dict[str, str]:
        """The files that were really read, with what stands in them in the sample project today."""
        found = {}
        for call in self.calls:
            path = str(json.loads(call["arguments"]).get("path"))
            file = common.SAMPLE_PROJECT / path
            if call["name"] == "read_file" and file.is_file():
                text = file.read_text(encoding="utf-8")
                if self.results.get(call["call_id"]) == text:
                    found[path] = text
        return found

    @property
    def answers(self) -> list[str]:
        """The text of each turn that called nothing."""
        texts = []
        for turn in self.turns:
            output = turn["response"]["output"]
            if not any(item["type"] == "function_call" for item in output):
                parts = [
                    part["text"] for item in output if item["type"] == "message" for part in item["content"]
                ]
                texts.append("\n".join(parts))
        return texts


Complaints = Iterator[str]


# Rules for every record of a run.


def the_version_is_known_and_the_form_is_whole(run: Run) -> Complaints:
    keys = {
        "version",
        "command",
        "recorded_at",
        "settings",
        "turns",
        "added_after_last_request",
        "outcome",
        "usage",
    }
    if set(run.document) != keys or run.document["version"] != VERSION:
        yield f"version {run.document['version']}, fields {sorted(run.document)}"
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", run.document["recorded_at"]):
        yield f"recorded_at {run.document['recorded_at']}"
    if not run.turns or any("error" in turn or "response" not in turn for turn in run.turns):
        yield "a turn without a response"


def calls_and_outputs_are_paired(run: Run) -> Complaints:
    """In what is sent, each call has one output, later than itself; only a run that stopped leaves one open."""
    ids = [call["call_id"] for call in run.calls]
    if len(set(ids)) < len(ids):
        yield "two calls share an id"
    unfinished = run.outcome["status"] == "unfinished"
    for number, history in enumerate(run.histories, 1):
        waiting: list[str] = []
        for item in history:
            if item.get("type") == "function_call":
                waiting.append(item["call_id"])
            elif item.get("type") == "function_call_output":
                if item["call_id"] not in waiting:
                    yield f"history {number}: an output without a call before it: {item['call_id']}"
                else:
                    waiting.remove(item["call_id"])
        if waiting and not (unfinished and number == len(run.histories)):
            yield f"history {number}: calls without an output: {waiting}"


def each_request_continues_the_one_before(run: Run) -> Complaints:
    """The history grows by what the model put out, as it came, then by outputs and questions alone."""
    last: list[JsonObject] = []
    for number, turn in enumerate(run.turns, 1):
        fresh = turn["new_items"]
        if turn.get("history_replaced"):
            yield f"turn {number} replaced the history"
        if json.dumps(fresh[: len(last)]) != json.dumps(last):
            yield f"turn {number} does not send back what the model put out"
        for item in fresh[len(last) :]:
            if item.get("type") != "function_call_output" and item.get("role") != "user":
                yield f"turn {number} carries an item of unknown origin"
        if set(turn["changed_settings"]) - {"tools", "tool_choice", "parallel_tool_calls"}:
            yield f"turn {number} changed {list(turn['changed_settings'])}"
        last = turn["response"]["output"]


def usage_and_seconds_are_there_for_each_turn(run: Run) -> Complaints:
    if run.document["usage"] != [turn["response"].get("usage") for turn in run.turns]:
        yield "usage is not that of the responses"
    for number, turn in enumerate(run.turns, 1):
        usage = turn["response"].get("usage") or {}
        cached = usage.get("input_tokens_details", {}).get("cached_tokens")
        sent, made = usage.get("input_tokens"), usage.get("output_tokens")
        if not (type(cached) is type(sent) is type(made) is int and 0 <= cached < sent and made > 0):
            yield f"turn {number}: usage {usage}"
        if not isinstance(turn.get("seconds"), float) or turn["seconds"] < 0:
            yield f"turn {number}: seconds {turn.get('seconds')}"


def model_instructions_and_tools_are_todays(run: Run) -> Complaints:
    """A record of wordings that are no longer sent proves nothing."""
    own = {"step01_model_call-daily": step01_model_call.INSTRUCTIONS, "own_tool": own_tool.INSTRUCTIONS}
    wanted = own.get(run.name, connection.INSTRUCTIONS)
    if run.settings["model"] != LOCAL_MODEL:
        yield f"the model is {run.settings['model']}"
    if run.settings["instructions"] != wanted:
        yield "the instructions have changed since; record it again"
    changed = [turn["changed_settings"].get("tools", []) for turn in run.turns]
    schemas = {schema["name"]: schema for schema in [*todays_tools(), own_tool.today.schema()]}
    for tool in [*run.settings["tools"], *itertools.chain(*changed)]:
        if tool != schemas.get(tool["name"]):
            yield f"the declaration of {tool['name']} has changed since; record it again"


def the_command_makes_it_again(run: Run) -> Complaints:
    """The module is there, its --help knows the flags, and the questions and the file are these."""
    yield from command_complaints(run.command, run.name)
    words = shlex.split(run.command)
    if words[0] == "printf":
        if words[2 : words.index("|")] != run.questions:
            yield "the command asks other questions"
    else:
        flags = dict(itertools.pairwise(words))
        default = own_tool.QUESTION if run.name == "own_tool" else common.QUESTION
        if [flags.get("--question", default)] != run.questions:
            yield "the command asks another question"


# Rules for single records.


def it_asked_nothing_of_tools(run: Run) -> Complaints:
    if run.settings["tools"] or "tool_choice" in run.settings or run.calls or run.results:
        yield "tools were there"
    yield from it_ended(run, "answered", turns=1)


def it_stopped_at_its_call(run: Run) -> Complaints:
    yield from it_ended(run, "unfinished", turns=1)
    if [call["name"] for call in run.calls] != ["list_files"]:
        yield "no list_files was asked for"
    if run.results or len(run.histories[-1]) > 1:
        yield "something was run"


def it_listed_and_stopped_before_reading(run: Run) -> Complaints:
    yield from it_ended(run, "unfinished", turns=2)
    if [call["name"] for call in run.calls] != ["list_files", "read_file"]:
        yield "list_files and then read_file were not asked for"
    elif list(run.results) != [run.calls[0]["call_id"]]:
        yield "not the listing alone was run"
    elif json.loads(run.calls[1]["arguments"]).get("path") not in run.listed:
        yield "the path asked for is not from the listing"
    if common.UNFINISHED not in run.outcome["text"]:
        yield "it does not say that it is unfinished"


def the_model_chose_freely(run: Run) -> Complaints:
    for turn in [{"changed_settings": {}}, *run.turns]:
        settings = run.settings | turn["changed_settings"]
        offered = (settings["tool_choice"], len(settings["tools"]))
        # After a repeated call no tools are offered (AgentLoopConfig.answer_after_repeat).
        if offered not in ([("auto", 2)] if turn is not run.turns[-1] else [("auto", 2), (None, 0)]):
            yield f"tool_choice and number of tools were {offered}"


def the_listing_was_demanded_first(run: Run) -> Complaints:
    forced = ("required", {"type": "function", "name": "list_files"})
    if [tool["name"] for tool in run.settings["tools"]] != ["list_files"]:
        yield "the first request offers more than list_files"
    if run.settings["tool_choice"] not in forced:
        yield "the first request forces nothing"
    if run.turns[0]["response"]["output"][-1].get("name") != "list_files":
        yield "list_files was not called first"
    later = [run.settings | turn["changed_settings"] for turn in run.turns[1:2]]
    if [(each["tool_choice"], len(each["tools"])) for each in later] != [("auto", 2)]:
        yield "the second request does not leave the choice to the model"


def the_file_read_came_from_the_listing(run: Run) -> Complaints:
    if not run.read:
        yield "no file of the sample project was read as it stands there"
    listed: set[str] = set()
    for call in run.calls:
        path = json.loads(call["arguments"]).get("path")
        result = run.results.get(call["call_id"], "")
        if call["name"] == "list_files":
            listed |= set(result.splitlines())
        elif path in run.read and path not in listed:
            yield f"{path} was read before a listing showed it"


def it_answered_with_every_figure_of_the_file(run: Run) -> Complaints:
    """The first answer holds all that the report says: the date, the orders, the revenue."""
    for text in run.read.values():
        missing = figures(" ".join(map(str, json.loads(text).values()))) - figures(run.answers[0])
        if missing or not run.answers[0]:
            yield f"the answer lacks {missing}"


def it_answered_with_nothing_made_up(run: Run) -> Complaints:
    """Each figure stands in what the tools gave, or in the question; a chat may have computed with two of them."""
    if run.outcome["text"] != run.answers[-1]:
        yield "the outcome is not the last answer"
    known = figures("\n".join([*run.results.values(), *run.questions]))
    for answer in run.answers:
        for figure in figures(answer) - known:
            if run.name != "chat-daily" or not computed(figure, known):
                yield f"{figure} stands in no file that was read"
        known |= figures(answer)


def it_answered_in_words(run: Run) -> Complaints:
    """The question was Chinese, and a copy of a tool's output is no answer."""
    for answer in run.answers:
        if not re.search(r"[\u4e00-\u9fff]", answer):
            yield f"not a word of Chinese in {answer!r}"
        if any(text.strip() in answer for text in run.read.values()):
            yield "the answer repeats the file as it is"


def it_was_answered(run: Run) -> Complaints:
    yield from it_ended(run, "answered")


def it_failed_at_the_turn_limit_after_both_tools(run: Run) -> Complaints:
    yield from it_ended(run, "failed", turns=2)
    if "达到最大轮数 2" not in str(run.outcome.get("error")) or run.outcome.get("kind") != "AgentRunError":
        yield f"it failed otherwise: {run.outcome}"
    if "--max-turns 2" not in run.command:
        yield "the command sets no limit of 2"
    ran = [call["name"] for call in run.calls if call["call_id"] in run.results]
    if ran != ["list_files", "read_file"]:
        yield f"the tools that ran: {ran}"


def three_questions_were_answered(run: Run) -> Complaints:
    yield from it_ended(run, "answered")
    if len(run.questions) < 3 or len(run.answers) != len(run.questions):
        yield f"{len(run.questions)} questions, {len(run.answers)} answers"
    runs = run.outcome.get("runs", [])
    if [each.get("question") for each in runs] != run.questions or any(
        r["status"] != "answered" for r in runs
    ):
        yield "not every question has its own good end"


def a_long_answer_began_within_a_third_of_its_time(run: Run) -> Complaints:
    turns = [turn for turn in run.turns if "first_text_seconds" in turn]
    if not turns:
        yield "no text was streamed"
        return
    longest = max(turns, key=lambda turn: int(turn["response"]["usage"]["output_tokens"]))
    if longest["first_text_seconds"] > longest["seconds"] / 3:
        yield f"first text after {longest['first_text_seconds']} of {longest['seconds']} seconds"


def it_ended(run: Run, status: str, turns: int | None = None) -> Complaints:
    if run.outcome["status"] != status:
        yield f"it is {run.outcome['status']}, not {status}"
    if turns is not None and len(run.turns) != turns:
        yield f"it took {len(run.turns)} turns, not {turns}"


Rule = Callable[[Run], Complaints]
ALWAYS: tuple[Rule, ...] = (
    the_version_is_known_and_the_form_is_whole,
    calls_and_outputs_are_paired,
    each_request_continues_the_one_before,
    usage_and_seconds_are_there_for_each_turn,
    model_instructions_and_tools_are_todays,
    the_command_makes_it_again,
)
SOURCED: tuple[Rule, ...] = (
    the_file_read_came_from_the_listing,
    it_answered_with_every_figure_of_the_file,
    it_answered_with_nothing_made_up,
    it_answered_in_words,
)
REQUIRED: dict[str, tuple[Rule, ...]] = {
    "step01_model_call-daily": (it_asked_nothing_of_tools, it_answered_with_nothing_made_up),
    "step02_tool_request-daily": (it_stopped_at_its_call,),
    "step03_one_round-daily": (it_listed_and_stopped_before_reading,),
    "step04_agent_loop-daily": (it_was_answered, the_model_chose_freely, *SOURCED),
    "step05_required_tool-daily": (it_was_answered, the_listing_was_demanded_first, *SOURCED),
    "max-turns-2": (it_failed_at_the_turn_limit_after_both_tools, the_file_read_came_from_the_listing),
    "chat-daily": (
        three_questions_were_answered,
        a_long_answer_began_within_a_third_of_its_time,
        *SOURCED,
    ),
}  # fmt: skip


# Rules for the other files.


def the_environment_is_told_and_is_todays(document: JsonObject) -> Complaints:
    """runtime.json, as checks.runtime writes it."""
    if document.get("version") != runtime.VERSION:
        yield f"version {document.get('version')}"
    model = {"name": QWEN.name, "file": QWEN.file, "size_bytes": QWEN.size, "sha256": QWEN.sha256}
    if document.get("model") != model:
        yield f"model {document.get('model')}"
    if document.get("llama_cpp", {}).get("source") != runtime.SOURCE or not document["llama_cpp"].get(
        "build"
    ):
        yield f"llama_cpp {document.get('llama_cpp')}"
    sha256 = hashlib.sha256(runtime.TEMPLATE.read_bytes()).hexdigest()
    if document.get("template") != {"file": runtime.TEMPLATE.name, "sha256": sha256}:
        yield "the chat template has changed since; record everything again"
    if not re.fullmatch(r"\w+ 3\.\d+\.\d+\S*", str(document.get("python"))):
        yield f"python {document.get('python')}"
    cpu = document.get("cpu", {})
    if not cpu.get("name") or not isinstance(cpu.get("cores"), int):
        yield f"cpu {cpu}"
    yield from command_complaints(str(document.get("command")), "runtime")


FORBIDDEN = (
    (
        "an absolute path",
        r"(?<![A-Za-z0-9_.\-/<])/(?:[A-Za-z0-9_.\-]+/)+|/(?:root|home|work|tmp|opt|Users)\b",
    ),
    ("a path of Windows", r"\b[A-Za-z]:\\\w"),
    ("a host name", r"(?i)\b(?:[a-z0-9-]+\.)+(?:org|com|net|io|cn|co|ai|dev|local|internal|lan|corp)\b"),
    ("an address", r"\b(?!127\.0\.0\.1\b)\d{1,3}(?:\.\d{1,3}){3}\b"),
    ("a key", r"QWEN_API_KEY|(?i:bearer |authorization)|\bsk-[A-Za-z0-9]{8}|\bhf_[A-Za-z0-9]{8}"),
)


def nothing_private_is_in(text: str) -> Complaints:
    """No path or name of the machine, no host, no key."""
    for what, pattern in FORBIDDEN:
        for found in re.finditer(pattern, text):
            yield f"{what}: {text[max(0, found.start() - 20) : found.end() + 20]!r}"
    key, host = connection.api_key(), socket.gethostname()
    if key and key in text:
        yield "the key in the environment"
    if len(host) > 5 and host in text:
        yield "the name of this machine"


# What the rules are made of.


def strings_in(value: Any) -> Iterator[str]:
    """Every string in a JSON value, the keys of objects too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in itertools.chain(value, value.values() if isinstance(value, dict) else ()):
            yield from strings_in(inner)


def command_complaints(command: str, name: str) -> Complaints:
    """What is wrong with a command as the one that makes evidence/NAME.json."""
    words = shlex.split(command)
    start = words.index("|") + 1 if "|" in words else 0
    if words[start : start + 2] != ["python3", "-m"] or len(words) < start + 3:
        yield f"not a command of ours: {command}"
        return
    module, rest = words[start + 2], words[start + 3 :]
    commands = list(itertools.takewhile(lambda word: not word.startswith("-"), rest))
    known = flags_of(module, *commands)
    if known is None:
        yield f"{module} {' '.join(commands)} cannot be run"
        return
    unknown = {word.partition("=")[0] for word in rest if word.startswith("--")} - known
    if unknown:
        yield f"{module} does not know {unknown}"
    if f"--record evidence/{name}.json" not in command:
        yield "it records another file"


@functools.cache
def flags_of(module: str, *commands: str) -> set[str] | None:
    """The flags that `python3 -m module … --help` names, None when it does not run."""
    if not module.startswith(("examples.", "packages.", "checks.")) or not importlib.util.find_spec(module):
        return None
    line = [sys.executable, "-m", module, *commands, "--help"]
    done = subprocess.run(
        line, cwd=ROOT, capture_output=True, encoding="utf-8", env=os.environ | {"PYTHONUTF8": "1"}
    )
    return set(re.findall(r"--[a-z][a-z-]*", done.stdout)) if done.returncode == 0 else None


@functools.cache
def todays_tools() -> list[JsonObject]:
    """The declarations that the steps and the chat send."""
    with ProjectFiles(common.SAMPLE_PROJECT, common.MAX_FILE_BYTES) as files:
        return [tool.schema() for tool in create_project_tools(files)]


def figures(text: str) -> set[str]:
    """The numbers in a text, a date being one; however they are written: 9,600 is 9600, `2026年9月6日` is 2026-09-06."""
    text = re.sub(r"(?m)^\s*\d+[.、)）]\s", " ", text)  # a list's own numbers
    found: set[str] = set()

    def keep_date(date: re.Match[str]) -> str:
        found.add(f"{date[1]}-{int(date[2]):02}-{int(date[3]):02}")
        return " "

    text = re.sub(r"(\d{4})\s*[-/.年]\s*(\d{1,2})\s*[-/.月]\s*(\d{1,2})(?:\s*日)?", keep_date, text)
    numbers = re.findall(r"\d+(?:[,，]\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?", text)
    return found | {f"{Decimal(re.sub('[,，]', '', number)).normalize():f}" for number in numbers}


def computed(figure: str, known: set[str]) -> bool:
    """Whether figure is, as far as it is written out, the sum, difference, product or quotient of two known ones."""
    if not re.fullmatch(r"[\d.]+", figure):
        return False
    numbers = [Decimal(number) for number in known if re.fullmatch(r"[\d.]+", number)]
    tolerance = Decimal(1).scaleb(-len(figure.partition(".")[2])) / 2
    for a, b in itertools.product(numbers, repeat=2):
        values = [a + b, a - b, a * b, *([a / b, a / b * 100] if b else [])]
        if any(abs(value - Decimal(figure)) <= tolerance for value in values):
            return True
    return False


def rules_for(name: str) -> tuple[Rule, ...]:
    return ALWAYS + REQUIRED.get(name, ())
