"""openai-agents, tracing off."""

import measure
from agents import (
    Agent,
    ModelSettings,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

set_tracing_disabled(True)


def run(url: str, turns: int, size: int) -> str:
    @function_tool
    def read(path: str) -> str:
        """Read a file.

        Args:
            path: path of the file
        """
        return measure.tool_result(path, size)

    model = OpenAIResponsesModel("scripted", AsyncOpenAI(base_url=f"{url}/v1", api_key="none"))
    settings = ModelSettings(parallel_tool_calls=False, store=False)
    agent = Agent(
        name="reader", instructions=measure.INSTRUCTIONS, model=model, tools=[read], model_settings=settings
    )
    return str(Runner.run_sync(agent, measure.QUESTION, max_turns=turns + 1).final_output)


if __name__ == "__main__":
    measure.main(run)
