"""`hood agent VERB`: a model works on a task, and what it wants done is done in a sandbox.

`options` reads the command line, `renderers` show events, `tasks` runs tasks and handles signals.
"""

from __future__ import annotations

import argparse

from fumehood.cli.agent.options import Arguments, add_options
from fumehood.cli.arguments import Parser

_DETAILS = """\
Without --model it is $FUMEHOOD_MODEL, else one of a provider whose key is set
(ANTHROPIC_API_KEY, OPENAI_API_KEY). Models are named so:
  anthropic:claude-sonnet-5, openai:gpt-5, ...  whatever pydantic-ai knows
  ollama:qwen3                                  a server on this machine
  llama-3@http://127.0.0.1:8080/v1              any server that speaks OpenAI's
                                                protocol ($FUMEHOOD_MODEL_KEY)
  record:FILE:MODEL, replay:FILE, scripted:FILE recordings and scripts
exit code: 0 when the task is done, 1 when it ended for another reason.
"""


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="hood agent", description="Give a task to a model whose code runs in a sandbox.")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    run = verbs.add_parser("run", help="one task", description="Work on one task.", epilog=_DETAILS)
    run.add_argument("task", metavar="TASK", help="what to do; `-` reads it from standard input")
    run.set_defaults(verb="run")
    chat = verbs.add_parser("chat", help="a conversation", description="One task after the other.", epilog=_DETAILS)
    chat.set_defaults(verb="chat", task="")
    resume = verbs.add_parser(
        "resume", help="go on with a paused task", description="Go on with a task that waited for an approval."
    )
    resume.set_defaults(verb="resume", task="")
    for verb in (run, chat, resume):
        verb.formatter_class = argparse.RawDescriptionHelpFormatter
        add_options(verb)
    return parser


def execute(arguments: list[str]) -> int:
    chosen = build_parser().parse_args(arguments, namespace=Arguments())
    from fumehood.cli.agent import tasks

    return tasks.run_tasks(chosen)
