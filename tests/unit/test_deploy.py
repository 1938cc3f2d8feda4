"""The files in deploy/: what systemd says of the unit, and that the settings and containers fit each other."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from requirements import require

from fumehood.cli.cluster.worker import build_parser as worker_parser
from fumehood.cli.server.serve import build_parser as serve_parser
from fumehood.server.settings import load_settings

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "hood.service"
_MOST_EXPOSURE = 4.5


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    require(shutil.which("systemd-analyze"), "needs systemd")
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True)


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/fumehood/bin/hood", sys.executable))
    done = analyze("verify", "--man=no", str(unit))
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_gives_up_what_sandboxes_do_not_need() -> None:
    done = analyze("security", "--offline=true", "--no-pager", str(UNIT))
    found = re.search(r"exposure level for hood.service: ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert float(found[1]) <= _MOST_EXPOSURE


@pytest.mark.parametrize("name", ["server.yaml", "compose-server.yaml", "compose-cluster-server.yaml"])
def test_the_settings_are_valid(name: str, tmp_path: Path) -> None:
    text = (DEPLOY / name).read_text()
    assert load_settings(str(DEPLOY / name)).state == "/var/lib/hood"
    # With what is commented out, too.
    whole = tmp_path / name
    whole.write_text(re.sub(r"^# ?(?=(oidc|shipping|traces|  )\b|  )", "", text, flags=re.MULTILINE))
    settings = load_settings(str(whole))
    if name == "server.yaml":
        assert (set(settings.oidc), set(settings.shipping)) == ({"corp"}, {"siem", "lake", "hook"})
        assert settings.traces is not None


def test_the_containers_have_what_their_settings_name() -> None:
    compose: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    hood, settings = compose["services"]["hood"], load_settings(str(DEPLOY / "compose-server.yaml"))
    assert settings.tls is not None
    assert {Path(settings.tls.certificate).name, Path(settings.tls.key).name} < set(hood["secrets"])
    assert hood["ports"] == [f"{settings.address[1]}:{settings.address[1]}"]
    mounted = {volume.split(":")[1] for volume in hood["volumes"]}
    assert {settings.state, hood["command"][-1]} == mounted
    assert "@database/" in settings.database_url
    for service in compose["services"].values():
        assert set(service["secrets"]) <= set(compose["secrets"])
        assert set(service["networks"]) <= set(compose["networks"])
    assert "privileged" not in hood
    assert (hood["cap_drop"], hood["read_only"]) == (["ALL"], True)


def test_the_containers_of_a_cluster_reach_what_they_need_and_no_engine_of_others() -> None:
    compose: dict[str, Any] = yaml.safe_load((DEPLOY / "compose-cluster.yaml").read_text())
    services, settings = compose["services"], load_settings(str(DEPLOY / "compose-cluster-server.yaml"))
    for service in services.values():
        assert set(service.get("secrets", ())) <= set(compose["secrets"])
        assert set(service["networks"]) <= set(compose["networks"])
        named = {volume.split(":")[0] for volume in service["volumes"] if not volume.startswith("./")}
        assert named <= set(compose["volumes"])
    place = settings.engines["acme"].removeprefix("unix://")
    has_engine = {
        name
        for name, service in services.items()
        if any(place.startswith(volume.split(":")[1] + "/") for volume in service["volumes"])
    }
    assert has_engine == {"engine-acme", "worker-acme"}
    assert settings.engines["acme"] in services["engine-acme"]["command"]
    assert [name for name, service in services.items() if service.get("privileged")] == ["engine-acme"]
    assert services["engine-acme"]["networks"] == ["engine-acme"]
    for name in ("server", "worker", "worker-acme"):
        parsers = {"serve": serve_parser, "worker": worker_parser}
        verb, *options = services[name]["command"]
        parsers[verb]().parse_args(options)
