"""`hood login`: from now on this user's sandboxes are at a server."""

from __future__ import annotations

import argparse
import getpass
import os
import sys

from fumehood.cli.arguments import Parser
from fumehood.cli.output import say
from fumehood.cli.whoami import in_words
from fumehood.errors import UsageError
from fumehood.remote.login import FILE_VARIABLE, KEY_VARIABLE, URL_VARIABLE, Login, write_login

_DETAILS = f"""\
The key is asked for without showing it, or read from standard input if that is
no terminal. The server has to accept it; then it is stored in the user's config
folder (${FILE_VARIABLE} names another file), which only the user can read. Every
command and program then opens its sandboxes at the server. ${URL_VARIABLE} and
${KEY_VARIABLE} win over it; {URL_VARIABLE}= (empty) means this machine.
"""
_MOST_KEY_BYTES = 4096


class Arguments(argparse.Namespace):
    url: str
    ca_file: str | None


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="hood login", description="Open sandboxes at a server from now on.", epilog=_DETAILS)
    parser.add_argument("url", metavar="URL", help="the server, such as https://hood.example")
    parser.add_argument("--ca-file", metavar="FILE", help="certificates of a private authority")
    return parser


def execute(arguments: list[str]) -> int:
    chosen = build_parser().parse_args(arguments, namespace=Arguments())
    from fumehood.remote.server import Server

    ca_file = None if chosen.ca_file is None else os.path.abspath(chosen.ca_file)
    Server(chosen.url, "", ca_file)  # which says what is wrong with them, before a key is typed
    key = _ask_for_key(chosen.url)
    server = Server(chosen.url, key, ca_file)
    who = server.whoami()
    path = write_login(Login(server.url, key, ca_file))
    print(in_words(server.url, who))
    say(f"stored in {path}; `hood logout` removes it")
    return 0


def _ask_for_key(url: str) -> str:
    if os.isatty(0):
        key = getpass.getpass(f"Key for {url}: ")
    else:
        key = sys.stdin.read(_MOST_KEY_BYTES)
    if not key.strip():
        raise UsageError("there is no key; `hood key create TENANT` makes one at the server")
    return key.strip()
