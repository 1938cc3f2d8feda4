"""A published port in a real browser, and on the command line."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import anyio.to_thread
import pytest
import web_server
from live import browser
from requirements import require

from fumehood import AsyncSandbox, Policy, Stdout

pytestmark = pytest.mark.anyio
POLICY = Policy(network={"publish": [web_server.PORT]}, resources={"timeout": "5m"})
STEAL = """
const address = 'ADDRESS';
const tries = [fetch(address, {credentials: 'include'}).then(answer => answer.text()),
  new Promise((resolve, reject) => {
    const socket = new WebSocket(address.replace('http', 'ws') + 'echo');
    socket.onopen = () => resolve('open');
    socket.onerror = () => reject('shut');
  }),
  new Promise((resolve, reject) => {
    const script = document.createElement('script');
    [script.onload, script.onerror] = [() => resolve('loaded'), () => reject('shut')];
    script.src = address + 'script.js';
    document.head.append(script);
  })];
return (await Promise.allSettled(tries)).map(each => each.status).join(' ');
"""


async def test_a_page_with_its_parts_and_a_websocket_is_seen_in_a_browser_and_by_no_other_page(tmp_path: Path) -> None:
    require(browser.missing() is None, browser.missing() or "")
    async with AsyncSandbox(POLICY) as box:
        run = await box.start(web_server.SERVER)
        port = await box.expose(web_server.PORT)
        await port.wait_ready()
        printed = b""
        with browser.visiting(port.url, tmp_path / "profile"):
            async for event in run.stream():
                assert isinstance(event, Stdout), event
                printed += event.data  # a line can arrive in parts
                if printed.endswith(b"\n"):
                    break
        word, colour, cookies, search, referrer = printed.decode().removeprefix("outcome ").strip("\n").split("|")
        assert (word, colour) == ("echo marco", "rgb(1, 2, 3)")
        assert (cookies, search, referrer) == ("", "", "")  # the token is in no place that a page can read
        with browser.site() as site:  # with the profile that has the cookie
            script = STEAL.replace("ADDRESS", port.url.partition("?")[0])
            origin = f"http://127.0.0.1:{site.port}"
            outcome = await anyio.to_thread.run_sync(site.outcome, origin, script, tmp_path / "profile")
        assert outcome == "rejected rejected rejected"


def test_the_command_line_prints_the_address_and_serves_until_it_is_stopped(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(web_server.SERVER)
    command = [sys.executable, "-m", "fumehood", "run", "--no-config", "--publish", "8000", str(program)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = re.fullmatch(r"hood: port 8000 is at (http://\S+)\n", process.stderr.readline())
        assert address is not None
        jar = tmp_path / "cookies"
        curl = ["curl", "--silent", "--location", "--cookie-jar", jar, "--cookie", jar, address[1]]
        page = subprocess.run(curl, capture_output=True, text=True, check=True).stdout
        process.send_signal(signal.SIGINT)
        assert process.stderr.read().endswith("hood: stopped by SIGINT\n")
    assert "hello" in page
    assert process.returncode == 130
    assert subprocess.run(curl).returncode == 7  # nothing listens there any more
