"""An evaluation whose tools work in a Fumehood sandbox, one for each sample. The model is scripted, so that it runs
without a key; any other model takes its place with `model="openai/..."`.

Run with the path of a policy, or without for the one that has no network and no files of the host.
"""

import sys
import tempfile

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash, python

NAME = "mockllm/model"
SCRIPT = [
    ModelOutput.for_tool_call(NAME, "bash", {"command": "cat numbers.txt; cp numbers.txt /tmp; cat /etc/shadow"}),
    ModelOutput.for_tool_call(NAME, "python", {"code": "print(sum(int(line) for line in open('/tmp/numbers.txt')))"}),
    ModelOutput.from_content(NAME, "The sum is 42."),
]
for output in SCRIPT:
    output.usage = ModelUsage()  # without it Inspect counts tokens, with a table that it fetches

task = Task(
    dataset=[Sample(input="What is the sum?", target="42", files={"numbers.txt": "19\n23\n"})],
    solver=[use_tools(bash(timeout=20), python(timeout=20)), generate()],
    scorer=includes(),
    sandbox=("fumehood", sys.argv[1]) if sys.argv[1:] else "fumehood",
)

with tempfile.TemporaryDirectory() as folder:
    (log,) = eval(task, model=get_model(NAME, custom_outputs=SCRIPT), log_dir=folder, display="none")
    print(log.status, *(score.metrics["accuracy"].value for score in log.results.scores))
    for message in log.samples[0].messages:
        if message.role == "tool":
            print(f"{message.function}: {message.text.strip()}")
