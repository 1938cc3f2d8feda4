"""Source code in every shape that a model or an editor may leave it in."""

from __future__ import annotations

import codecs
from collections.abc import Callable

import pytest

from fumehood import Cause, Sandbox, Status, UsageError

pytestmark = pytest.mark.one_container

FINE = {
    "text": ("print('grüße 日本 🎉')", "grüße 日本 🎉\n"),
    "bytes": ("print('grüße')".encode(), "grüße\n"),
    "a byte order mark": (codecs.BOM_UTF8 + b"print('marked')", "marked\n"),
    "a utf-8 cookie": ("# -*- coding: utf-8-unix -*-\nprint('grüße')\n", "grüße\n"),
    "a cookie that changes nothing": ("#!/usr/bin/python3\n# coding: latin-1\nprint(1)\n", "1\n"),
    "no cookie, which comes too late": ("print('a')\n# coding: utf-7\n# +AAo-print('hidden')\n", "a\n"),
    "no cookie, which is no comment": ("f = dict(coding=1)  # coding: x\nprint(f)", "{'coding': 1}\n"),
    "Windows line ends": ("if True:\r\n    print('crlf')\r\nprint('''a\r\nb''')\r\n", "crlf\na\nb\n"),
    "old Macintosh line ends": (b"print(1)\rprint(2)\r", "1\n2\n"),
    "no last newline": ("if True:\n    print('end')", "end\n"),
    "a form feed": ("\x0cprint('page')", "page\n"),
    "nothing": ("", ""),
    "blank lines": ("\n\n   \n", ""),
    "unicode names": ("größe = 1\nprint(größe)", "1\n"),
}
HIDDEN = "# tidy +AAo-print('hidden')\nprint('shown')\n"
BROKEN = {
    "code in a comment": f"# coding: utf-7\n{HIDDEN}",
    "code in a comment, declared in line 2": f"#!/usr/bin/python3\n#coding=UTF_7\n{HIDDEN}",
    "code in a comment, after an empty line of another kind": f"\r# vim: set fileencoding=utf-7 :\r{HIDDEN}",
    "code in a comment, after a byte order mark": codecs.BOM_UTF8 + f"# coding: utf-7\n{HIDDEN}".encode(),
    "code in a comment, with escapes": "# coding: unicode_escape\n# tidy \\nprint('hidden')\nprint('shown')\n",
    "a name that a rule does not know": "# coding: utf-7\nimport+ACA-os; print(os.getpid())\n",
    "latin-1": "# -*- coding: latin-1 -*-\nprint('grüße')\n".encode("latin-1"),
    "text that would be another one in latin-1": "# coding: latin-1\nprint('grüße')\n",
    "invalid UTF-8": b"print('\xff\xfe')\n",
    "UTF-16": "print(1)".encode("utf-16-be").replace(b"\0", b"\x01"),
    "an unknown encoding": b"# coding: nonsense\nprint(1)\n",
    "a lone surrogate": "print('\ud800')",
    "a binary": b"\x7fELF\x02\x01\x01" + bytes(range(1, 256)),
}


@pytest.mark.some_parameters
@pytest.mark.parametrize(("source", "stdout"), FINE.values(), ids=FINE.keys())
def test_source_that_python_takes_runs(box: Sandbox, source: str | bytes, stdout: str) -> None:
    result = box.run(source)
    assert (result.stdout, result.stderr, result.status) == (stdout, "", Status.SUCCESS)


@pytest.mark.some_parameters
@pytest.mark.parametrize("source", BROKEN.values(), ids=BROKEN.keys())
def test_source_that_python_refuses_is_a_syntax_error(box: Sandbox, source: str | bytes) -> None:
    result = box.run(source)
    assert (result.status, result.cause, result.exit_code, result.stdout) == (Status.ERROR, Cause.EXIT, 1, "")
    assert "SyntaxError" in result.stderr
    assert "fumehood" not in result.stderr


@pytest.mark.parametrize("source", ["print(1)\n\0", b"\0", "x = '\0'"])
def test_a_nul_byte_is_the_callers_mistake(box: Sandbox, source: str | bytes) -> None:
    with pytest.raises(UsageError, match="NUL byte in line"):
        box.run(source)


def test_five_megabytes_of_source_run(box: Sandbox) -> None:
    line = "x = 1  # " + "padding " * 100 + "\n"
    source = line * (5 * 1024 * 1024 // len(line) + 1) + "print('end')\n"
    assert box.run(source, timeout=30).stdout == "end\n"


def test_five_megabytes_of_shell_script_run(box: Sandbox) -> None:
    source = ("# " + "padding " * 100 + "\n") * 6500 + "echo end\n"
    assert box.run(source, language="sh").stdout == "end\n"


def test_source_beyond_all_reason_is_refused(box: Sandbox) -> None:
    with pytest.raises(UsageError, match="more than 32M"):
        box.run(b" " * (32 * 1024 * 1024 + 1))


def test_source_that_does_not_fit_on_the_disk_is_told_so(open_box: Callable[..., Sandbox]) -> None:
    box = open_box(resources={"disk": "64K"})
    try:
        said = box.run("#" * 256 * 1024 + "\nprint('ran')").detail
    except UsageError as error:
        said = str(error)
    assert "resources.disk" in said


def test_the_line_number_of_an_error_counts_windows_line_ends_once(box: Sandbox) -> None:
    assert 'File "/run/main.py", line 3' in box.run("x = 1\r\ny = 2\r\n1 / 0\r\n").stderr


def test_from_future_imports_work_and_ours_do_not_leak(box: Sandbox) -> None:
    source = "def f(x: undefined): pass"
    assert "NameError" in box.run(source).stderr
    assert box.run("from __future__ import annotations\n" + source).ok


def test_an_unknown_language_names_those_that_exist(box: Sandbox) -> None:
    with pytest.raises(UsageError, match=r"unknown language 'perl'; available: .*python.*sh.*bash"):
        box.run("print 1", language="perl")


WHERE_AM_I = "import os, sys\nimport neighbour\nprint(__file__, sys.argv[0], sys.path[0], os.getcwd())\n1 / 0\n"


def test_a_script_that_lies_in_the_workspace_finds_itself_there(box: Sandbox) -> None:
    box.files.write("sub/neighbour.py", "")
    box.files.write("sub/script.py", WHERE_AM_I)
    result = box.run(WHERE_AM_I, name="/workspace/sub/script.py")
    assert result.stdout == "/workspace/sub/script.py /workspace/sub/script.py /workspace/sub /workspace\n"
    assert 'File "/workspace/sub/script.py", line 4' in result.stderr
    box.files.write("script.sh", "echo $0")
    assert box.run("echo $0", language="sh", name="/workspace/script.sh").stdout == "/workspace/script.sh\n"
