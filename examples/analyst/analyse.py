"""A session for an analyst, or for the model that writes the analysis: python examples/analyst/analyse.py FOLDER

Loads a snapshot, aggregates, plots, and brings a table and a picture out. Then tries what it must not do.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fumehood import Policy, Sandbox

HERE = Path(__file__).resolve().parent

STEPS = [
    "import pandas as pd\nsales = pd.read_csv('/data/sales.csv', parse_dates=['day'])\nsales.head(3)",
    "sales['revenue'] = sales.units * sales.price\nby_region = sales.groupby('region').revenue.sum()\nby_region",
    "import matplotlib.pyplot as plt\nby_region.plot.bar(title='Revenue by region')\nplt.show()",
    (
        "import os\nos.makedirs('out', exist_ok=True)\nby_region.round(2).to_csv('out/revenue.csv')\n"
        "by_region.plot.bar().figure.savefig('out/revenue.png')\nplt.close('all')"
    ),
]
FORBIDDEN = [
    "open('/data/sales.csv', 'a')",
    "import socket\nsocket.create_connection(('203.0.113.10', 443))",
    "open('/etc/shadow')",
]


def main(folder: Path) -> None:
    with Sandbox(Policy.load(HERE / "policy.yaml"), progress=print) as box, box.session() as session:
        for source in STEPS:
            result = session.run(source)
            print(result.stderr, end="")
            for display in result.displays:
                print(display.data["text/plain"], *(kind for kind in display.data if kind != "text/plain"), sep="\n  ")
            for artifact in result.artifacts:
                box.files.download(artifact.path, folder / Path(artifact.path).name)
                print(f"{artifact.path}: {artifact.media_type}, {artifact.size} bytes, sha256 {artifact.sha256[:12]}")
        for source in FORBIDDEN:
            print(source.splitlines()[-1], "->", session.run(source).stderr.splitlines()[-1])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} FOLDER    (where the table and the picture go)")
    main(Path(sys.argv[1]))
