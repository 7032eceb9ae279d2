"""Options: declared once, read from flags and environment, refused in one line."""

import argparse
from pathlib import Path

import pytest

from gateway.errors import ConfigError
from gateway.settings import values
from gateway.settings.config import Config, worker_specs
from gateway.settings.memory import memory_bytes
from gateway.settings.options import add_arguments, markdown_table, options_of
from gateway.settings.reading import read
from gateway.settings.values import worker_url


def parse(*words: str, environment: dict[str, str] | None = None) -> Config:
    parser = argparse.ArgumentParser()
    add_arguments(parser, Config)
    return read(Config, parser.parse_args(words), environment or {})


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("w1", "http://w1:8000"),
        ("w1:9000", "http://w1:9000"),
        ("http://w1:8000/", "http://w1:8000"),
        ("http://w1", "http://w1"),
        ("https://w1/team-a", "https://w1/team-a"),
        ("[::1]:8001", "http://[::1]:8001"),
        ("[::1]", "http://[::1]:8000"),
        ("w1/team-a/", "http://w1:8000/team-a"),
        (" w1 ", "http://w1:8000"),
    ],
)
def test_worker_url(text: str, url: str) -> None:
    """Bare hosts get a scheme and vLLM's port; URLs keep what they say."""
    assert worker_url(text) == url


@pytest.mark.parametrize(
    "text",
    ["", "http://", "ftp://w1", "http://w1:99999", "http://u:p@w1", "w1:8000/v1",
     "http://w1?x=1", "http://w 1", "w1:0", "::1", "a" * 64, "http://w1/v1/", "w1:x"],
)  # fmt: skip
def test_bad_worker_url(text: str) -> None:
    """What is no worker's address is refused, naming the option."""
    with pytest.raises(ConfigError, match="--workers"):
        parse("--workers", text)


def test_defaults_and_flags() -> None:
    """A flag replaces the default, and nothing else."""
    config = parse("--workers", "w1,w2", "--policy", "random", "--port", "0")
    assert config.workers == (("http://w1:8000", "http://w2:8000"),)
    assert (config.policy, config.port) == ("random", 0)
    assert config.max_body == 128 * 1024 * 1024


def test_a_service_of_our_name_sets_no_port() -> None:
    """Kubernetes does, in every pod beside it, in a form that no option has."""
    for text in ("tcp://10.96.0.7:8080", "tcp://[fd00::7]:80", " udp://10.96.0.7:1 "):
        assert parse(environment={"KV_GATEWAY_PORT": text}).port == 8080
    assert parse(environment={"KV_GATEWAY_PORT": "9000"}).port == 9000
    with pytest.raises(ConfigError, match="KV_GATEWAY_PORT"):
        parse(environment={"KV_GATEWAY_PORT": "tcp://10.96.0.7"})


def test_environment_below_flags() -> None:
    """The environment sets what no flag sets; commas separate repeatable ones."""
    environment = {
        "KV_GATEWAY_POLICY": "random",
        "KV_GATEWAY_PORT": "9",
        "KV_GATEWAY_PROXY_PATH": "/a,/b",
        "KV_GATEWAY_CLIENT_RANK": "true",
    }
    config = parse("--port", "10", environment=environment)
    assert (config.policy, config.port) == ("random", 10)
    assert config.proxy_path == ("/a", "/b")
    assert config.client_rank


@pytest.mark.parametrize(
    "words",
    [
        ("--port", "70000"),
        ("--port", "x"),
        ("--policy", "best"),
        ("--prefill-rate", "0"),
        ("--prefill-rate", "nan"),
        ("--max-body", "-1"),
        ("--max-body", "0"),
        ("--index-memory", "0 GiB"),
        ("--kv-events", "w1"),
        ("--kv-events", "w1#x=tcp://h:1"),
        ("--kv-events", "w1=tcp://h"),
        ("--kv-events", "w1=tcp://h:http"),
        ("--admin-key", " "),
        ("--worker-api-key", ""),
        ("--render-threads", "1.5"),
        ("--port", "-1"),
        ("--suspect-ttl", "inf"),
        ("--health-interval", "1e-9"),
        ("--load-interval", "0.0099"),
        ("--load-interval", "-1"),
        ("--default-chat-template-kwargs", "[" * 100_000),
        ("--offload-weight", "2"),
        ("--default-chat-template-kwargs", "[1]"),
        ("--proxy-path", "x"),
        ("--proxy-path", "/gateway/x"),
        ("--model", "name="),
    ],
)
def test_bad_values(words: tuple[str, ...]) -> None:
    """A bad value is one line that names the option."""
    with pytest.raises(ConfigError) as error:
        parse(*words)
    assert words[0] in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.5, 86_400.0])
def test_intervals(seconds: float) -> None:
    """Never, or not so often that nothing else gets done."""
    words = ("--health-interval", str(seconds), "--load-interval", str(seconds))
    config = parse(*words)
    assert config.health_interval == config.load_interval == seconds


