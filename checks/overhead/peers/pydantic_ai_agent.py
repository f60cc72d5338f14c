"""pydantic-ai over the Responses protocol."""

import measure
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits


def run(url: str, turns: int, size: int) -> str:
    model = OpenAIResponsesModel("scripted", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"))
    agent = Agent(model, instructions=measure.INSTRUCTIONS)

    @agent.tool_plain
    def read(path: str) -> str:
        """Read a file.

        Args:
            path: path of the file
        """
        return measure.tool_result(path, size)

    return str(agent.run_sync(measure.QUESTION, usage_limits=UsageLimits(request_limit=turns + 1)).output)


if __name__ == "__main__":
    measure.main(run)
