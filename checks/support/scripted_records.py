"""Records as --record writes them, of the real steps run on a scripted model: what checks of records begin with."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import shlex
from collections.abc import Callable
from functools import partial
from unittest import mock

from checks.support.harness import JsonObject, ScriptedModel, call, message, response
from examples import common
from packages.pi_agent import AgentLoopConfig, Conversation
from packages.pi_ai import MiniPiError
from packages.pi_coding_agent.tools import ProjectFiles, create_project_tools
from packages.qianchat import connection
from packages.qianchat.record import Recorder, command_line
from packages.qianchat.server.local_qwen import LOCAL_MODEL

PATH = "reports/daily-2026-09-06.json"
ANSWER = "这份日报的日期是2026年9月6日，订单数为128，营收为9,600元。"


def usage(turn: int) -> JsonObject:
    """What llama-server reports, growing from turn to turn."""
    cached = {"cached_tokens": 380 * (turn - 1)}
    return {"input_tokens": 400 * turn, "output_tokens": 20, "total_tokens": 400 * turn + 20} | {
        "input_tokens_details": cached
    }


def list_turn(turn: int = 1) -> JsonObject:
    """The model asks for the listing."""
    return response(call("list_files", {"path": "reports"}, f"call_{turn}a"), usage=usage(turn))


def read_turn(turn: int = 2) -> JsonObject:
    """The model asks for the file."""
    return response(call("read_file", {"path": PATH}, f"call_{turn}b"), usage=usage(turn))


def answer_turn(text: str = ANSWER, turn: int = 3) -> JsonObject:
    """The model answers."""
    return response(message(text), usage=usage(turn))


STEPS: dict[str, tuple[str, list[str], list[JsonObject]]] = {
    "step01_model_call-daily": ("step01_model_call", [], [answer_turn("请提供日报的内容。", 1)]),
    "step02_tool_request-daily": ("step02_tool_request", [], [list_turn()]),
    "step03_one_round-daily": ("step03_one_round", [], [list_turn(), read_turn()]),
    "step04_agent_loop-daily": ("step04_agent_loop", [], [list_turn(), read_turn(), answer_turn()]),
    "step05_required_tool-daily": ("step05_required_tool", [], [list_turn(), read_turn(), answer_turn()]),
    "max-turns-2": ("step04_agent_loop", ["--max-turns", "2"], [list_turn(), read_turn()]),
}


def step_record(name: str) -> JsonObject:
    """The record evidence/NAME.json of a step, from a scripted model instead of a real one."""
    module, flags, script = STEPS[name]
    arguments = ["--local-qwen", *flags, "--record", f"evidence/{name}.json"]
    step = importlib.import_module(f"examples.{module}").step
    args = common.options(arguments)
    config = connection.connect(args.max_turns)[1]
    with (
        ScriptedModel(*script) as model,
        mock.patch.object(connection, "connect", lambda max_turns: (model, config)),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        outcome = outcome_of(lambda: step(args))
    return as_json(args.recorder.document(command_line(f"examples.{module}", arguments), outcome))


def chat_record(*script: JsonObject, questions: tuple[str, ...] = (), name: str = "chat-daily") -> JsonObject:
    """The record of a chat: by default two questions, the second answered from what was read for the first."""
    questions = questions or (common.QUESTION, "平均每单多少元？")
    script = script or (list_turn(), read_turn(), answer_turn(), answer_turn("平均每单 75 元。", 4))
    config = AgentLoopConfig(LOCAL_MODEL, connection.INSTRUCTIONS, stream=True)
    runs = []
    with ScriptedModel(*script) as model, ProjectFiles(common.SAMPLE_PROJECT, 32 * 1024) as files:
        recorder = Recorder(model)
        chat = Conversation(recorder, create_project_tools(files), config)
        runs = [{"question": each, **outcome_of(partial(chat.ask, each))} for each in questions]
    failed = [run["status"] for run in runs if run["status"] != "answered"]
    outcome = {"status": (failed or ["answered"])[0], "text": runs[-1].get("text"), "runs": runs}
    command = f"python3 -m packages.qianchat chat --project sample_project --record evidence/{name}.json"
    asked = " ".join(map(shlex.quote, questions))
    return as_json(recorder.document(f"printf '%s\\n' {asked} | {command}", outcome))


def outcome_of(run: Callable[[], str]) -> JsonObject:
    """How a run ended, in the words of examples.common."""
    try:
        text = run()
    except MiniPiError as error:
        return {"status": "failed", "error": str(error), "kind": type(error).__name__}
    return {"status": "unfinished" if text == common.UNFINISHED else "answered", "text": text}


def as_json(document: JsonObject) -> JsonObject:
    """The document as it is read back from its file."""
    parsed: JsonObject = json.loads(json.dumps(document, ensure_ascii=False))
    return parsed
