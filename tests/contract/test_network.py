"""Going out: what the rules allow works for any program, the rest is refused at once, and both are told."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from operator import itemgetter

import pytest
from outside import SECRET_VARIABLE, TOKEN, Outside, open_outside

from fumehood import Policy, RunResult, Sandbox, UsageError
from fumehood.policy.learned_rules import learn

TOOLS = """
import json, os, socket, ssl, sys, urllib.error, urllib.request

def get(url, by_proxy=False, **headers):
    handlers = [] if by_proxy else [urllib.request.ProxyHandler({})]
    try:
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.build_opener(*handlers).open(request, timeout=10) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode()}"
    except urllib.error.URLError as error:
        return f"{type(error.reason).__name__}"
    except OSError as error:
        return f"{type(error).__name__}"
"""


@pytest.fixture(scope="module")
def outside() -> Iterator[Outside]:
    os.environ[SECRET_VARIABLE] = TOKEN
    with open_outside() as opened:
        yield opened
    del os.environ[SECRET_VARIABLE]


@pytest.fixture
def sections(outside: Outside) -> dict[str, object]:
    return {"network": {"allow": outside.rules()}, "secrets": outside.secrets()}


@pytest.fixture
def travelling(lend_box: Callable[..., Sandbox], sections: dict[str, object]) -> Sandbox:
    return lend_box(**sections)


def run(box: Sandbox, code: str, **options: object) -> RunResult:
    result = box.run(TOOLS + code, **options)  # type: ignore[arg-type]
    assert result.stderr == ""
    return result


def told(result: RunResult) -> list[str]:
    return [denial.what for denial in result.denials]


BY_PROXY = pytest.mark.parametrize("by_proxy", [False, True], ids=["by its name", "by the proxy"])


@BY_PROXY
def test_http_goes_out(travelling: Sandbox, outside: Outside, by_proxy: bool) -> None:
    result = run(travelling, f"print(get('http://open.example:{outside.web.port}/a?b=c', {by_proxy}))")
    assert json.loads(result.stdout)["path"] == "/a?b=c"
    assert result.denials == ()


@pytest.mark.every_parameter
@BY_PROXY
@pytest.mark.parametrize("host", ["secure.example", "reader.example"], ids=["passed through", "intercepted"])
def test_https_goes_out_and_is_trusted(travelling: Sandbox, outside: Outside, host: str, by_proxy: bool) -> None:
    result = run(travelling, f"print(get('https://{host}:{outside.secure.port}/open/x', {by_proxy}))")
    assert json.loads(result.stdout)["path"] == "/open/x"
    assert result.denials == ()


def test_any_protocol_goes_out_where_a_rule_says_tcp(travelling: Sandbox, outside: Outside) -> None:
    code = f"""
with socket.create_connection(("raw.example", {outside.raw.port}), 10) as line:
    line.sendall(b"\\0 anything")
    print(line.recv(100))
"""
    assert run(travelling, code).stdout == "b'\\x00 anything'\n"


def test_much_goes_out_and_comes_back_whole(travelling: Sandbox, outside: Outside) -> None:
    code = f"""
import hashlib, threading
data = os.urandom(1 << 20) * 8
with socket.create_connection(("raw.example", {outside.raw.port}), 10) as line:
    sender = threading.Thread(target=lambda: (line.sendall(data), line.shutdown(socket.SHUT_WR)))
    sender.start()
    digest = hashlib.sha256()
    while more := line.recv(1 << 16):
        digest.update(more)
    sender.join()
