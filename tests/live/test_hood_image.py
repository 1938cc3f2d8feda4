"""The container image with `hood` in it that `make image` makes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import engine
import pytest
import sampling
from requirements import require

ROOT = Path(__file__).parents[2]
NAME = "hood:tested"
# A server and a client in one container, which has no cgroups to divide.
SERVE = """
echo 'strict: false' > /tmp/server.yaml
mkfifo /tmp/said
hood serve --config /tmp/server.yaml --init acme > /tmp/said 2>&1 &
while read -r line; do
    case $line in export*) eval "$line" ;; *listening*) break ;; esac
done < /tmp/said
hood run -c 'print(6 * 7)'
"""
OPTIONS = [f"--security-opt={name}=unconfined" for name in ("seccomp", "apparmor", "systempaths")]


@pytest.mark.skipif(not sampling.is_whole(), reason="make test-all makes the image, which takes a minute")
@pytest.mark.timeout(900)
def test_the_image_runs_programs_in_sandboxes_where_the_engine_lets_it_and_says_so_where_not() -> None:
    require(engine.missing() is None, engine.missing() or "")
    place = engine.use()
    made = subprocess.run(["sh", "scripts/image", NAME], cwd=ROOT, env={**os.environ, "DOCKER_HOST": place})
    assert made.returncode == 0
    try:
        run = engine.docker(engine.folder(), "run", "--rm", *OPTIONS, NAME, "run", "-c", "print(6 * 7)")
        assert (run.stdout, run.returncode) == ("42\n", 0), run.stderr
        plain = engine.docker(engine.folder(), "run", "--rm", NAME, "doctor")
        assert "Sandboxes do not work here." in plain.stdout
        assert plain.returncode == 1
        refused = engine.docker(engine.folder(), "run", "--rm", NAME, "run", "-c", "print(6 * 7)")
        assert "making a user namespace failed" in refused.stderr
        assert (refused.stdout, refused.returncode) == ("", 125)
        served = engine.docker(engine.folder(), "run", "--rm", "--entrypoint", "sh", *OPTIONS, NAME, "-c", SERVE)
        assert served.stdout == "42\n", served.stderr
    finally:
        engine.docker(engine.folder(), "image", "rm", "--force", NAME)
