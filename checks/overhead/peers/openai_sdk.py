"""The openai SDK with a hand-written loop, as its documentation shows."""

import json

import measure
from openai import OpenAI

TOOL = {"type": "function", "name": "read", "description": "Read a file.", "parameters": measure.SCHEMA}


def run(url: str, turns: int, size: int) -> str:
    client = OpenAI(base_url=f"{url}/v1", api_key="none")
    history = [{"role": "user", "content": measure.QUESTION}]
    while True:
        response = client.responses.create(
            model="scripted",
            instructions=measure.INSTRUCTIONS,
            input=history,
            tools=[{**TOOL, "strict": True}],
            parallel_tool_calls=False,
            store=False,
        )
        history += response.output
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return response.output_text
        for call in calls:
            result = measure.tool_result(json.loads(call.arguments)["path"], size)
            history.append({"type": "function_call_output", "call_id": call.call_id, "output": result})


if __name__ == "__main__":
    measure.main(run)
