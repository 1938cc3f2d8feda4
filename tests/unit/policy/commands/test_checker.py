"""What a decision says, and what rules mean."""

from __future__ import annotations

import pytest

from fumehood import Policy, PolicyError
from fumehood.policy import Commands
from fumehood.policy.commands import judge, judge_argv

_MAKERS = (
    *("cat", "cd", "chmod", "cp", "csplit", "dd", "diff3", "gunzip", "gzip", "iconv", "ln", "mkdir", "mv", "nm"),
    *("sdiff", "sed", "split", "tee", "xz"),
)


def allows(line: str, *allow: str, deny: tuple[str, ...] = ()) -> bool:
    return judge(Commands(allow=allow or None, deny=deny), line).allowed


def test_without_rules_everything_is_allowed_and_nothing_is_read() -> None:
    assert judge(Commands(), "rm -rf / \0 $((").allowed


def test_an_empty_allow_list_leaves_the_shell_alone() -> None:
    assert judge(Commands(allow=()), "echo hi; cd /tmp").allowed
    assert not judge(Commands(allow=()), "ls").allowed


def test_a_refusal_says_which_part_why_and_what_to_change() -> None:
    line = "ls | grep é && git -C /x push origin && rm -rf y"
    decision = judge(Commands(allow=("ls", "grep", "git status"), deny=("git push",)), line)
    first, second = decision.denied
    assert line[first.attempt.start : first.attempt.end] == first.attempt.text == "git -C /x push origin"
    assert (first.reason, first.rule) == ("this is denied", "commands.deny[git push]")
    assert first.fix == "remove 'git push' from commands.deny"
    assert line[second.attempt.start : second.attempt.end] == second.attempt.text == "rm -rf y"
    assert (second.rule, second.fix) == ("", "add 'rm' to commands.allow")


def test_a_refusal_of_a_here_document_shows_the_line_in_which_it_begins() -> None:
    (refusal,) = judge(Commands(allow=("ls", "cat *")), "ls\ncat <<'ls' | (\nls\ncat )\nid\nls\n").denied
    assert refusal.attempt.text == "cat <<'ls' | ("


def test_a_refusal_inside_of_a_shell_shows_its_part_and_where_the_text_stands() -> None:
    line = "bash -c 'ls; rm x'"
    (refusal,) = judge(Commands(allow=("bash", "ls")), line).denied
    assert refusal.attempt.text == "rm x"
    assert line[refusal.attempt.start : refusal.attempt.end] == "'ls; rm x'"


def test_arithmetic_is_shown_where_it_stands() -> None:
    line = "echo é; bash -c 'read x; echo $((x + 1))'; read y; echo $((y))"
    inner, outer = judge(Commands(allow=("bash",)), line).denied
    assert (inner.attempt.text, line[inner.attempt.start : inner.attempt.end]) == (
        "$((x + 1))",
        "'read x; echo $((x + 1))'",
    )
    assert outer.attempt.text == line[outer.attempt.start : outer.attempt.end] == "$((y))"


def test_what_the_remedy_adds_is_enough() -> None:
    commands = Commands(allow=("ls",))
    (refusal,) = judge(commands, "ls; git -C x log --oneline").denied
    assert refusal.fix == "add 'git log' to commands.allow"
    assert judge(Commands(allow=("ls", "git log")), "ls; git -C x log --oneline").allowed


