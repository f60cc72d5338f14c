"""smolagents' ToolCallingAgent; it speaks Chat Completions."""

import logging

import measure
from smolagents import OpenAIModel, ToolCallingAgent, tool

logging.disable(logging.CRITICAL)


def run(url: str, turns: int, size: int) -> str:
    @tool
    def read(path: str) -> str:
        """Read a file.

        Args:
            path: path of the file
        """
        return measure.tool_result(path, size)

    model = OpenAIModel("scripted", api_base=f"{url}/v1", api_key="none")
    agent = ToolCallingAgent(tools=[read], model=model, max_steps=turns + 1, verbosity_level=0)
    return str(agent.run(measure.QUESTION))


if __name__ == "__main__":
    measure.main(run)