print(digest.hexdigest() == hashlib.sha256(data).hexdigest())
"""
    assert run(travelling, code).stdout == "True\n"


def test_what_no_rule_allows_is_refused_at_once_and_told(travelling: Sandbox, outside: Outside) -> None:
    result = run(travelling, f"print(get('http://elsewhere.example:{outside.web.port}/'))")
    assert result.stdout == "gaierror\n"
    (denial,) = result.denials
    assert (denial.kind, denial.host) == ("dns", "elsewhere.example")
    assert "add {host: elsewhere.example" in denial.remedy


@pytest.mark.one_container
def test_the_same_refusal_is_told_once_with_a_count(travelling: Sandbox) -> None:
    result = run(travelling, "for _ in range(3): get('http://elsewhere.example/')")
    (denial,) = result.denials
    assert denial.count >= 3


@pytest.mark.one_container
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_request_that_the_rule_does_not_list_gets_an_answer_that_says_so(
    travelling: Sandbox, outside: Outside, scheme: str
) -> None:
    host = f"plain.example:{outside.web.port}" if scheme == "http" else f"reader.example:{outside.secure.port}"
    result = run(travelling, f"print(get('{scheme}://{host}/closed'))")
    code, _, body = result.stdout.partition(" ")
    assert code == "403"
    assert "path" in json.loads(body)["why"]
    assert [(denial.kind, denial.method, denial.path) for denial in result.denials] == [("http", "GET", "/closed")]


@pytest.mark.one_container
def test_each_run_is_told_of_its_own_refusals(travelling: Sandbox) -> None:
    first = run(travelling, "get('http://first.example/')")
    second = run(travelling, "get('http://second.example/')")
    assert (told(first), told(second)) == (["dns first.example"], ["dns second.example"])


@pytest.mark.one_container
def test_a_stream_tells_at_its_end(travelling: Sandbox) -> None:
    *_, last = travelling.stream(TOOLS + "get('http://elsewhere.example/')")
    assert told(last.result) == ["dns elsewhere.example"]  # type: ignore[union-attr]


@pytest.mark.one_container
def test_a_session_goes_out_and_each_of_its_runs_is_told(travelling: Sandbox, outside: Outside) -> None:
    with travelling.session() as session:
        session.run(TOOLS)
        result = session.run(f"print(get('http://open.example:{outside.web.port}/in-a-session'))")
        assert json.loads(result.stdout)["path"] == "/in-a-session"
        refused = session.run("get('http://elsewhere.example/')")
        after = session.run("1")
    assert (told(result), told(refused), told(after)) == ([], ["dns elsewhere.example"], [])


def test_a_run_in_the_background_goes_out_while_nobody_looks(travelling: Sandbox, outside: Outside) -> None:
    going = travelling.start(TOOLS + f"get('http://open.example:{outside.web.port}/background'); print('done')")
    assert any("/background" in map(itemgetter("path"), outside.web.requests) for _ in patiently())
    assert going.wait().stdout == "done\n"


def patiently() -> Iterator[None]:
    for _ in range(2000):
        yield
        time.sleep(0.01)


@pytest.mark.one_container
def test_a_command_and_its_children_go_out(travelling: Sandbox, outside: Outside) -> None:
    code = f"import urllib.request; urllib.request.urlopen('http://open.example:{outside.web.port}/child')"
    result = travelling.run(argv=["sh", "-c", f'exec 2>&1; python3 -c "{code}" && echo went'])
    assert result.stdout == "went\n"


def test_an_ended_run_leaves_no_connection(travelling: Sandbox, outside: Outside) -> None:
    code = f"""
line = socket.create_connection(("raw.example", {outside.raw.port}), 10)
line.sendall(b"x")
line.recv(1)
"""
    before = outside.raw.connections
    assert run(travelling, code).ok
    assert outside.raw.connections == before + 1


def test_a_secret_goes_to_its_host_and_is_nowhere_inside(travelling: Sandbox, outside: Outside) -> None:
    code = f"""
print(get("https://token.example:{outside.secure.port}/who", Authorization="Bearer mine"))
print(get("https://reader.example:{outside.secure.port}/open/other"))
"""
    result = run(travelling, code)
    asked = {request["path"]: request["headers"] for request in outside.secure.requests[-2:]}
    assert asked["/who"]["Authorization"] == f"Bearer {TOKEN}"  # type: ignore[index]
    assert TOKEN not in str(asked["/open/other"])
    assert TOKEN not in result.stdout
    assert TOKEN not in repr(result)


def test_a_secret_is_in_no_memory_file_or_variable_inside(
    open_box: Callable[..., Sandbox], sections: dict[str, object], outside: Outside
) -> None:
    box = open_box(**sections, filesystem={"outputs": ["all"]}, resources={"artifacts_size": "200M"})
    code = f"""
answer = get("https://token.example:{outside.secure.port}/who")
marker = "-".join(["a marker", "that only", "memory has"])
with open("all", "wb") as everything:
    everything.write(repr(os.environ).encode())
    places = ("/etc", "/run", "/tmp", "/dev/shm")
    for path in (f"{{folder}}/{{name}}" for place in places for folder, _, names in os.walk(place) for name in names):
        try:
            with open(path, "rb") as stream:
                everything.write(stream.read(1 << 20))
        except OSError:
            pass
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
        for line in maps.readlines():
            where, rights, *_ = line.split()
            start, end = (int(part, 16) for part in where.split("-"))
            if rights.startswith("rw"):
                try:
                    memory.seek(start)
                    everything.write(memory.read(end - start))
                except (OSError, ValueError, OverflowError):
                    pass
