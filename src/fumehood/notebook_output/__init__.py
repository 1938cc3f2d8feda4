"""What a sandbox showed, in the form of notebooks, and such that no viewer executes or fetches anything of it.

A notebook that was just executed is trusted by its viewer: HTML in it runs scripts with the rights of the person who
looks at it, which for Jupyter are those over a machine. An image from elsewhere carries data out, past every network
rule. So only what is known to be harmless stays, whoever shows it: `hood run x.ipynb`, the magic and the kernel.

    streams  the events of a cell, for whatever shows or keeps its output
    bundle   a display as a bundle of media types; a failed run as the error of a cell
    html     HTML of which tables, texts and embedded pictures are left
"""

from __future__ import annotations

from fumehood.notebook_output.bundle import CellError, cell_error, media_bundle
from fumehood.notebook_output.streams import CellOutput, CellStreams

__all__ = ["CellError", "CellOutput", "CellStreams", "cell_error", "media_bundle"]
