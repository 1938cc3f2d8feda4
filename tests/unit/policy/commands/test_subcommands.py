"""A rule for a program of many sub-commands allows those of which it is known that they start and write nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fumehood.policy import Commands
from fumehood.policy.commands import judge

_QUOTED = re.compile(r"`([^`]+)`")


def allows(line: str, *rules: str) -> bool:
    return judge(Commands(allow=rules), line).allowed


@pytest.mark.parametrize(
    "line",
    [
        *("docker system dial-stdio", "docker system dial-stdio < req.txt", "docker -D system dial-stdio"),
        *("docker volume create -o type=none -o device=/ -o o=bind x", "docker network create x", "docker login"),
        *("docker commit c trusted", "docker import x.tar trusted", "docker load -i x.tar", "docker tag evil trusted"),
        *("docker rename a b", "docker network connect n c", "docker volume update x", "docker system --x dial-stdio"),
        *("podman system service -t 0 tcp:0.0.0.0:1", "podman system connection add x", "podman volume import x y"),
        *("podman network reload", "podman push x dir:.git/hooks", "podman pull docker-archive:x.tar", "podman top c"),
        *("gh gist edit x", "gh pr create", "gh pr checkout 1", "gh release download v1", "gh run download 1"),
        *("gh auth login", "gh auth setup-git", "gh repo fork x", "gh repo sync", "gh secret set x", "gh pr merge 1"),
        *("aws s3 cp s3://b/k .git/config", "aws s3 sync s3://b .", "aws s3api get-object --bucket b --key k .bashrc"),
        *("aws lambda invoke --function-name f .bashrc", "aws ec2 help", "aws iam create-virtual-mfa-device"),
        *("aws cloudformation package --output-template-file .npmrc", "gcloud storage cp gs://x .git/config"),
        *("gcloud auth login", "gcloud iam service-accounts keys create .npmrc", "helm repo add x y", "uv cache x"),
        *("helm repo index .", "uv build", "uv init"),
    ],
)
def test_a_sub_command_of_a_sub_command_has_to_be_known(line: str) -> None:
    words = [word for word in line.split() if not word.startswith("-")]
    assert not allows(line, words[0])
    assert not allows(line, f"{words[0]} *")
    (refusal,) = judge(Commands(allow=(words[0],)), line).denied
    named = refusal.fix.removeprefix("add '").removesuffix("' to commands.allow")
    assert named.split()[:2] == words[:2]
    assert allows(line, words[0], named)


@pytest.mark.parametrize(
    "line",
    [
        *("docker save -o .git/config img", "docker save --output=.bashrc img", "docker export -o .git/hooks/x c"),
        *("docker save -o=.bashrc img", "docker export -o=/etc/x c", "podman save -o=.bashrc img"),
        *("docker export -o/etc/x c", 'docker save -o "$x" img', "docker save -o build.sh img", "docker save -x img"),
        *("podman save -o .git/config img", "podman export -o ../x c", "podman save --format oci-dir -o x img"),
        *(
            "podman info --conmon ./evil",
            "podman info --runtime=./evil",
            "podman ps --hooks-dir x",
            "podman rm --url x",
        ),
        *("podman stop --module ./x c", "podman ps --root=x", "podman system df --conmon=./evil"),
        *(
            "brew info ./x.rb",
            "brew deps ./x.rb",
            "brew info x.rb",
            "brew uses /tmp/x.rb",
            "brew ls ../x",
            "brew info a/b/c",
        ),
        *(
            "brew desc ./x.rb",
            "brew outdated ./x.rb",
            "brew info https://h/x.rb",
            'brew info "$x"',
            "brew info --github x",
        ),
        *("uv version --bump patch", "uv version 1.2.3", "uv version --short 1.2.3", "uv version --project x"),
        *(
            "uv version --bump=patch --dry-run",
            "uv version --package x",
            "uv -q version --bump minor",
            "uv version -- 1",
        ),
        *(
            "gh pr view 1 --web",
            "gh pr list -w",
            "gh issue create --editor",
            "gh repo view -w",
            "gh issue view 1 --web=true",
        ),
        *("systemctl status x --hos=evil", "systemctl list-units --mach x", "systemctl mask --root=x y"),
        *("helm show chart x://y", "helm show values --repo x://y z", "gcloud projects list --flags-file=x"),
        *("aws ec2 describe-instances --endpoint http://h", "docker ps --conf x"),
    ],
)
def test_words_of_a_harmless_sub_command_are_judged(line: str) -> None:
    program = line.split()[0]
    assert not allows(line, program, "./build.sh")
    assert not allows(line, f"{program} *", "./build.sh")


@pytest.mark.parametrize(
    "line",
    [
        *(
            "docker system df",
            "docker system prune -f",
            "docker volume ls -q",
            "docker network inspect n",
            "docker pull x:1",
        ),
        *("docker save -o img.tar x:1", "docker save x:1 | gzip > x.tgz", "docker export --output=/tmp/c.tar c"),
        *(
            "podman ps -a",
            "podman logs -f --tail 5 c",
            "podman inspect --format '{{.Id}}' c",
            "podman info",
            "podman rm -f c",
        ),
        *("podman system df", "podman volume ls", "podman images -q", "podman save -o x.tar img"),
        *("gh pr view 1 --json title", "gh pr diff 1", "gh issue list -L 5", "gh run list --limit 3", "gh auth status"),
        *(
            "gh api repos/o/r/pulls --jq '.[].title'",
            "gh search issues x",
            "gh issue comment 1 -b text",
            "gh -R o/r pr list",
        ),
        *("brew list", "brew info python@3.12", "brew deps --tree gtk+3", "brew outdated", "brew list --versions git"),
        *(
            "uv version",
            "uv version --short",
            "uv cache dir",
            "uv help run",
            "helm show values ./chart",
            "helm repo list",
        ),
        *(
            "helm get values x",
            "aws s3 ls s3://b/",
            "aws sts get-caller-identity",
            "aws ec2 describe-instances --output json",
        ),
        *("aws logs tail /x --since 1h", "gcloud projects list", "gcloud storage ls gs://b", "systemctl show x"),
    ],
)
def test_harmless_ones_stay_allowed(line: str) -> None:
    decision = judge(Commands(allow=(line.split()[0], "gzip")), line)
    assert decision.allowed, str(decision)


def test_rules_that_spell_more_are_enough() -> None:
    assert allows("uv version --bump patch", "uv version --bump")
    assert allows("uv version 1.2.3", "uv version 1.2.3")
    assert allows("docker save -o .git/config img", "docker save -o .git/config")
    assert allows("brew info ./x.rb", "brew info ./x.rb")
    assert allows("cargo doc --open", "cargo doc --open")
    assert not allows("docker system dial-stdio", "docker system df")


def test_the_docs_say_which_lines_are_refused_under_a_rule_for_the_program() -> None:
    page = (Path(__file__).parents[4] / "docs" / "commands.md").read_text(encoding="utf-8")
    rows = [
        row.split(" | ")
        for row in page.partition("| rule | line | why | instead |")[2].split("\n\n")[0].split("\n")[2:]
    ]
    refused = [(_QUOTED.findall(rules), line) for rules, lines, *_ in rows for line in _QUOTED.findall(lines)]
    assert len(refused) >= 20
    assert [line for rules, line in refused if allows(line, *rules)] == []


def test_without_a_name_they_are_not_covered() -> None:
    for line in ("uv version", "brew list", "docker save -o x.tar img", "podman ps", "gh repo clone o/r", "helm list"):
        assert not allows(line, "*"), line