@pytest.mark.parametrize(
    ("rule", "line", "is_allowed"),
    [
        ("ls", "ls -l x", True),
        ("ls", "/bin/ls", True),
        ("ls", "/usr/local/bin/ls", True),
        ("ls", "/tmp/ls", False),
        ("ls", "./ls", False),
        ("ls", "lsof", False),
        ("git log", "git log -5", True),
        ("git log", "git -C x --no-pager log", True),
        ("git log", "git logs", False),
        ("git log", "git", False),
        ("git log *", "git log x", True),
        ("git log *", "git log", False),
        ("git log -n *", "git log -n 5", True),
        ("git log -n *", "git log --all", False),
        ("pip-*", "pip-audit x", True),
        ("pip-*", "pip x", False),
        ("grep 'a b' *", "grep 'a b' file", True),
        ("grep 'a b' *", "grep a b", False),
        ("npm run test*", "npm run test:unit", True),
        ("npm run test*", "npm run build", False),
        ("npm", "npm run build", False),
        ("npm", "npm ls", True),
        ("python", "python x.py", True),
        ("python", "python3.11 x.py", False),
        ("*", "python x.py", False),
        ("*", "ls; sort x", True),
        ("*", "./x.sh", False),
        ("./x.sh", "./x.sh -v", True),
        ("./x.sh", "cd /tmp && ./x.sh", False),
        ("bash", "bash -c 'echo hi'", True),
        ("bash", "bash x.sh", False),
        ("bash x.sh", "bash x.sh", True),
        ("bash x.sh", "bash -c ls", False),
        ("source *.sh", "source env.sh", True),
        ("source *.sh", "source <(ls)", False),
        ("awk 'BEGIN{system(\"date\")}'", "awk 'BEGIN{system(\"date\")}'", True),
        ("awk 'BEGIN{system(\"date\")}'", "awk 'BEGIN{system(\"rm\")}'", False),
        ("tar --use-compress-program=zstd *", "tar --use-compress-program=zstd -cf x y", True),
        ("tar *", "tar --use-compress-program=zstd -cf x y", False),
        ("docker exec", "docker exec -it c ls", False),
        ("sort", "sort -o out.txt x", False),
        ("sort -o", "sort x -o out.txt", True),
        ("sort -o", "sort x", False),
        ("sort -o", "sort -o x --compress-program=y z", False),
        ("find", "find . -name x -delete", False),
        ("find -delete", "find . -name x -delete", True),
        ("find -delete", "find . -name x -delete -fprint y", False),
        ("find -delete", "find .", False),
        ("date", "date -s 2000-01-01", False),
        ("date", "date 01010000", False),
        ("date -s", "date -s 2000-01-01", True),
        ("git", "git log --ext-diff", False),
        ("git log --ext-diff", "git log -p --ext-diff", True),
        ("git", "git bisect run x", False),
        ("git bisect", "git bisect run x", True),
        ("git", "x=bisect; git $x run y", False),
        ("docker", "x=run; docker $x image", False),
        ("mytool", "mytool --whatever $x", True),
    ],
)
def test_an_allow_rule_matches_word_for_word(rule: str, line: str, is_allowed: bool) -> None:
    assert allows(line, rule) is is_allowed


@pytest.mark.parametrize(
    ("rule", "line", "is_denied"),
    [
        ("rm", "/bin/rm x", True),
        ("rm", "/tmp/rm x", True),
        ("rm -rf *", "rm -rf x", True),
        ("rm -rf *", "rm -fr x", True),
        ("rm -rf *", "rm -r -f x", True),
        ("rm -rf *", "rm x -r -f", True),
        ("rm -rf *", "rm -Rf x", True),
        ("rm -rf *", "rm --recursive --force x", True),
        ("rm -rf *", "rm --rec --fo x", True),
        ("rm -rf *", "rm -rvf x", True),
        ("rm -rf *", 'rm "$x"  -r', True),
        ("rm -rf *", "rm *", True),
        ("rm -rf *", "rm x", False),
        ("rm -rf *", "rm -r x", False),
        ("rm -rf *", "rm ./*.txt", False),
        ("git push", "git --no-pager push", True),
        ("git push", "git -C x -C y push", True),
        ("git push", "git --unheard-of push", True),
        ("git push", "git pu", True),
        ("git push", 'git "$x"', True),
        ("git push", "git $x", True),
        ("git push", "git commit -m push", False),
        ("git push", "git stash push", False),
        ("git push", "git log push", False),
        ("git push --force", "git push -f", True),
        ("git push --force", "git push origin --force-with-lease", True),
        ("git push --force", "git push origin", False),
        ("mytool deploy", "mytool --verbose deploy", True),
        ("mytool deploy", "mytool --config x deploy", True),
        ("mytool deploy", "mytool build deploy", False),
        ("find -delete", "find . -name x -delete", True),
        ("find -delete", "find . -name x -print", False),
        ("kubectl delete", "kubectl -n x delete pod y", True),
        ("kubectl delete", "kubectl get pods", False),
        ("cd", "cd /", True),
        ("/usr/bin/git push", "git push", True),
    ],
)
def test_a_deny_rule_matches_whatever_could_be_meant(rule: str, line: str, is_denied: bool) -> None:
    assert allows(line, "*", "mytool", deny=(rule,)) is not is_denied


