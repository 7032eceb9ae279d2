"""What docs/access.md and SECURITY.md tell works: their commands, run as they stand."""

import json
import re
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from gateway.access.api_keys import as_toml, hash_of, read_keys
from tests.documents import ROOT
from tests.proxy.certificates import Authority

PAGE = (ROOT / "docs/access.md").read_text()
KEY = "kvg-of-somebody-who-came-later"


class Worker(BaseHTTPRequestHandler):
    """A worker that lists no models and answers with the key it was shown."""

    def do_GET(self) -> None:
        """Say nothing but yes."""
        body = json.dumps({"data": [], "shown": self.headers["Authorization"]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Not on standard error."""


@contextmanager
def working(tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """The port of a worker that runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Worker)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def command(*flags: str) -> list[str]:
    """The words of the page's one command of ours with these flags."""
    lines = re.findall(r"^    kv-gateway (.+)$", PAGE, re.MULTILINE)
    (line,) = [line for line in lines if all(flag in line for flag in flags)]
    return str(line).split(" >> ")[0].split()


@contextmanager
def running(words: list[str], directory: Path, **said: str) -> Iterator[str]:
    """The command, run where its files are, in front of another worker; its URL."""
    words = [said.get(word, word) for word in words]
    more = ["--host", "127.0.0.1", "--port", "0", "--render", "never"]
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway", *words, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=directory,
        env={"PYTHONPATH": str(ROOT)},
    )
    with process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            assert ready.startswith("ready "), process.stderr and process.stderr.read()
            yield ready.split()[1]
        finally:
            process.kill()


def ask(
    url: str, headers: Mapping[str, str] = {}, tls: ssl.SSLContext | None = None
) -> tuple[int, str]:
    """The status and body of a GET."""
    request = urllib.request.Request(url, headers=dict(headers))
    try:
        with urllib.request.urlopen(request, context=tls, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_keys_as_the_page_makes_them(tmp_path: Path) -> None:
    """Made, used, refused, and added while the gateway runs."""
    made = subprocess.run(
        [sys.executable, "-m", "gateway", *command("key", "--name")],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    shape = re.search(r"<!-- record -->\n(.*?)<!-- /record -->", PAGE, re.DOTALL)
    assert shape is not None
    hashless = re.compile("sha256:[0-9a-f]{64}")
    told = [line.strip() for line in shape[1].splitlines()]
    assert hashless.sub("", made.stdout).splitlines() == [
        hashless.sub("", line) for line in told
    ]
    path = tmp_path / "keys.toml"
    path.write_text(made.stdout)
    curl = re.search(r'^    curl .*(/v1/\S+) -H "(\S+): (\S+) \$KEY"$', PAGE, re.M)
    assert curl is not None
    route, header, scheme = curl.groups()
    with (
        working() as port,
        running(
            command("--api-keys-file"),
            tmp_path,
            **{"http://w1:8000": f"http://127.0.0.1:{port}"},
        ) as url,
    ):
        key = made.stderr.split()[-1]
        assert ask(url + route, {header: f"{scheme} {key}"})[0] == 200
        assert ask(url + route, {"x-api-key": key})[0] == 200
        status, body = ask(url + route)
        assert (status, json.loads(body)["error"]["code"]) == (401, None)
        shown = ask(url + "/v1/anything", {"x-api-key": key})[1]
        assert json.loads(shown)["shown"] == "Bearer THE-WORKERS-KEY"
        (record,) = read_keys(path)
        later = (
            as_toml(record).replace("team-a", "b").replace(record.hash, hash_of(KEY))
        )
        path.write_text(made.stdout + later)
        until = time.monotonic() + 10
        while ask(url + route, {"x-api-key": KEY})[0] != 200:
            assert time.monotonic() < until
            time.sleep(0.1)
        assert ask(url + "/health")[0] == 200


def test_tls_as_the_page_has_it(tmp_path: Path) -> None:
    """Both commands in one: https for clients, certificates to and of a worker."""
    ours = Authority(tmp_path, "all")
    for name in ("gateway", "gw"):
        ours.issue(name, "127.0.0.1")
    (tmp_path / "ca.pem").write_bytes(ours.file.read_bytes())
    tls = ours.server("127.0.0.1")
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_verify_locations(ours.file)
    words = command("--tls-cert") + command("--worker-cert")[2:]
    with (
        working(tls) as port,
        running(
            words, tmp_path, **{"https://w1:8443": f"https://127.0.0.1:{port}"}
        ) as url,
    ):
        assert url.startswith("https://")
        assert ask(url + "/v1/anything", tls=ours.client())[0] == 200
        assert ask(url + "/ready", tls=ours.client())[0] == 200
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            ask(url + "/health", tls=ssl.create_default_context())


def test_what_security_says_is_tested() -> None:
    """Every test that it names is there, and so is every option."""
    text = (ROOT / "SECURITY.md").read_text()
    named = re.findall(r"`(tests/[^`]+)`", text)
    assert len(named) > 15
    assert [path for path in named if not (ROOT / path).exists()] == []
    readme = (ROOT / "README.md").read_text()
    options = set(re.findall(r"`(--[a-z-]+)`", text))
    assert {option for option in options if f"`{option}" not in readme} == set()
