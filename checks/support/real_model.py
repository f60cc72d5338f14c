"""Questions put to the real model, and honest marks: for `checks.model_tasks` and `checks.model_queries`."""

from __future__ import annotations

import json
import posixpath
import re
import time
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from packages.pi_agent import AgentEvent, AgentLoopConfig, AgentTool, Conversation
from packages.pi_ai import FunctionCall, JsonObject, MiniPiError, ResponsesClient
from packages.pi_coding_agent.tools import ProjectFiles, create_project_tools
from packages.qianchat import connection
from packages.qianchat.arguments import Parser
from packages.qianchat.record import check_writable, command_line, write_record
from packages.qianchat.server.local_qwen import local_qwen

MAX_FILE_BYTES = 32 * 1024
VERSION = 2


@dataclass(frozen=True)
class Task:
    """A question, and what makes its answer right: all of these, or it is wrong.

    facts: each must stand in the answer. One fact is text, with | between spellings that mean the same, or,
    after a ~, a regular expression; both look at the answer as plain() gives it.
    absent: what must not stand there, in the same notation.
    read, listed: files that must have been read, directories that must have been listed, with success.
    needed: calls that must have succeeded, each a tool's name and the arguments that matter.
    forbidden: tools that must not have been called at all.
    tools: offered to the model, with the two file tools before them if files is set.
    instructions: in place of the examples' own. before: questions of the same conversation that come first.
    """

    name: str
    question: str
    facts: tuple[str, ...]
    absent: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()
    needed: tuple[tuple[str, JsonObject], ...] = ()
    forbidden: tuple[str, ...] = ()
    tools: tuple[AgentTool, ...] = ()
    files: bool = True
    instructions: str | None = None
    before: tuple[str, ...] = ()


@dataclass
class Outcome:
    """What came of one task. tokens and cached are per request; cached is None where no share is due:
    at the first request, and where the tools are not those of the request before."""

    task: str
    answer: str = ""
    error: str = ""
    faults: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    tool_errors: int = 0
    tokens_in: list[int] = field(default_factory=list)
    tokens_out: list[int] = field(default_factory=list)
    cached: list[float | None] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def right(self) -> bool:
        return not self.error and not self.faults


class _Watched:
    """A ModelClient that notes what each exchange cost."""

    def __init__(self, client: ResponsesClient, outcome: Outcome) -> None:
        self._client, self._outcome = client, outcome
        self._tools: object = None

    def create(self, payload: JsonObject) -> JsonObject:
        outcome = self._outcome
        response = self._client.create(payload)
        usage = response.get("usage") or {}
        details = usage.get("input_tokens_details") or {}
        same = bool(outcome.tokens_in) and payload["tools"] == self._tools
        cached = min(1.0, details.get("cached_tokens", 0) / outcome.tokens_in[-1]) if same else None
        outcome.cached.append(cached)
        outcome.tokens_in.append(usage.get("input_tokens", 0))
        outcome.tokens_out.append(usage.get("output_tokens", 0))
        self._tools = payload["tools"]
        return response


def attempt(client: ResponsesClient, config: AgentLoopConfig, project: Path, task: Task) -> Outcome:
    """Run task with its tools and mark what comes of it. Errors of the run are its outcome."""
    outcome = Outcome(task.name)
    done: list[tuple[FunctionCall, bool]] = []

    def watch(event: AgentEvent) -> None:
        if event.type == "tool_result" and event.call and event.result:
            failed = event.result.is_error
            outcome.tool_errors += failed
            outcome.calls.append(_short(event.call) + " (error)" * failed)
            done.append((event.call, not failed))

    if task.instructions is not None:
        config = replace(config, instructions=task.instructions)
    start = time.monotonic()
    try:
        with ProjectFiles(project, MAX_FILE_BYTES) as files:
            tools = [*(create_project_tools(files) if task.files else ()), *task.tools]
            conversation = Conversation(_Watched(client, outcome), tools, config, watch)
            for question in task.before:
                conversation.ask(question)
            done.clear()
            outcome.answer = conversation.ask(task.question)
    except MiniPiError as error:
        outcome.error = str(error)
    outcome.seconds = round(time.monotonic() - start, 1)
    if not outcome.error:
        outcome.faults = faults(task, outcome.answer, done)
    return outcome


