"""`kv-gateway render` on the command line: mistakes, the ready line, signals."""

import http.client
import json
import signal
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.command import refused, serving

NOWHERE = "/no/such/model"


def asked(url: str, body: Any = None, **headers: str) -> Any:
    """The JSON of a GET, or of a POST where there is a body."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} | headers
    request = urllib.request.Request(url, data, headers)
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--model DIR_OR_ID is missing"),
        (("--model", NOWHERE), NOWHERE),
        (("--model", "nobody/nothing"), "nobody/nothing"),
        (("--model",), "--model"),
        (("--model", NOWHERE, "--port", "x"), "--port 'x'"),
        (("--model", NOWHERE, "--port", "70000"), "--port '70000'"),
        (("--model", NOWHERE, "--reasoning-parser", "qwen33"), "'qwen33'"),
        (("--model", NOWHERE, "--reasoning-parser", ""), "--reasoning-parser ''"),
        (("--model", NOWHERE, "--tool-call-parser", "Hermes"), "'Hermes'"),
        (("--model", NOWHERE, "--max-model-len", "0"), "--max-model-len '0'"),
        (("--model", NOWHERE, "--profile", "tgi"), "--profile 'tgi'"),
        (("--model", NOWHERE, "--render-dialect", "x"), "--render-dialect 'x'"),
        (("--model", NOWHERE, "--api-key", " "), "--api-key ' '"),
        (("--model", NOWHERE, "--default-chat-template-kwargs", "[]"), "JSON object"),
        (("--model", NOWHERE, "--workers", "w1"), "--workers"),
        (("--model", NOWHERE, "extra"), "extra"),
    ],
)  # fmt: skip
def test_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    """One line on stderr that names the mistake; status 2."""
    assert said in refused(capsys, "render", *words)


def test_a_missing_tokenizer(
    capsys: pytest.CaptureFixture[str], model_dir: Path
) -> None:
    """What `--tokenizer` names must be there, too."""
    words = ("--model", str(model_dir), "--tokenizer", NOWHERE)
    assert NOWHERE in refused(capsys, "render", *words)


def test_a_missing_chat_template(
    capsys: pytest.CaptureFixture[str], model_dir: Path
) -> None:
    """A template that is neither a file nor a text is named."""
    words = ("--model", str(model_dir), "--chat-template", "/no/such.jinja")
    assert "/no/such.jinja" in refused(capsys, "render", *words)


def test_port_in_use(
    capsys: pytest.CaptureFixture[str], small_model_dir: Path, busy_port: int
) -> None:
    """The port is named."""
    model = ("--model", str(small_model_dir))
    words = (*model, "--host", "127.0.0.1", "--port", str(busy_port))
    assert f"127.0.0.1:{busy_port} is in use" in refused(capsys, "render", *words)


def test_it_serves_until_a_signal(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One ready line, answers, status 0 after SIGTERM; options from both sources."""
    monkeypatch.setenv("KV_GATEWAY_SERVED_MODEL_NAME", "one,two")
    monkeypatch.setenv("KV_GATEWAY_API_KEY", "secret")
    words = ("--model", str(model_dir), "--host", "127.0.0.1", "--port", "0")
    with serving("render", *words) as (process, url):
        key = {"Authorization": "Bearer secret"}
        assert asked(url + "/health") == {"status": "ok"}
        assert asked(url + "/server_info", **key)["model"] == "one"
        body = {"model": "two", "messages": [{"role": "user", "content": "hi"}]}
        answer = asked(url + "/v1/chat/completions/render", body, **key)
        assert answer["token_ids"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert process.stdout is not None
        assert process.stdout.read() == ""
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


ENDLESS = (
    "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}"
    "{% endfor %}{% endfor %}{% endfor %}"
)


def test_an_endless_rendering_does_not_keep_it(small_model_dir: Path) -> None:
    """SIGTERM ends it, whatever a thread is still at."""
    words = ("--model", str(small_model_dir), "--host", "127.0.0.1", "--port", "0",
             "--trust-request-chat-template", "--drain-delay", "0",
             "--drain-timeout", "0.2")  # fmt: skip
    with serving("render", *words) as (process, url):
        body = json.dumps({"messages": [{"role": "user", "content": "hi"}],
                           "chat_template": ENDLESS})  # fmt: skip
        host, _, port = url.removeprefix("http://").partition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=10)
        connection.request(
            "POST",
            "/v1/chat/completions/render",
            body,
            {"Content-Type": "application/json"},
        )
        assert asked(url + "/health") == {"status": "ok"}
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        connection.close()