@pytest.mark.parametrize(
    "line",
    [
        *("nm --plugin ./x.so a.o", "nm --plugin=./x.so a.o", "nm --plug ./x.so a.o", "nm @options a.o", 'nm "$x"'),
        *("cp x g/c*", "cp x ./g/con*", "mv x g/conf?g", "cat x | tee g/[a-d]*", "ln -sf ../x g/conf*", "cp x g/h*/"),
        *("sed -i s/a/b/ g/c*", "cat x > g/c*", "f=config; cp x g/$f", 'f=g/config; cp x "$f"', "f=fig; cp x g/con$f"),
        *(
            "for f in g/c*; do cp x $f; done",
            'for f in g/c*; do cat x > "$f"; done',
            "for f in a HEAD; do cp x g/$f; done",
        ),
        *(
            "cat x | tee g/confi{f..h}",
            "cp x g/[c]onfig",
            "shopt -s nocaseglob; cp x g/C*",
            "shopt -s nullglob; mv x g/c* nosuch*",
            "sed -ifig s/a/b/ g/con",
        ),
        *("cd g/hooks; cat x > pre-commit", "d=hooks; cd g/$d; cat x > pre-commit", "cat x > g/hooks/pre-commit"),
        *("cp x g/hooks/", "mv hooks.txt g/hooks", "ln -s g/h* z", "mkdir g/hooks"),
        *("gunzip g/config.gz", "gzip -d g/HEAD.gz", "xz -d g/config.xz", "f=g/config.gz; gunzip $f", "gunzip g/c*.gz"),
        *('gunzip -- "$x.gz"', "gzip -r .", "split -l 5 -a 1 --additional-suffix=onfig z g/", "split -a1 z g/confi"),
        *(
            "csplit -f .git/x a.txt 1",
            "iconv -o .git/x a.txt",
            "sdiff --diff-program=x a b",
            "diff3 --diff-program=x a b c",
        ),
        *(
            "git archive -o .git/x HEAD",
            "git archive --exec=x --remote=. HEAD",
            "git clone --bare . g",
            "git worktree add .git/x",
        ),
        *("dd if=a of=.git/config", 'dd if=a "o$x"', "dd if=$x", "false && z=b; git -C $z log push"),
        *("x=of; dd if=a $x=.gitconfig", 'x=of; dd if=a "$x=.git/config"', "x=f; dd if=a o$x=.gitconfig"),
        *("x=of; dd $x=/etc/nowhere/x if=a", "dd if=a {of,bs}=.gitconfig", "dd if=a [o]f=.gitconfig"),
        "sed -i s/a/b/ " + "*" * 10_000 + "c",
    ],
)
def test_what_a_tool_loads_or_makes_of_its_words_is_seen(line: str) -> None:
    assert not allows(line, *_MAKERS, "git archive", "git clone", "git log", "git worktree")


def test_ordinary_words_of_the_same_tools_are_harmless() -> None:
    for line in (
        *(
            "nm -gDC --defined-only ./*.so",
            "gunzip a.txt.gz",
            'f=log.gz; gunzip "$f"',
            "xz -dk a.tar.xz",
            "gzip ./*.log",
        ),
        *("split -l 100 a.txt part_", "split -b 1M --additional-suffix=.bin a.txt part", "csplit -f part a.txt 10"),
        *("iconv -f latin1 -t utf-8 -o b.txt a.txt", "sdiff -s a b", "diff3 -m a b c", "dd if=a of=b.txt bs=1M"),
        *("cp a.txt config/", "cat a > config.py", "cat a > src/hooks/use.ts", "mv src/* old/", "cp file{,.bak}"),
        *("mkdir part{1..5}", "cat a | tee b{1..3}.txt", 'for f in *; do mv -- "$f" old/; done'),
    ):
        assert allows(line, *_MAKERS), line