def _short(call: FunctionCall) -> str:
    """A call in one line; of a file tool's arguments the path alone."""
    if set(call.arguments) == {"path"}:
        return f"{call.name} {call.arguments['path']}"
    return f"{call.name} {json.dumps(call.arguments, ensure_ascii=False)}"


def faults(task: Task, answer: str, done: Sequence[tuple[FunctionCall, bool]]) -> list[str]:
    """All that is wrong with answer; nothing, if it is right. done: the calls and whether each succeeded."""
    found = [f"缺少 {fact}" for fact in task.facts if not states(answer, fact)]
    found += [f"不该有 {fact}" for fact in task.absent if states(answer, fact)]
    needed = [("read_file", {"path": path}) for path in task.read]
    needed += [("list_files", {"path": path}) for path in task.listed]
    for name, arguments in (*needed, *task.needed):
        if not any(good and call.name == name and _covers(call.arguments, arguments) for call, good in done):
            found.append(f"没有成功调用 {name} {json.dumps(arguments, ensure_ascii=False)}")
    called = {call.name for call, _ in done}
    return found + [f"不该调用 {name}" for name in task.forbidden if name in called]


def _covers(given: JsonObject, needed: JsonObject) -> bool:
    """Whether given has all of needed; text counts without regard to case, a path as it is resolved."""
    return all(name in given and _same(name, given[name], value) for name, value in needed.items())


def _same(name: str, given: object, needed: object) -> bool:
    if isinstance(given, str) and isinstance(needed, str):
        if name == "path":
            return posixpath.normpath(given) == posixpath.normpath(needed)
        return given.strip().lower() == needed.strip().lower()
    return given == needed


def states(answer: str, fact: str) -> bool:
    """Whether answer has the fact, as Task describes it. A figure only counts as a whole number."""
    text = plain(answer)
    if fact.startswith("~"):
        return re.search(fact[1:], text) is not None
    return any(_stands_in(plain(spelling), text) for spelling in fact.split("|"))


def _stands_in(fact: str, text: str) -> bool:
    before = r"(?<![\d.])(?<!\d-)" if fact[0].isdigit() else ""
    after = r"(?!\d|\.\d|-\d)" if fact[-1].isdigit() else ""
    return re.search(before + re.escape(fact) + after, text) is not None


def plain(text: str) -> str:
    """Text in one spelling: half-width lower case, no emphasis, no thousands separators, dates as
    2026-09-06, no .0 at a whole number, no blanks around Chinese characters."""
    text = re.sub(r"[*`]", "", unicodedata.normalize("NFKC", text)).lower()
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    text = re.sub(r"(?<!\d)(\d{4})\s*[年/.-]\s*(\d{1,2})\s*[月/.-]\s*(\d{1,2})(?!\d)\s*日?", _iso, text)
    text = re.sub(r"(?<=\d)\.0+(?!\d)", "", text)
    return re.sub(r"(?<=[\u3000-\u9fff])[ \t]+|[ \t]+(?=[\u3000-\u9fff])", "", text)


def _iso(match: re.Match[str]) -> str:
    return f"{match[1]}-{int(match[2]):02d}-{int(match[3]):02d}"


@dataclass(frozen=True)
class TaskSet:
    """Tasks over one project, and how many of them must come out right.

    project: given an empty scratch directory, says where the files are.
    """

    name: str
    tasks: Sequence[Task]
    enough: int
    project: Callable[[Path], Path]


