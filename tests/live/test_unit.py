"""`hood serve` with what the systemd unit gives it and takes from it, as far as that can be had without systemd.

The files are read-only, /home, /root and /tmp are others, there is no privilege and no way to one, and cgroups are
delegated. Not here: SystemCallFilter and RestrictAddressFamilies, whose filters systemd itself makes.
"""

from __future__ import annotations

import configparser
import os
import pwd
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from requirements import require

ROOT = Path(__file__).parents[2]
USER = pwd.getpwnam("nobody")
SCRIPT = r"""
set -e
stage=$1 config=$2
mount -t tmpfs private /opt && mkdir /opt/fumehood && mount --bind "$stage/opt/fumehood" /opt/fumehood
for folder in /var/lib /var/cache /tmp /var/tmp; do mount -t tmpfs -o mode=1777 private $folder; done
for folder in /var/lib/hood /var/cache/hood; do mkdir -m 0700 $folder && chown $3:$4 $folder; done
mount -t tmpfs -o mode=0000,ro hidden /home
mount -o remount,bind,ro /
mount -t tmpfs -o mode=0000,ro hidden /root
for controller in cpu memory pids; do echo $$ > /sys/fs/cgroup/$controller/$5/cgroup.procs; done
cd /
exec setpriv --reuid $3 --regid $4 --clear-groups --no-new-privs --bounding-set -all --inh-caps -all \
    env -i PATH=/usr/bin:/bin NOTIFY_SOCKET="$NOTIFY_SOCKET" $UNIT_ENVIRONMENT $UNIT_COMMAND --init acme
"""
CLIENT = "import fumehood; print(fumehood.run('import os; print(6 * 7, os.getpid() < 100)').check().stdout)"


@pytest.mark.serial
@pytest.mark.timeout(600)
def test_a_server_works_with_the_rights_of_the_unit(tmp_path: Path) -> None:
    groups = [Path("/sys/fs/cgroup", name, f"hood-unit-{os.getpid()}") for name in ("cpu", "memory", "pids")]
    is_possible = os.geteuid() == 0 and shutil.which("setpriv") and all(group.parent.is_dir() for group in groups)
    require(is_possible, "needs root, setpriv and cgroups of version 1")
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "deploy" / "hood.service")
    service = unit["Service"]
    stage = tmp_path / "stage"
    subprocess.run(["sh", "scripts/image", "stage", str(stage)], cwd=ROOT, check=True)
    place = Path("/run", f"hood-unit-{os.getpid()}")
    place.mkdir(mode=0o755)
    config = place / "server.yaml"
    text = (ROOT / "deploy" / "server.yaml").read_text()
    config.write_text(text.replace("127.0.0.1:8440", "127.0.0.1:0").replace("[hood.example]", "[localhost]"))
    for group in groups:
        group.mkdir()
        for path in (group, *group.iterdir()):
            os.chown(path, USER.pw_uid, USER.pw_gid)
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        parent.chmod(parent.stat().st_mode | 0o011)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(place / "notify"))
            (place / "notify").chmod(0o777)
            manager.settimeout(120)
            environment = {
                **os.environ,
                "NOTIFY_SOCKET": str(place / "notify"),
                "UNIT_ENVIRONMENT": service["Environment"],
                "UNIT_COMMAND": service["ExecStart"].replace("/etc/hood/server.yaml", str(config)),
            }
            words = [str(stage), str(config), str(USER.pw_uid), str(USER.pw_gid), groups[0].name]
            command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", SCRIPT, "unit", *words]
            with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
                try:
                    assert manager.recv(1000).startswith(b"READY=1")
                    assert server.stdout is not None
                    given = dict(
                        server.stdout.readline().strip().removeprefix("export ").split("=", 1) for _ in range(2)
                    )
                    client = [str(ROOT / ".venv/bin/python"), "-c", CLIENT]
                    done = subprocess.run(client, env={**os.environ, **given}, capture_output=True, text=True)
                    assert (done.stdout.strip(), done.stderr) == ("42 True", "")
                finally:
                    server.terminate()
                    assert server.wait(60) == 0
    finally:
        shutil.rmtree(place)
        for group in groups:
            for inner in sorted(group.rglob("*/"), reverse=True):
                inner.rmdir()
            group.rmdir()