def test_a_rule_with_many_stars_is_matched_in_one_go() -> None:
    rule = "*".join("abcdefgh") + "*z"
    assert not allows("abcdefgh" * 2_000 + "z", "a*", deny=(rule,))
    assert allows("abcdefgh" * 2_000, "a*", deny=(rule,))
    assert allows("abxb", "a*b*b")
    assert not allows("ab", "a*b*b")


@pytest.mark.parametrize(
    "line",
    [
        *("perl5.36-x86_64-linux-gnu -e 1", "tclsh8.6 x", "pdb3.11 -c q x.py", "vim.basic -es -c '!id' -c q"),
        *("msgexec id", "dpkg-architecture -c id", "tini -s -- python3 -c 1", "x86_64-linux-gnu-gcc -wrapper id x.c"),
        *("prove -e id x.t", "systemd-inhibit id", "nosuchtool", "docker ps", "systemctl status", "gh pr list"),
    ],
)
def test_a_star_allows_only_what_is_known(line: str) -> None:
    for commands in (Commands(allow=("*",)), Commands(allow=("*", "ls")), Commands(deny=("rm",))):
        (refusal,) = judge(commands, line).denied
        assert "'*' allows only tools of which it is" in refusal.reason
    name = line.split()[0]
    assert refusal.fix == f"add {name!r} to commands.allow, beside '*'"
    assert allows(line, "*", name)
    assert allows(line, f"{name[:3]}*")


def test_a_star_allows_the_tools_whose_options_are_known() -> None:
    for line in ("ls -l | sort -u", "git status && find . -name x", "timeout 5 sed s/a/b/ x", "gcc -c x.c", "awk 1 x"):
        assert allows(line, "*"), line


@pytest.mark.parametrize(
    "line",
    [
        *("systemctl -H evil status", "systemctl --host=evil status", "systemctl -M evil status"),
        *(
            "systemctl status -H evil",
            "systemctl status -qHevil",
            "systemctl status --host evil",
            'systemctl status "$x"',
        ),
        *("docker -H ssh://evil ps", "docker --config x ps", "docker --context x ps", "docker ps --host ssh://evil"),
        *("helm --kubeconfig x.txt list", "helm list --kubeconfig x.txt", "helm list --kubeconfig=x.txt"),
    ],
)
def test_a_program_of_many_sub_commands_takes_only_known_options_of_its_own(line: str) -> None:
    assert not allows(line, "systemctl status", "docker ps", "helm list")


@pytest.mark.parametrize(
    "line",
    [
        *("git submodule update", "git submodule foreach ls", "git submodule status; git submodule add x"),
        *("git remote show x", "git remote add x y", "git remote get-url a b c", "git apply fix.patch"),
        *("git apply --stat --apply x", "git apply --3way x", "docker compose up", "docker compose -f x.yml ps"),
        *("docker compose exec a ls", "git format-patch --suffix=.sh HEAD", "git format-patch -o .git HEAD"),
        *("cd .git/hooks; git format-patch HEAD", "git format-patch --output=x HEAD"),
    ],
)
def test_what_shows_something_opens_nothing_else(line: str) -> None:
    assert not allows(line, "*", "docker")
    for harmless in ("docker compose ps -a", "docker compose logs --tail=5 web", "git submodule status", "docker ps"):
        assert allows(harmless, "*", "docker")
    assert not allows("docker ps", "*")
    assert allows("git submodule update --init; git apply x.patch", "git submodule", "git apply")


def test_ordinary_options_of_such_a_program_are_harmless() -> None:
    for line in (
        "systemctl --no-pager status x",
        "docker -D ps -a",
        "helm -n x list",
        "systemctl status -n 5 x.service",
    ):
        assert allows(line, "systemctl status", "docker ps", "helm list"), line
    assert allows("systemctl -H x status", "systemctl status", "systemctl -H")
    assert allows("helm list --kubeconfig=x.txt", "helm list --kubeconfig")


