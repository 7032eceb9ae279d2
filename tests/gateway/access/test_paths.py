"""Which paths reach a worker."""

import pytest

from gateway.access.paths import asked_path, is_proxied


@pytest.mark.parametrize(
    "path",
    ["/v1/responses", "/v1/responses/abc/cancel", "/v1/embeddings", "/tokenize",
     "/inference/v1/generate", "/rerank"],
)  # fmt: skip
def test_inference_paths_are_proxied(path: str) -> None:
    """What clients use of a worker passes."""
    assert is_proxied(path, ())


@pytest.mark.parametrize(
    "path",
    ["/kv_cache_events", "/update_weights", "/collective_rpc", "/reset_prefix_cache",
     "/inference/v1/abort_requests", "/sleep", "/wake_up", "/pause",
     "/server_info", "/kv_event_sources", "/load",
     "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/../sleep",
     "/v1/./../sleep", "/v1//../sleep", "//sleep", "/", "/v1", "/v10/x", "/tokenizer"],
)  # fmt: skip
def test_control_routes_are_closed(path: str) -> None:
    """What steers a worker does not, however it is written."""
    assert not is_proxied(path, ())


@pytest.mark.parametrize(
    "path",
    [
        "/v1/..;/sleep",
        "/v1/..;a=b/sleep",
        "/v1/%2e%2E/sleep",
        "/v1/%252e./sleep",
        "/v1/..\\sleep",
        "/v1\\..\\sleep",
        "/v1/.. /sleep",
        "/v1/..?/sleep",
        "/v1/..%23",
        "/v1/a?/../../sleep",
        "/v1/a#/../load_lora_adapter",
        "/v1/a%3f/../../sleep",
        "/v1/a%23/..%2f../sleep",
        "/v1/a;/../../sleep",
        "/v1/a%253F/%252e%252e/sleep",
        "/v1/%25252e%25252e/sleep",
        "/v1/%2525252525252e",
        "/v1/a%250a",
        "/v1/a?/..",
        "/v1?/load_lora_adapter",
        "/v1/%2fload_lora_adapter",
        "/v1/load_lora_adapter;a",
        "/v1/LOAD_lora_adapter/",
        "/v1/load_lora_adapter ",
        "/v1/load_lora_adapter?",
        "/v1/load_lora_adapter#/x",
        "/v1/load%5flora_adapter",
    ],
)
def test_however_a_worker_may_read_it(path: str) -> None:
    """Closed stays closed for workers behind something that reads paths loosely."""
    assert not is_proxied(path, ())


@pytest.mark.parametrize(
    "path",
    ["/v1/a;b/c", "/v1/...", "/v1/a..b", "/v1/x%2f\\y", "/v1/.a",
     "/v1/files/100%", "/v1/files/a%20b", "/v1/files/what?", "/v1/files/a%2523b"]
)  # fmt: skip
def test_odd_but_harmless(path: str) -> None:
    """Nothing that leads elsewhere."""
    assert is_proxied(path, ())


@pytest.mark.parametrize("end", ["\n", "\r", "\0", "\x7f"])
def test_control_characters_are_not_proxied(end: str) -> None:
    """A line end after a path still matches a route of Starlette's."""
    assert not is_proxied("/v1/load_lora_adapter" + end, ())
    assert not is_proxied(f"/v1/a{end}b", ("/v1",))


def test_further_prefix() -> None:
    """--proxy-path opens a path and what is below it, not what begins alike."""
    assert is_proxied("/sleep", ("/sleep",))
    assert is_proxied("/sleep/now", ("/sleep",))
    assert not is_proxied("/sleepy", ("/sleep",))
    assert not is_proxied("/sleep/../x", ("/sleep",))


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/v1/x", "/v1/x"),
        (b"/v1/x?a=/sleep#b", "/v1/x"),
        (b"/v1/x#?", "/v1/x"),
        (b"/v1/%2e%2E/sleep", "/v1/../sleep"),
        (b"/%76%31/load_lora_adapter", "/v1/load_lora_adapter"),
        (b"/v1/%252e", "/v1/%2e"),
        (b"/v1/\xff", "/v1/\xff"),
        (b"*", "*"),
    ],
)
def test_the_path_that_a_worker_would_read(target: bytes, path: str) -> None:
    """Decoded once, without query and fragment, its dots left in."""
    assert asked_path(target) == path
