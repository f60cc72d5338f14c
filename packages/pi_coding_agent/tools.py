"""The two tools that let a model find a file and read it, bound to one ProjectFiles."""

from __future__ import annotations

from ..pi_agent import AgentTool
from .project_files import ProjectFiles

__all__ = ["ProjectFiles", "create_project_tools"]

# What the model is told. These texts decide how well it does: measure a change (checks.model_tasks).
LIST_FILES = "列出一个目录里的文件和子目录。还不知道文件名时先用它。返回的路径可以直接交给 read_file，以 / 结尾的是目录。"
LIST_FILES_PATH = "相对于项目根目录的目录路径，例如 reports；根目录用 ."
READ_FILE = "读取项目中一个 UTF-8 文本文件的内容。path 必须是 list_files 返回过的路径。"
READ_FILE_PATH = "相对于项目根目录的文件路径"
EMPTY_FILE = "（文件 {path} 是空的，没有内容）"


def create_project_tools(files: ProjectFiles) -> list[AgentTool]:
    """list_files and read_file over files, which must be open while they are used.

    Both take one path relative to the project's root and fail with a ToolError. To a model no output at
    all looks like a tool that did nothing, so an empty file is said in words.
    """
    return [
        AgentTool(
            "list_files", LIST_FILES, _path(LIST_FILES_PATH), lambda args: files.list_files(args["path"])
        ),
        AgentTool(
            "read_file",
            READ_FILE,
            _path(READ_FILE_PATH),
            lambda args: files.read_file(args["path"]) or EMPTY_FILE.format(path=args["path"]),
        ),
    ]


def _path(description: str) -> dict[str, object]:
    return {
        "type": "object",
        "properties": {"path": {"type": "string", "minLength": 1, "description": description}},
        "required": ["path"],
        "additionalProperties": False,
    }
