"""No line writes a file that a rule lets be run, puts another in its place, or runs another of the same name."""

from __future__ import annotations

import pytest

from fumehood.policy import Commands
from fumehood.policy.commands import judge, judge_argv


def allows(line: str, *rules: str, cwd: str = "") -> bool:
    return judge(Commands(allow=rules), line, cwd=cwd).allowed


@pytest.mark.parametrize(
    ("rule", "file"),
    [
        *(("bash build.sh", "build.sh"), ("bash -e build.sh", "build.sh"), ("bash -x -e build.sh", "build.sh")),
        *(
            ("sh build", "build"),
            ("python3 -u main.py", "main.py"),
            ("python3.11 tool", "tool"),
            ("python tool", "tool"),
            ("perl -w x.pl", "x.pl"),
        ),
        *(("node --test t.js", "t.js"), ("deno run main.ts", "main.ts"), ("go run main.go", "main.go")),
        *(("uv run main.py", "main.py"), ("npx ts-node main.ts", "main.ts"), ("make -f build.mk", "build.mk")),
        *(("make -fbuild.mk", "build.mk"), ("make -sfbuild.mk", "build.mk"), ("make --file=build.mk", "build.mk")),
        *(
            ("awk -f prog", "prog"),
            ("sed -f script", "script"),
            ("make -f rules all", "rules"),
            ("sed -nfscript", "script"),
        ),
        *(
            ("gdb -batch -x cmds", "cmds"),
            ("make --file=rules", "rules"),
            ("make -skfrules", "rules"),
            ("awk -fprog", "prog"),
        ),
        *(
            ("curl -K cfg", "cfg"),
            ("wget -i urls", "urls"),
            ("pip install -r wanted", "wanted"),
            ("gawk -E prog", "prog"),
        ),
        *(("curl --config=cfg", "cfg"), ("gcc -T layout", "layout"), ("tar -I packer", "packer")),
        *(("make --makefile rules", "rules"), ("just --justfile tasks", "tasks"), ("psql -f dump", "dump")),
        *(
            ("gdb --command=cmds", "cmds"),
            ("vim -S session", "session"),
            ("mvn -f pom all", "pom"),
            ("tox -c ini", "ini"),
        ),
        *(("sed -f s.sed", "s.sed"), ("awk -f p.awk", "p.awk"), ("source env.sh", "env.sh"), (". env", "env")),
        *(("bash -c ./t.sh", "t.sh"), ("bash -c 'cd x && ./t.sh a'", "t.sh"), ("git rebase -x ./t.sh", "t.sh")),
        *(("find -exec ./t.sh", "t.sh"), ("tar --to-command=./x.sh", "x.sh"), ("gcc @opts.txt", "opts.txt")),
        *(("pip install -r requirements.txt", "requirements.txt"), ("mytool in.cfg", "in.cfg")),
        *(("bash scripts/*.sh", "scripts/q.sh"), ("docker compose -f c.yml up", "c.yml"), ("./run.py a.cfg", "a.cfg")),
    ],
)
def test_every_file_that_a_rule_names_is_protected_wherever_it_stands(rule: str, file: str) -> None:
    lines = (
        f"echo id > {file}",
        f"tee {file}",
        f"cp x {file}",
        f"mv x {file}",
        f"mkdir {file}",
        f"sed -i s/a/b/ {file}",
    )
    for line in (
        *lines,
        f"cp sub/{file} .",
        f"ln -s x {file}",
        f"git clone x {file}",
        f"curl -o {file} https://a.example",
    ):
        assert allows(line, "*"), line
        assert not allows(line, "*", rule), line
    assert allows("echo a > other.txt; mkdir -p lib; cp a.txt b.txt; cp -r src dst; mv a.txt b.txt", "*", rule)


def test_words_that_start_nothing_are_not_protected() -> None:
    rules = (
        "cat notes.txt",
        "sort -o out.txt",
        "git diff main..dev",
        "python -m pytest",
        "npm run test*",
        "go test ./...",
        "pytest -x tests",
        "npm install -f tests",
        "cargo build -p tests",
        "sort -f tests",
        "docker logs -f tests",
    )
    for line in ("echo a > notes.txt", "tee out.txt", "echo a > test_x.py", "mkdir tests", "tar xf a.tar"):
        assert allows(line, "*", *rules), line


