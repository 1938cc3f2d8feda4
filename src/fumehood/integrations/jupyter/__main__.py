"""What a kernelspec starts: `python -P -m fumehood.integrations.jupyter FILE [POLICY]`."""

from __future__ import annotations

import sys

from fumehood.integrations.jupyter.kernel import serve

if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2] if sys.argv[2:] else None)