print(json.loads(answer)["path"])
"""
    assert run(box, code).stdout == "/who\n"
    everything = box.files.read("all")
    assert b"a marker-that only-memory has" in everything
    assert TOKEN.encode() not in everything
    assert outside.secure.requests[-1]["headers"]["Authorization"] == f"Bearer {TOKEN}"  # type: ignore[index]


@pytest.mark.one_container
def test_rules_change_while_a_run_goes_on(
    open_box: Callable[..., Sandbox], make_policy: Callable[..., Policy], outside: Outside
) -> None:
    raw = {"host": "raw.example", "ports": [outside.raw.port], "private": True}
    web = {"host": "open.example", "ports": [outside.web.port], "protocol": "http", "private": True}
    box = open_box(network={"allow": [raw]})
    code = f"""
line = socket.create_connection(("raw.example", {outside.raw.port}), 10)
line.sendall(b"x")
print(line.recv(1), get("http://open.example:{outside.web.port}/early"), flush=True)
sys.stdin.readline()
try:
    print("still open" if line.recv(1) else "closed")
except OSError as error:
    print("closed")
print(json.loads(get("http://open.example:{outside.web.port}/late"))["path"])
"""
    going = box.start(TOOLS + code)
    output = b""
    for event in going.stream():
        output += getattr(event, "data", b"")
        if output.endswith(b"gaierror\n"):
            box.change_policy(make_policy(network={"allow": [web]}))
            going.write("go on\n")
    assert output.decode() == "b'x' gaierror\nclosed\n/late\n"


def test_a_sandbox_can_be_cut_off(
    open_box: Callable[..., Sandbox], make_policy: Callable[..., Policy], outside: Outside
) -> None:
    box = open_box(network={"allow": [{"host": "raw.example", "ports": [outside.raw.port], "private": True}]})
    box.change_policy(make_policy())
    result = run(box, "print(get('http://raw.example/'))")
    assert (result.stdout, told(result)) == ("gaierror\n", ["dns raw.example"])


@pytest.mark.one_container
def test_nothing_but_the_rules_can_change(open_box: Callable[..., Sandbox], make_policy: Callable[..., Policy]) -> None:
    rules = {"allow": [{"host": "open.example", "ports": [443]}]}
    box = open_box(network=rules)
    with pytest.raises(UsageError, match="other network rules and nothing else; this lowers memory"):
        box.change_policy(make_policy(network=rules, resources={"memory": "64M"}))
    with pytest.raises(UsageError, match="opened without network rules"):
        open_box().change_policy(make_policy(network=rules))


@pytest.mark.one_container
def test_the_way_out_is_in_the_report(travelling: Sandbox) -> None:
    assert "gateway" in travelling.enforcement["network.allow"]
    assert "never enter the sandbox" in travelling.enforcement["secrets"]


@pytest.mark.one_container
def test_a_missing_secret_is_one_clear_error(make_policy: Callable[..., Policy], outside: Outside) -> None:
    secret = {"name": "T", "from_env": "FUMEHOOD_NO_SUCH_VARIABLE", "inject": {"host": "token.example"}}
    policy = make_policy(network={"allow": outside.rules()}, secrets=[secret])
    with pytest.raises(UsageError, match="FUMEHOOD_NO_SUCH_VARIABLE"), Sandbox(policy):
        pytest.fail("it opened")


@pytest.mark.one_container
def test_learning_lets_nothing_out_and_tells_what_was_tried(
    make_policy: Callable[..., Policy], outside: Outside
) -> None:
    asked = len(outside.web.requests) + len(outside.secure.requests) + outside.raw.connections
    code = f"""
for by_proxy in (False, True):
    get("http://open.example:{outside.web.port}/plain", by_proxy)
    get("https://secure.example:{outside.secure.port}/secret?a=b", by_proxy)
get("http://other.example/x")
get("https://odd.example:12345/", True)
try:
    with socket.create_connection(("db.example", 5432), 10) as line:
        line.sendall(b"\\0\\0\\0\\x08")
        line.recv(1)
except OSError:
    pass
"""
    with Sandbox(make_policy(network={"allow": outside.rules()}), learn=True) as box:
        result = run(box, code)
    assert len(outside.web.requests) + len(outside.secure.requests) + outside.raw.connections == asked
    assert {(denial.kind, denial.host, denial.port, denial.path) for denial in result.denials} == {
        ("http", "open.example", outside.web.port, "/plain"),
        ("http", "secure.example", outside.secure.port, "/secret"),
        ("http", "other.example", 80, "/x"),
        ("http", "odd.example", 12345, "/"),
        ("connect", "db.example", 5432, ""),
    }


@pytest.mark.one_container
def test_what_was_learned_works(make_policy: Callable[..., Policy], outside: Outside) -> None:
    code = f"""
