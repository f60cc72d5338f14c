"""Step 2: the model is told of two tools and asks for one. Nothing is run yet (article, part 3)."""

from argparse import Namespace

from examples.common import (
    MAX_FILE_BYTES,
    UNFINISHED,
    check_whole,
    connect,
    run,
    show_call,
    show_text,
    user_item,
)
from packages.pi_ai import AgentRunError, output_text, parse_function_calls, response_output
from packages.pi_coding_agent.tools import ProjectFiles, create_project_tools


def step(args: Namespace) -> str:
    """Send the declarations of the tools, print the request that comes back."""
    client, config = connect(args)
    with ProjectFiles(args.project, MAX_FILE_BYTES) as files:
        schemas = [tool.schema() for tool in create_project_tools(files)]
    response = client.create(
        {
            "model": config.model,
            "instructions": config.instructions,
            "tools": schemas,
            "tool_choice": "auto",
            "parallel_tool_calls": False,
            "store": False,
            **config.request_options,
            "input": [user_item(args.question)],
        }
    )
    output = response_output(response)
    check_whole(response, output, config)
    calls = parse_function_calls(output)
    text = output_text(output, response)
    if text:
        show_text(1, text)
    if not calls:
        raise AgentRunError("模型没有请求工具。请检查服务器的 chat template 或 tool parser，或换一个模型。")
    for call in calls:
        show_call(1, call)
    print("\n程序只展示请求，还没有执行它。")
    return UNFINISHED


if __name__ == "__main__":
    raise SystemExit(run(step))
