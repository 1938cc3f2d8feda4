"""Ask, get a script and a result: an analyst's agent with a snapshot that it can only read: analyst.py FOLDER

It draws a picture too. The model is a script; put the name of a real one in its place.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from fumehood import Policy
from fumehood.agents import AssistantAgent, ScriptedModel, call
from fumehood.tools import PYTHON

HERE = Path(__file__).resolve().parent

LOAD = "import pandas as pd\nsales = pd.read_csv('/data/sales.csv')\nsales.groupby('region').units.sum()"
DRAW = """\
import os
import matplotlib.pyplot as plt
os.makedirs("out", exist_ok=True)
units = sales.groupby("region").units.sum()
units.to_csv("out/units.csv")
units.plot.bar(title="Units by region")
plt.savefig("out/units.png")
plt.show()"""
CHANGE = "sales.to_csv('/data/sales.csv')"
MODEL = ScriptedModel(
    ["I look at the data first.", call("python", code=LOAD)],
    call("python", code=DRAW),
    call("python", code=CHANGE),
    "The table is in out/units.csv, the picture in out/units.png. The snapshot itself cannot be changed.",
)


def make_agent(policy: Policy, folder: Path) -> AssistantAgent:
    return AssistantAgent("analyst", MODEL, tools=[PYTHON], policy=policy, session=True, out=folder)


async def main(folder: Path) -> None:
    policy = Policy.load(HERE.parent / "analyst" / "policy.yaml")
    result = await make_agent(policy, folder).run("How many units were sold in each region? Draw it.")
    print(result.text)
    for artifact in result.artifacts:
        print(f"{folder / artifact.path}: {artifact.media_type}, {artifact.size} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} FOLDER    (where the table and the picture go)")
    asyncio.run(main(Path(sys.argv[1])))
