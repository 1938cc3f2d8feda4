"""What is taken out of texts on their way to and from a model, as `filters` in a policy says.

    pipeline     the order of things, and what is done about a find
    invisible, tokens, mentions     what is looked for, beside known values (`fumehood.secret_scan`)
    streams      text that comes in pieces

    pipeline = Pipeline(policy, trail=trail)
    filtered = await pipeline.apply(text, Direction.TOOL_RESULT)

Not a boundary: an attacker who controls a text can encode it in a way that is not looked for. The sandbox keeps
secrets out of reach; this keeps those that are in reach by mistake from being passed on as they are.
"""

from fumehood.secret_scan.canaries import CanaryAlert, CanaryWatch, make_canary
from fumehood.tools.filters.pipeline import Act, Direction, Filtered, Pipeline
from fumehood.tools.filters.streams import FilterStream

__all__ = ["Act", "CanaryAlert", "CanaryWatch", "Direction", "FilterStream", "Filtered", "Pipeline", "make_canary"]
