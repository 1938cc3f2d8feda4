"""`hood logout`: sandboxes are this machine's again."""

from __future__ import annotations

import argparse

from fumehood.cli.arguments import Parser
from fumehood.remote.login import login_file, remove_login

_DETAILS = "The key itself stays in force: `hood key revoke` at the server ends it.\n"


def build_parser() -> argparse.ArgumentParser:
    return Parser(prog="hood logout", description="Forget the server of `hood login` and the key.", epilog=_DETAILS)


def execute(arguments: list[str]) -> int:
    build_parser().parse_args(arguments)
    print(f"{login_file()}: removed" if remove_login() else "there was no login")
    return 0
