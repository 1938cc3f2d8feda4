"""Real shells as the oracle: what does a line really start, in bash and in dash?

Runs in a sandbox, with a PATH of recorders in front. A recorder writes its name and words down; one of a harmless
program then becomes that program, so that `xargs`, `find` and the like do what they do.
"""

from __future__ import annotations

import json

from fumehood import Policy, Sandbox

RECORDED_ONLY = (
    *("rm", "python", "python3", "perl", "ruby", "node", "php", "lua", "make", "npm", "npx", "pip"),
    *("vim", "vi", "ed", "sudo", "doas", "ssh", "docker", "kubectl", "busybox", "gdb", "curl", "at", "crontab"),
    *("tmux", "less", "man", "su", "zsh", "time"),
)
PASSED_ON = (
    *("ls", "cat", "grep", "find", "xargs", "env", "timeout", "nice", "nohup", "awk", "sed", "sort", "head"),
    *("tail", "tr", "tar", "wc", "cut", "tee", "date", "basename", "seq", "base64", "sleep", "setsid"),
    *("stdbuf", "mkdir", "touch", "split", "git", "cp", "mv", "ln", "uniq", "chmod", "file", "bash", "sh"),
)

_DRIVER = """
import json, os, shutil, subprocess, sys
recorded_only, passed_on, shell, lines = json.load(open("/workspace/task.json"))
os.makedirs("/workspace/recorders")
for name in recorded_only + passed_on:
    path = f"/workspace/recorders/{name}"
    real = shutil.which(name, path="/usr/bin:/bin")
    ending = f'exec {real} "$@"' if name in passed_on and real else ":"
    with open(path, "w") as stream:
        stream.write(f'#!/bin/sh\\n(printf "%s\\\\t" {name} "$@"; printf "\\\\036") >> /tmp/log\\n{ending}\\n')
    os.chmod(path, 0o755)
os.makedirs("/workspace/template/src")
for name in ("x", "y", "z", "file", "a.txt", "b.txt", "x.sh", "x.sed", "x.awk", "-e1e rm"):
    with open(f"/workspace/template/{name}", "w") as stream:
        stream.write("rm x\\n")
# What somebody else's folder may bring.
os.makedirs("/workspace/template/brought")
for name in (".bashrc", ".gitconfig"):
    open(f"/workspace/template/brought/{name}", "w").close()
# Without git's examples of hooks, which would be copied for every line.
subprocess.run("git init -q --template= . && mkdir .git/hooks && git add x"
               " && git -c user.name=x -c user.email=x commit -qm x", shell=True,
               cwd="/workspace/template", env={"PATH": "/usr/bin:/bin", "HOME": "/tmp"}, check=True)
# For those who change where programs are looked for.
for name in ("ls", "cat"):
    with open(f"/workspace/template/{name}", "w") as stream:
        stream.write("#!/bin/sh\\nprintf 'planted\\\\t\\\\036' >> /tmp/log\\n")
    os.chmod(f"/workspace/template/{name}", 0o755)
def orders():
    try:
        return open("/tmp/above/place/.git/config").read(), sorted(os.listdir("/tmp/above/place/.git/hooks"))
    except OSError:
        return None
found = []
environment = {"PATH": "/workspace/recorders:/usr/bin:/bin", "HOME": "/tmp/above/place", "LANG": "C.UTF-8"}
# For variables that a line only seems to set.
environment |= {"given": "--output=.bashrc", "counted": "a[$(rm x)]"}
# `git init` brings no hooks of its own.
environment["GIT_TEMPLATE_DIR"] = ""
for line in lines:
    shutil.rmtree("/tmp/above", ignore_errors=True)
    shutil.copytree("/workspace/template", "/tmp/above/place", symlinks=True)
    at_first = orders()
    open("/tmp/log", "w").close()
    process = subprocess.Popen([shell, "-c", line], cwd="/tmp/above/place", env=environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        process.wait(0.7)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        pass
    process.wait()
    gone = not os.path.exists("/tmp/above/place/x")
    hidden = any(os.path.exists(f"/tmp/above/place/{name}") for name in (".bashrc", ".gitconfig"))
    outside = os.listdir("/tmp/above") != ["place"]
    if gone or hidden or outside or orders() != at_first:
        open("/tmp/log", "a").write("written\\t\\x1e")
    entries = open("/tmp/log", errors="replace").read().split("\\x1e")
    found.append([entry.split("\\t")[:-1] for entry in entries if "\\t" in entry])
json.dump(found, sys.stdout)
"""


def started(lines: list[str], shell: str = "/bin/bash") -> list[list[list[str]]]:
    """For each line the commands that the shell started, each with its words."""
    limits = {"timeout": "110s", "memory": "1G", "processes": 256, "output": "16M", "open_files": 256, "cpus": 2}
    with Sandbox(Policy(resources=limits)) as box:
        box.files.write(
            "task.json", json.dumps([RECORDED_ONLY, PASSED_ON, shell, lines]).encode("utf-8", "surrogatepass")
        )
        result = box.run(_DRIVER)
    assert result.ok, (result.detail, result.stderr)
    return json.loads(result.stdout)


def is_forbidden(command: list[str]) -> bool:
    """Whether a policy that allows neither should have stopped it."""
    name, *words = command
    if name in ("planted", "written"):
        return True
    return "push" in words[:3] and "stash" not in words if name == "git" else name in RECORDED_ONLY
