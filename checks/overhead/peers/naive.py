"""The loop that anyone would write first: json.dumps of everything, urlopen for each request."""

import json
import urllib.request

import measure

TOOL = {"type": "function", "name": "read", "description": "Read a file.", "parameters": measure.SCHEMA}


def run(url: str, turns: int, size: int) -> str:
    history = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": measure.QUESTION}]}
    ]
    while True:
        payload = {
            "model": "scripted",
            "instructions": measure.INSTRUCTIONS,
            "input": history,
            "tools": [{**TOOL, "strict": True}],
            "tool_choice": "auto",
            "parallel_tool_calls": False,
            "store": False,
        }
        request = urllib.request.Request(
            f"{url}/v1/responses", json.dumps(payload).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            response = json.load(answer)
        history += response["output"]
        calls = [item for item in response["output"] if item["type"] == "function_call"]
        if not calls:
            return str(response["output"][0]["content"][0]["text"])
        for call in calls:
            arguments = json.loads(call["arguments"])
            result = measure.tool_result(arguments["path"], size)
            history.append({"type": "function_call_output", "call_id": call["call_id"], "output": result})


if __name__ == "__main__":
    measure.main(run)
