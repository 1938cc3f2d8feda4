"""What a model may call: tools with schemas, carried out in a sandbox, with results shaped for a model.

    async with AsyncSandbox(policy) as box:
        toolbox = Toolbox(box, PYTHON, SHELL, READ_FILE)
        toolbox.schemas()                                      # for the model
        result = await toolbox.call("shell", {"command": "ls"})  # what it asked for
        result.text, result.status                             # for the model

Owns the shape of calls and results. Whether a call may be carried out is for the policy and for a `Gate`: `approvals`
has the one that asks people. What a model reads of it goes through `filters`. Must not know models or frameworks.
"""

from fumehood.tools.calls import Gate, GateAnswer, ToolCall
from fumehood.tools.changes import change_tools
from fumehood.tools.files import EDIT_FILE, LIST_FILES, READ_FILE, WRITE_FILE
from fumehood.tools.functions import Function, as_tools, tool
from fumehood.tools.ports import port_tools
from fumehood.tools.processes import process_tools
from fumehood.tools.result import LongText, ToolOutput, ToolResult, ToolStatus
from fumehood.tools.runs import PYTHON, SHELL
from fumehood.tools.tool import Risk, Tool, ToolContext, ToolSchema
from fumehood.tools.toolbox import Toolbox

STANDARD = (PYTHON, SHELL, READ_FILE, WRITE_FILE, EDIT_FILE, LIST_FILES)

__all__ = [
    "EDIT_FILE",
    "LIST_FILES",
    "PYTHON",
    "READ_FILE",
    "SHELL",
    "STANDARD",
    "WRITE_FILE",
    "Function",
    "Gate",
    "GateAnswer",
    "LongText",
    "Risk",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolOutput",
    "ToolResult",
    "ToolSchema",
    "ToolStatus",
    "Toolbox",
    "as_tools",
    "change_tools",
    "port_tools",
    "process_tools",
    "tool",
]