@pytest.mark.parametrize(
    "line",
    [
        *(
            "sed -i.sh s/a/b/ build",
            "sed -i.sh -e s/a/b/ x build",
            "sed --in-place=.sh s/a/b/ build",
            "sed -n -i.py p main",
        ),
        *("gcc x.c", "gcc -c x.c y.c && gcc x.o y.o", "bunzip2 a", "bunzip2 -k ./a", "gunzip lib.tgz", "zip archive x"),
        *("split -l 1 x build", "split --additional-suffix=.sh x bu", "csplit -f build.s x 1", "split x", "csplit x 1"),
        *("tar xf a.tar", "tar xf a.tar -C lib", "tar --extract --file=a.tar", "unzip a.zip", "unzip a.zip -d lib"),
        *("cp -r sub/. lib", "cp -rT sub lib", "rsync -a sub/ lib/", "cp -a . lib"),
        *("mv backup scripts", "mv backup scripts/", "cp -r backup scripts/", "cp -r sub/scripts .", "ln -s x scripts"),
        *(
            "git clone https://a.example/scripts.git",
            "git clone a:b/scripts",
            "git clone x scripts",
            "git mv lib scripts",
        ),
        *(
            "mkdir main.py",
            "mkdir -p main.py/",
            "find . -name 'b*.py' -exec sed -i s/a/b/ {} +",
            "git format-patch -1 HEAD",
        ),
    ],
)
def test_no_tool_makes_such_a_file_by_itself(line: str) -> None:
    named = (
        "./build.sh",
        "python3 main.py",
        "bash scripts/x.sh",
        "./a.out",
        "./lib.tar",
        "./archive.zip",
        "./xaa",
        "./xx00",
    )
    assert allows(line, "*", "gcc")
    assert not allows(line, "*", "gcc", *named, "bash big.py", "./0001-x.patch")


def test_ordinary_lines_stay_allowed_where_a_rule_names_a_file() -> None:
    for line in (
        *(
            "gcc -o prog x.c",
            "gcc -c x.c",
            "bunzip2 -k a.bz2",
            "split -l 100 big.txt part_",
            "tar xOf a.tar",
            "tar tf a.tar",
        ),
        *("unzip -l a.zip", "cp a.txt scripts/", "mkdir -p scripts", "find . -name '*.txt' -exec sed -i 's/a/b/' {} +"),
        *(
            "sed -i.bak s/a/b/ notes.txt",
            "cp -r src dst",
            "git clone https://a.example/other",
            "git format-patch -1 HEAD",
        ),
        *("touch $(date +%F).log", "tee log-$(date +%F)", "echo a > scripts/notes.txt", "csplit -f part_ x 1"),
    ):
        decision = judge(Commands(allow=("*", "./build.sh", "bash scripts/x.sh")), line)
        assert decision.allowed, (line, str(decision))


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        *(
            ("bash build.sh", "bash build.sh"),
            ("bash -e build.sh", "bash -e build.sh"),
            ("source env.sh", "source env.sh"),
        ),
        *(
            ("python3 tool.py", "python3 tool.py -v"),
            ("make -f build.mk", "make -f build.mk"),
            ("./build.sh", "./build.sh"),
        ),
        *(("awk -f prog", "awk -f prog x"), ("make -f rules all", "make -f rules all")),
        *(("uv run main.py", "uv run main.py"), ("awk -f p.awk", "awk -f p.awk x"), ("node .", "node .")),
    ],
)
def test_a_rule_with_a_relative_file_is_for_the_folder_where_the_sandbox_starts(rule: str, line: str) -> None:
    assert allows(line, "*", rule)
    assert allows(line, "*", rule, cwd="/workspace")
    for cwd in ("sub", "/tmp", "..", ".git"):
        assert not allows(line, "*", rule, cwd=cwd)
        if not line.startswith("source"):
            assert not judge_argv(Commands(allow=("*", rule)), line.split(), cwd=cwd).allowed
    for moved in (f"cd sub && {line}", f"pushd sub; {line}", f"(cd sub; {line})", f"cd sub; bash -c '{line}'"):
        assert not allows(moved, "*", rule, "bash"), moved


def test_a_rule_with_a_whole_path_holds_in_every_folder() -> None:
    assert allows(
        "cd sub && bash /workspace/build.sh && python -m pytest", "*", "bash /workspace/build.sh", "python -m pytest"
    )
    (refusal,) = judge(Commands(allow=("bash build.sh",)), "cd sub && bash build.sh").denied
    assert refusal.reason == "the line changes the folder, so that it is not known which file bash is or runs"


@pytest.mark.parametrize("rule", ["bash -e", "bash -c", "sh -x"])
def test_a_rule_with_options_of_a_shell_alone_names_no_script(rule: str) -> None:
    assert not allows(f"{rule} evil.sh", rule)
    assert not allows("bash -c 'rm x'", rule)


@pytest.mark.parametrize(
    "line",
    [
        *("rm -rf /outside", "rm ../x", "rmdir /etc/x", "cd /; rm -rf outside", "chgrp x /etc/y", "rm -r /etc/*"),
        *("rsync -a sub/ .", "rsync sub/.npmrc .", "cp --parents sub/.git/config x", "cp sub/config sub/HEAD ."),
    ],
)
def test_what_is_taken_away_or_copied_is_held_to_its_place(line: str) -> None:
    assert not allows(line, "*")
    for harmless in ("rm -rf .git x", "rm -f /tmp/x", 'rm -- "$x"', "cd sub && rm a", "cp -T .env.example env.txt"):
        assert allows(harmless, "*"), harmless
