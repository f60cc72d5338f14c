"""Step 3: run one batch of calls by hand and hand the results back (article, part 4).

Watch the history: first what the model said, then what the program did, paired by call_id.
"""

from argparse import Namespace

from examples.common import (
    MAX_FILE_BYTES,
    UNFINISHED,
    check_whole,
    connect,
    run,
    show_call,
    show_result,
    show_text,
    user_item,
)
from packages.pi_agent import ToolResult
from packages.pi_ai import AgentRunError, JsonObject, output_text, parse_function_calls, response_output
from packages.pi_coding_agent.tools import ProjectFiles, create_project_tools


def step(args: Namespace) -> str:
    """Two requests, and between them the calls of the first one."""
    client, config = connect(args)
    with ProjectFiles(args.project, MAX_FILE_BYTES) as files:
        tools_by_name = {tool.name: tool for tool in create_project_tools(files)}
        history: list[JsonObject] = [user_item(args.question)]
        request = {
            "model": config.model,
            "instructions": config.instructions,
            "tools": [tool.schema() for tool in tools_by_name.values()],
            "tool_choice": "auto",
            "parallel_tool_calls": False,
            "store": False,
            **config.request_options,
            "input": history,
        }

        response = client.create(request)
        output = response_output(response)
        check_whole(response, output, config)
        calls = parse_function_calls(output)

        # First keep what the model put out, its calls included.
        history.extend(output)

        text = output_text(output, response)
        if calls and text:
            show_text(1, text)
        for call in calls:
            show_call(1, call)
            tool = tools_by_name.get(call.name)
            result = (
                tool.execute(call.arguments)
                if tool is not None
                else ToolResult(f"未知工具：{call.name}", is_error=True)
            )
            show_result(result)

            # Then pair each result with the call that asked for it.
            history.append(
                {"type": "function_call_output", "call_id": call.call_id, "output": result.content}
            )

        if calls:
            response = client.create(request)
            output = response_output(response)
            check_whole(response, output, config)
            history.extend(output)

    turn = 2 if calls else 1
    text = output_text(output, response)
    if text:
        show_text(turn, text)
    more_calls = parse_function_calls(output)
    for call in more_calls:
        show_call(turn, call)
    if more_calls:
        print(f"\n{UNFINISHED}")
        return UNFINISHED
    if not text.strip():
        raise AgentRunError("模型既没有返回文本，也没有调用工具。请重试，或检查模型服务。")
    return text


if __name__ == "__main__":
    raise SystemExit(run(step))
