"""Project files as tools. Knows no loop and no HTTP."""

from .tools import ProjectFiles, create_project_tools

__all__ = ["ProjectFiles", "create_project_tools"]