print(len(get("http://open.example:{outside.web.port}/one")), len(get("https://secure.example:{outside.secure.port}/two")))
"""
    # Only the ports are taken from it: those of the tests' servers are not among the usual ones.
    with Sandbox(make_policy(network={"allow": outside.rules()}), learn=True) as box:
        learned = learn(make_policy(), run(box, code).denials)
    rules = [rule.model_dump(exclude_none=True) for rule in Policy.loads(learned.to_yaml()).network.allow]
    assert [(rule["host"], rule["methods"], rule["paths"]) for rule in rules] == [
        ("open.example", ("GET",), ("/one",)),
        ("secure.example", ("GET",), ("/two",)),
    ]
    # A name says nothing of where it leads, and learning asks nobody: that these are on this machine is for people.
    reviewed = make_policy(network={"allow": [{**rule, "private": True} for rule in rules]})
    with Sandbox(reviewed) as box:
        result = run(box, code)
    assert result.denials == ()
    assert "0" not in result.stdout.split()


def test_more_connections_than_a_sandbox_may_have_are_refused_and_the_rest_goes_on(
    travelling: Sandbox, outside: Outside
) -> None:
    code = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
lines, refused = [], 0
for _ in range(400):
    line = socket.socket()
    line.settimeout(20)
    try:
        line.connect(("raw.example", {outside.raw.port}))
        line.sendall(b"x")
        lines.append(line) if line.recv(1) == b"x" else line.close()
    except OSError:
        refused += 1
        line.close()
        if len(lines) > 100:
            break
for line in lines:
    line.sendall(b"y")
print(all(line.recv(1) == b"y" for line in lines), len(lines) > 100)
for line in lines:
    line.close()
print(json.loads(get("http://open.example:{outside.web.port}/after"))["path"])
"""
    assert run(travelling, code).stdout == "True True\n/after\n"


@pytest.mark.one_container
def test_runs_at_the_same_time_are_each_told(travelling: Sandbox) -> None:
    waiting = TOOLS + "print(flush=True); sys.stdin.readline(); get(f'http://{sys.argv[1]}.example/')"
    runs = [travelling.start(waiting, args=[name]) for name in ("one", "two")]
    for going in runs:
        going.write("go on\n")
    results = [going.wait() for going in runs]
    for name, result in zip(("one", "two"), results, strict=True):
        assert f"dns {name}.example" in told(result)


MISSES = {
    "a name": "import socket; socket.getaddrinfo('example.com', 443)",
    "an address": "import socket; socket.create_connection(('203.0.113.9', 443), 10)",
    "a request": "import urllib.request; urllib.request.urlopen('http://example.com/')",
}


@pytest.mark.one_container
@pytest.mark.parametrize("code", MISSES.values(), ids=MISSES)
def test_a_program_that_finds_no_network_is_told_how_to_open_one(lend_box: Callable[..., Sandbox], code: str) -> None:
    box = lend_box()
    *_, finished = box.stream(code)
    for result in (box.run(code), finished.result):  # type: ignore[union-attr]
        assert result.detail.startswith("the network is closed; add a rule such as {host: ")


@pytest.mark.one_container
def test_nobody_is_told_of_a_closed_network_who_did_not_fail_for_it(
    lend_box: Callable[..., Sandbox], sections: dict[str, object]
) -> None:
    words = "import sys; print('Could not resolve host', file=sys.stderr)"
    assert lend_box().run(words).detail == ""
    assert lend_box().run("raise SystemExit(3)").detail == ""
    assert lend_box(**sections).run(f"{words}; raise SystemExit(3)").detail == ""


@pytest.mark.one_container
def test_a_host_that_is_allowed_and_refuses_is_in_the_result(open_box: Callable[..., Sandbox]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]  # free, and closed by the time of the run
    box = open_box(network={"allow": [{"host": "127.0.0.1", "ports": [port], "private": True}]})
    code = f"import socket; socket.create_connection(('127.0.0.1', {port})).recv(1)[0]"
    refused = f"the policy allows it, but 127.0.0.1:{port} cannot be reached: Connection refused"
    assert box.run(code).detail == refused
    assert box.run("raise SystemExit(3)").detail == ""
    missing = box.run(f"try:\n    {code}\nexcept (OSError, IndexError):\n    pass\nimport numpie")
    assert missing.detail.startswith("there is no module numpie")