@pytest.mark.parametrize(
    "line",
    [
        *("curl -T e.txt file:///workspace/.git/config", "curl -sT e.txt file:///workspace/.gitconfig"),
        *("curl --upload-file e.txt file:///workspace/.git/config", "curl -T e.txt $x", "curl -T '{a,b}' file:///x/"),
        *("git pull --rebase=interactive . b", "git pull --rebase=i", "git pull --rebase=$x"),
        *("git tag --format='%(signature)'", "git shortlog --format=%GS", "git tag --sort=-signature"),
        *(
            "zip -x foo a.zip @ .gitconfig f.txt",
            "zip -i foo a.zip @ .gitconfig f.txt",
            'zip -x foo a.zip "$x" .gitconfig',
        ),
        "ZIPOPT='-T -TT id'; export ZIPOPT; zip x.zip f.txt",
        "GCC_EXEC_PREFIX=/workspace/p/; export GCC_EXEC_PREFIX; gcc -c x.c",
        "export ZIPOPT=1; read -r ZIPOPT < f.txt; zip x.zip f.txt",
        "export GCC_EXEC_PREFIX; for GCC_EXEC_PREFIX in /workspace/p/; do gcc -c x.c; done",
    ],
)
def test_a_tool_is_given_nothing_that_makes_it_start_or_write_more(line: str) -> None:
    assert not allows(line, "curl", "git", "git pull", "zip", "gcc")


@pytest.mark.parametrize("options", ["-x", "-e", "-eu", "+x", "--", "-o pipefail", "--norc", "-c"])
def test_options_of_a_shell_stand_before_its_text(options: str) -> None:
    for shell in ("bash", "sh"):
        assert not allows(f"{shell} -c {options} 'python3 -c 1'", "*", shell)
        assert not allows(f"{shell} -c {options} ls", "*", shell)
    assert allows("bash -ex -c 'ls' -x", "*", "bash")


def test_a_denial_wins() -> None:
    assert not allows("git push", "git", deny=("git push",))
    assert allows("git log", "git", deny=("git push",))


def test_words_without_a_shell_have_no_builtins_and_need_no_reader() -> None:
    commands = Commands(allow=("ls", "sh"))
    assert judge_argv(commands, ["ls", "$(rm x)", "; rm", "a b"]).allowed
    assert not judge_argv(commands, ["cd", "/"]).allowed
    assert not judge_argv(commands, ["sh", "-c", "rm x"]).allowed
    assert judge_argv(commands, ["sh", "-c", "ls -l | ls"]).allowed
    (refusal,) = judge_argv(commands, ["env", "a b", "x"]).denied
    assert refusal.attempt.text == "env 'a b' x"
    assert judge_argv(commands, ["ls", "\udcff"]).allowed
    assert not judge_argv(commands, ["l\udcffs"]).allowed


def test_a_value_that_the_line_itself_sets_is_known() -> None:
    for line in ('b=main; git diff "$b"', "n=3; [ $n -gt 2 ]", 'for f in src/*.c; do mv "$f" "$f.old"; done'):
        assert allows(line, "git diff", "mv"), line
    for line in ('b=$1; git diff "$b"', 'b=-x; git diff "$b"', 'b=a; read b; git diff "$b"', "n=$1; [ $n -gt 2 ]"):
        assert not allows(line, "git diff", "mv"), line


def test_files_are_written_only_where_the_sandbox_lets_them_be() -> None:
    commands = Commands(allow=("ls", "tee"))
    for line in ("ls > /data/x.txt", "ls | tee /data/x.txt"):
        assert not judge(commands, line).allowed
        assert judge(commands, line, writable=("/data",)).allowed