def main(module: str, description: str, sets: Sequence[TaskSet]) -> int:
    """The command: put every task to the server, print a line for each and one for each set.

    With several sets, --set chooses one. Returns the exit status: 0 when every set that was run has
    enough right answers, 1 when not, 2 when there is no server.
    """
    import sys
    import tempfile

    names = [each.name for each in sets]
    parser = Parser(prog=f"python3 -m {module}", description=description)
    parser.add_argument("--local-qwen", action="store_true", help="没有服务时，在本机起动一个真实的 Qwen")
    parser.add_argument("--record", type=Path, metavar="FILE", help="把结果写成 JSON")
    parser.add_argument("--only", metavar="WORD", default="", help="只做名字里有 WORD 的题")
    if len(sets) > 1:
        parser.add_argument("--set", choices=[*names, "all"], default="all", help="做哪一套题（默认 all）")
    args = parser.parse_args()
    wanted = getattr(args, "set", "all")
    done: dict[str, list[Outcome]] = {}
    passed = True
    try:
        if args.record:
            check_writable(args.record)
        server = local_qwen(connection.base_url()) if args.local_qwen else nullcontext()
        with server, tempfile.TemporaryDirectory() as scratch:
            client, config = connection.connect()
            for each in sets:
                if wanted in (each.name, "all"):
                    chosen = [task for task in each.tasks if args.only in task.name]
                    folder = Path(scratch, each.name)
                    folder.mkdir()
                    outcomes = done[each.name] = _run_all(client, config, each.project(folder), chosen)
                    passed &= sum(outcome.right for outcome in outcomes) >= min(each.enough, len(chosen))
        if args.record:
            write_record(args.record, _document(module, sys.argv[1:], config, done))
    except MiniPiError as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if passed else 1


def _run_all(
    client: ResponsesClient, config: AgentLoopConfig, project: Path, tasks: Sequence[Task]
) -> list[Outcome]:
    print(f"{'task':<20} right turns errors    in   out cached     s")
    outcomes = []
    for task in tasks:
        outcome = attempt(client, config, project, task)
        outcomes.append(outcome)
        print(_line(outcome.task, "yes" if outcome.right else "NO", [outcome]), flush=True)
        if not outcome.right:
            print(f"    {outcome.error or '；'.join(outcome.faults)}")
            print(f"    {' > '.join(outcome.calls)} > {outcome.answer[:300]!r}")
    right = sum(outcome.right for outcome in outcomes)
    print(_line("all", f"{right}/{len(outcomes)}", outcomes))
    return outcomes


def _line(name: str, right: str, outcomes: Sequence[Outcome]) -> str:
    """One line of the table. cached: the smallest share that was due."""
    turns = sum(len(outcome.tokens_in) for outcome in outcomes)
    errors = sum(outcome.tool_errors for outcome in outcomes)
    tokens_in = sum(sum(outcome.tokens_in) for outcome in outcomes)
    tokens_out = sum(sum(outcome.tokens_out) for outcome in outcomes)
    shares = [share for outcome in outcomes for share in outcome.cached if share is not None]
    cached = f"{min(shares):.1%}" if shares else "-"
    seconds = sum(outcome.seconds for outcome in outcomes)
    return (
        f"{name:<20} {right:>5} {turns:5} {errors:6} {tokens_in:5} {tokens_out:5} {cached:>6} {seconds:5.0f}"
    )


def _document(
    module: str, arguments: list[str], config: AgentLoopConfig, done: dict[str, list[Outcome]]
) -> JsonObject:
    return {
        "version": VERSION,
        "command": command_line(module, arguments),
        "recorded_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": config.model,
        "sets": {name: _summary(outcomes) for name, outcomes in done.items()},
    }


def _summary(outcomes: Sequence[Outcome]) -> JsonObject:
    shares = [share for outcome in outcomes for share in outcome.cached if share is not None]
    return {
        "right": sum(outcome.right for outcome in outcomes),
        "tasks": len(outcomes),
        "smallest_cached_share": min(shares, default=None),
        "outcomes": [{**asdict(outcome), "right": outcome.right} for outcome in outcomes],
    }
