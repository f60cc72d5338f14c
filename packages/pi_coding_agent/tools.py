"""The two tools that let a model find a file and read it, bound to one ProjectFiles."""

from __future__ import annotations

from collections.abc import Callable

from ..pi_agent import AgentTool
from .project_files import ProjectFiles

__all__ = ["ProjectFiles", "create_project_tools"]

# What the model is told. These texts decide how well it does: measure every change to them.
LIST_FILES = (
    "列出一个目录里的文件和子目录。还不知道文件名时先用它。"
    "返回的路径可以直接交给 read_file；以 / 结尾的是子目录。"
)
LIST_FILES_PATH = "相对于项目根目录的目录路径，例如 reports；根目录用 ."
READ_FILE = "读取项目中一个 UTF-8 文本文件的内容。path 必须是 list_files 返回过的路径。"
READ_FILE_PATH = "相对于项目根目录的文件路径"
EMPTY_FILE = "（文件 {path} 是空的）"


def create_project_tools(files: ProjectFiles) -> list[AgentTool]:
    """list_files and read_file over files, which has to be open whenever they are used. An empty file is
    said in words: no output at all looks to a model like a tool that did nothing."""

    def read_file(path: str) -> str:
        return files.read_file(path) or EMPTY_FILE.format(path=path)

    return [
        _tool("list_files", LIST_FILES, LIST_FILES_PATH, files.list_files),
        _tool("read_file", READ_FILE, READ_FILE_PATH, read_file),
    ]


def _tool(name: str, description: str, path: str, function: Callable[[str], str]) -> AgentTool:
    properties = {"path": {"type": "string", "minLength": 1, "description": path}}
    schema = {"type": "object", "properties": properties, "required": ["path"], "additionalProperties": False}
    return AgentTool(name, description, schema, lambda arguments: function(arguments["path"]))