@pytest.mark.parametrize(
    "line",
    [
        *("echo x > ../etc/passwd", "install -m 755 x ../../usr/local/bin/ls", "cd /etc; echo x > passwd"),
        *(
            "tar xf a.tar -C /usr/local/bin",
            "tar xf a.tar --directory=/etc",
            "cd /usr/local/bin; tar xf /workspace/a.tar",
        ),
        *("find / -name '*.py' -exec tee {} \\;", "find .. -name '*.py' -exec tee {} \\;"),
        *("find . /etc -name '*.py' -exec tee {} \\;", "find -L . -name '*.py' -exec tee {} \\;"),
        "d=..; find \"./$d\" -name '*.py' -exec tee {} \\;",
        'x=/etc/cron.d/x; echo > "$x.txt"',
        "echo PROC | tee ../../../proc/self/fd/3 3<.git/description",
        *("ln -s ../../../proc/self/fd l; tee l/3", "cd /proc/self/fd; tee 3 3< .git/config"),
        *("cp -a /proc/self/fd p; tee p/3 3< .git/config", "cp -P /proc/self/root r; tee r/etc/passwd"),
        *("cp -r /dev/fd p; tee p/3 3< .git/config", "rsync -a /proc/self/root r", "cp -rLP /proc/self/root r"),
        *("pushd /etc; echo x > passwd", "cd /etc; bash -c 'echo x > passwd'", "bash -c 'cd /etc; echo x > passwd'"),
        *("cd .git/hooks; unzip /tmp/a.zip", "cd .git/hooks; split /tmp/a.txt", "cd .git/hooks; csplit /tmp/a.txt 1"),
        *("git -C .git/hooks init x", "git -C .. init x", "git -C /etc archive -o x.tar HEAD", "cd ..; git clone ./x"),
        *("dd if=a.txt of=../x.txt", "curl -o ../x https://a.example", "split a.txt ../x", "gzip -d ../x.gz"),
        *("chmod 777 ../x", "sed -i s/a/b/ ../x.txt", "git mv a ../b"),
    ],
)
def test_nothing_is_written_outside_of_the_places_for_it(line: str) -> None:
    commands = Commands(allow=("*", "bash"))
    assert not judge(commands, line).allowed


@pytest.mark.parametrize(
    "rule", ["curl -o .bashrc x", "tar -cf h:x a", "curl -s --output=.npmrc x", "git commit -t .x -mx"]
)
def test_a_value_that_a_rule_spells_is_allowed_and_no_other(rule: str) -> None:
    """The judgement ends: it went on for ever once."""
    assert allows(rule, rule)
    for more in ("-K evil", "--to-command=evil", "-o .npmrc", "--output .git/config", "--unknown"):
        assert not allows(f"{rule} {more}", rule), more


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        *(("npm run test*", "npm run test --script-shell=evil"), ("npm run test*", "npm run test --script-sh evil")),
        *(
            ("npm test", "npm test --prefix x"),
            ("npm run *", "npm run build --userconfig=x"),
            ("npm ci", "npm ci -C x"),
        ),
        *(("npm run test*", 'npm run test "$x"'), ("npm test", "npm test --node-options=--require=./x.js")),
        *(("yarn test", "yarn test --cwd x"), ("pnpm test", "pnpm test -C x"), ("go test", "go test -exec evil ./...")),
        *(("cargo test", "cargo test --config target.x.runner=evil"), ("cargo build", "cargo build --manifest-path x")),
        *(("cargo run", "cargo run -Zx"), ("go build", "go build -toolexec=evil"), ("go vet", "go vet -vettool=x")),
        *(("make test", "make test SHELL=evil"), ("make test", "make test deploy"), ("make test", "make test -f x.mk")),
        *(("make test", "make test 5"), ("make test", "make test -k 5"), ("make test", "make test -j 4 5")),
        *(
            ("make test", "make test -j4 5"),
            ("cargo doc", "cargo doc --open"),
            ("cargo doc", "cargo doc --no-deps --open"),
        ),
        *(("make test", "make test --eval=x"), ("make test", "make test -- CC=evil"), ("make test", "make test -C x")),
    ],
)
def test_options_of_what_runs_a_script_are_not_those_of_the_script(rule: str, line: str) -> None:
    assert not allows(line, rule)
    for named, harmless in (
        *(("npm run test*", "npm run test:unit -- --script-shell=x"), ("npm run *", "npm run lint --silent -- --fix")),
        *(("npm test", "npm test --workspace=a x"), ("npm ci", "npm ci --no-audit"), ("make", "make test CC=gcc")),
        *(("cargo test", "cargo test --release name -- --nocapture"), ("go test", "go test ./... -run TestParse -v")),
        *(
            ("make test", "make test --jobs 4 -k"),
            ("make test", "make test -l 2"),
            ("cargo doc", "cargo doc --no-deps"),
        ),
        *(("make test", "make test -j4"), ("make *", "make test deploy"), ("make test", "make test -j 4")),
        *(("npm run --prefix", "npm run build --prefix=x"), ("cargo", "cargo test --config x")),
    ):
        assert allows(harmless, named), harmless