@pytest.mark.parametrize(
    ("text", "value"), [("7", 7), ("4 KiB", 4096), ("1M", 1 << 20), ("2GB", 2 << 30)]
)
def test_sizes(text: str, value: int) -> None:
    """Sizes take binary units."""
    assert values.size(text) == value


def test_worker_specs_say_what_workers_take() -> None:
    """One worker's word counts before that for all; without any it is asked."""
    config = parse(
        "--workers", "w1,w2", "--worker-api", "tokens", "--worker-api", "w2=chat"
    )  # fmt: skip
    assert [spec.api for spec in worker_specs(config)] == ["tokens", "chat"]
    assert [spec.api for spec in worker_specs(parse("--workers", "w1"))] == [None]
    never = parse("--workers", "w1", "--worker-api", "tokens", "--render", "never")
    with pytest.raises(ConfigError, match="needs rendering"):
        worker_specs(never)
    with pytest.raises(ConfigError, match="is not of the form"):
        parse("--workers", "w1", "--worker-api", "w1=poems")


def test_worker_specs_take_their_event_endpoints() -> None:
    """--kv-events belongs to a worker by URL and rank; repeated URLs count once."""
    config = parse(
        "--workers", "w1,w2,w1",
        "--kv-events", "w1=tcp://e:1",
        "--kv-events", "http://w1:8000#1=tcp://e:2",
    )  # fmt: skip
    first, second = worker_specs(config)
    assert first.kv_events == {0: "tcp://e:1", 1: "tcp://e:2"}
    assert second.kv_events == {}


@pytest.mark.parametrize(
    "endpoint",
    ["tcp://*:5557", "tcp://h:0", "tcp://h:65536", "tcp://a b:1", "tcp://h", "udp://h:1",
     "ipc://" + "a" * 101, "tcp://:1", "tcp://[::1:1"],
)  # fmt: skip
def test_endpoints_that_nobody_can_connect_to(endpoint: str) -> None:
    """Refused at the start: ZMQ would only wait."""
    with pytest.raises(ConfigError, match="--kv-events"):
        parse("--workers", "w1", "--kv-events", f"w1={endpoint}")


@pytest.mark.parametrize(
    "endpoint", ["tcp://h-1.x_y:1", "tcp://[::1]:65535", "ipc://@a"]
)
def test_endpoints(endpoint: str) -> None:
    """Names, addresses in brackets, local sockets."""
    config = parse("--workers", "w1", "--kv-events", f"w1={endpoint}")
    assert config.kv_events[0].endpoint == endpoint


def test_one_endpoint_per_rank() -> None:
    """Of two, one would be forgotten in silence."""
    config = parse(
        "--workers", "w1", "--kv-events", "w1=tcp://e:1", "--kv-events", "w1=tcp://e:2"
    )
    with pytest.raises(ConfigError, match="w1:8000#0 more than once"):
        worker_specs(config)


def test_a_long_value_is_not_repeated_whole() -> None:
    """A line stays a line."""
    for option in ("--index-memory", "--default-chat-template-kwargs", "--workers"):
        with pytest.raises(ConfigError) as error:
            parse(option, "9" * 100_000)
        assert len(str(error.value)) < 300


@pytest.mark.parametrize("key", ["", " ", "a b", "a\nb", "\x00", "schl\xfcssel"])
def test_no_key(key: str) -> None:
    """What cannot stand in a header."""
    for option in ("--admin-key", "--worker-api-key"):
        with pytest.raises(ConfigError, match=option) as error:
            parse(option, key)
        # What a key with a mistake in it is, is nobody's business.
        assert not key.strip() or repr(key) not in str(error.value)


def test_memory_of_a_container(tmp_path: Path) -> None:
    """A container's limit counts where there is one below the machine's memory."""
    machine = memory_bytes(tmp_path / "no such file")
    limit = tmp_path / "memory.max"
    for text, expected in (("1048576\n", 1 << 20), ("max\n", machine)):
        limit.write_text(text)
        assert memory_bytes(limit) == expected
    assert machine > 1 << 28


def test_model_directories_may_have_an_equals_sign(tmp_path: Path) -> None:
    """A directory that is there is no NAME=DIR; anything else with a = is."""
    directory = tmp_path / "step=100"
    directory.mkdir()
    given = parse("--model", str(directory), "--model", "a/b=/models/b")
    assert given.model == ((None, str(directory)), ("a/b", "/models/b"))


def test_events_of_an_unknown_worker() -> None:
    """An event source of no worker is a mistake, not ignored."""
    config = parse("--workers", "w1", "--kv-events", "w9=tcp://e:1")
    with pytest.raises(ConfigError, match="w9"):
        worker_specs(config)


def test_table_has_every_option() -> None:
    """The README's table is made of the same declarations."""
    table = markdown_table(options_of(Config))
    for declared in options_of(Config):
        assert declared.flag in table
        assert declared.help in table
