"""This library, used as README.md shows."""

import measure

from packages.pi_agent import AgentLoopConfig, AgentTool, run_agent
from packages.pi_ai import ResponsesClient


def run(url: str, turns: int, size: int) -> str:
    tool = AgentTool(
        "read", "Read a file.", measure.SCHEMA, lambda call: measure.tool_result(call["path"], size)
    )
    config = AgentLoopConfig("scripted", measure.INSTRUCTIONS, max_turns=turns)
    client = ResponsesClient(url, api_key=None, timeout=120)
    return run_agent(client, [tool], config, measure.QUESTION)


if __name__ == "__main__":
    measure.main(run)
