"""Fumehood in Jupyter and IPython: a magic for single cells, and a kernel whose every cell runs in a sandbox.

%load_ext fumehood
%%hood --policy reader.yaml

session      the sandbox of a notebook: its session, its output as a notebook shows it
magic        `%%hood` and `%hood`
kernel       a Jupyter kernel; `kernelspec` installs it (`hood jupyter install`)
"""

from importlib.util import find_spec

if find_spec("IPython") is None or find_spec("ipykernel") is None:
    raise ImportError("fumehood.integrations.jupyter needs IPython and ipykernel: pip install 'fumehood[jupyter]'")

from fumehood.integrations.jupyter.session import CellOutput, NotebookSandbox

__all__ = ["CellOutput", "NotebookSandbox"]