@pytest.mark.parametrize(
    "line",
    [
        *("printf 'rm x' > build.sh; ./build.sh", "echo rm x >> ./build.sh", "cat x > /workspace/build.sh"),
        *(
            "cp x build.sh",
            "cp sub/build.sh .",
            "cp sub/* .",
            "cp -t . sub/build.sh",
            "mv x build.sh",
            "mv sub/build.sh .",
        ),
        *(
            "ln -s build.sh l; tee l",
            "ln -sf x build.sh",
            "sed -i s/a/b/ build.sh",
            "sed -i s/a/b/ ./*.sh",
            "tee sub/build.sh",
        ),
        *("gunzip build.sh.gz", "install x build.sh", "dd of=build.sh", "curl -o build.sh https://a.example"),
        *(
            'x=build.sh; echo a > "$x"',
            "tee ./{build,x}.sh",
            "mv sub/* .",
            'for f in *.sh; do tee "./$f"; done',
            "tee deploy.sh",
        ),
        *("find . -name '*.py' -exec tee {} \\;", "echo a > bin/tool", "echo a > scripts/a.sh", "tee main.py"),
    ],
)
def test_no_line_writes_what_a_rule_lets_be_run(line: str) -> None:
    named = ("./build.sh", "bin/tool", "bash deploy.sh", "sh scripts/*.sh", "python main.py", "/workspace/x/run.py")
    assert allows(line.replace("./build.sh", "ls"), "*")
    assert not allows(line, "*", *named)
    for harmless in ("chmod +x build.sh && ./build.sh", "cat build.sh > b.txt", "echo a > src/b.py", "touch build.sh"):
        assert allows(harmless, "*", *named), harmless
    assert allows("echo a > tool", "*", "/opt/tool", "python -m pytest", "bash *")


def test_sh_is_not_read_as_bash() -> None:
    commands = Commands(allow=("ls",))
    for line in ("((1))", "[[ -f x ]]", "ls &> x", "ls |& ls", "ls <<< x", "ls $'x'", "ls <(ls)", "x=(1)"):
        assert not judge(commands, line, is_bash=False).allowed
    assert judge(commands, 'if [ -f x ]; then ls "$x" > y 2>&1; fi', is_bash=False).allowed


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        ("ls; rm", "shell syntax"),
        ("ls | cat", "shell syntax"),
        ("echo $x", "shell syntax"),
        ("-rf", "name of a program"),
        ("A=1 ls", "name of a program"),
        ("'ls", "quotation without end"),
        ("/tmp/*", "must be plain"),
        ("/tmp/../bin/ls", "must be plain"),
    ],
)
def test_a_rule_that_makes_no_sense_is_an_error_of_the_policy(rule: str, complaint: str) -> None:
    with pytest.raises(PolicyError, match=complaint):
        Policy(commands={"allow": [rule]})


def test_rules_that_open_more_than_they_say_are_found() -> None:
    policy = Policy(commands={"allow": ["ls", "python", "python -m pytest", "bash *"]})
    assert [finding.key for finding in policy.lint()] == ["commands.allow[bash *]", "commands.allow[python]"]
    assert [finding.key for finding in Policy(commands={"deny": ["rm"]}).lint()] == ["commands.deny"]


def test_who_names_builders_is_told_that_the_kernel_runs_nothing_that_they_made() -> None:
    rules = ["ls", "npm test", "/usr/bin/gcc"]
    for enforce in ("auto", "kernel"):
        (finding,) = Policy(commands={"allow": rules, "enforce": enforce}).lint()
        assert (finding.level, finding.key) == ("warning", "commands.enforce")
        assert "/usr/bin/gcc, npm made; to build, say enforce: parse" in finding.message
    assert Policy(commands={"allow": rules, "enforce": "parse"}).lint() == []
    assert Policy(commands={"allow": ["ls"]}).lint() == []
