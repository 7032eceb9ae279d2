"""Running the process that identifies a tokenizer, whatever it does."""

import os
import threading
import time
from pathlib import Path

import pytest

from render import Renderer, fingerprint_child, fingerprints
from render.fingerprint_cache import FingerprintCache
from render.fingerprint_child import Deadline, NoFingerprint, run_child
from tests.render.fingerprinting import cache_files, compute


def module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str) -> None:
    """Let another program be the child process."""
    (tmp_path / "other_child.py").write_text(code)
    monkeypatch.setattr(fingerprint_child, "MODULE", "other_child")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.parametrize(
    ("code", "said"),
    [("import sys; sys.exit('nothing\\nmore')", "more"),
     ("raise ValueError('an odd file')", "ValueError: an odd file"),
     ("import os; os._exit(3)", "exit status 3"),
     ("import os; os.kill(os.getpid(), 9)", "exit status -9"),
     ("print('no json')", "no JSON"),
     ("print('[1]')", "no JSON"),
     ("print('{}')", "something else"),
     ("import os; os.write(1, b'\\xff' * 200_000)", "no JSON")],
)  # fmt: skip
def test_a_child_that_fails(
    tiny: Path, cache: FingerprintCache, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, code: str, said: str,
) -> None:  # fmt: skip
    """One line that tells why; nothing is kept."""
    module(monkeypatch, tmp_path, code)
    with pytest.raises(NoFingerprint, match=said) as raised:
        compute(tiny, cache, run_child)
    assert "\n" not in str(raised.value)
    assert cache_files(cache) == []


def test_a_child_that_hangs(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed when its time is up."""
    pid = tmp_path / "pid"
    module(
        monkeypatch, tmp_path,
        f"import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(1000)",
    )  # fmt: skip
    begun = time.monotonic()
    with pytest.raises(NoFingerprint, match="not done after 2 s"):
        run_child(tiny, tiny, Deadline(2))
    assert 1.9 < time.monotonic() - begun < 6
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def stopping(after_s: float) -> Deadline:
    """A deadline that is told to stop."""
    stopped = threading.Event()
    threading.Timer(after_s, stopped.set).start()
    return Deadline(60, stopped)


def test_told_to_stop(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the child runs, or while another process computes."""
    module(monkeypatch, tmp_path, "import time; time.sleep(1000)")
    begun = time.monotonic()
    with pytest.raises(NoFingerprint, match="stopped"):
        run_child(tiny, tiny, stopping(0.3))
    cache = FingerprintCache(tmp_path / "cache")
    with cache.alone(lambda: False), pytest.raises(NoFingerprint, match="stopped"):
        fingerprints.compute(
            Renderer.load(tiny), cache=cache, deadline=stopping(0.3), child=run_child
        )
    assert time.monotonic() - begun < 8


def test_a_talkative_child(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Much on stderr does not hold it up, and is not repeated."""
    code = "import sys; sys.stderr.write('x' * 10**7 + ' end'); print('{}')"
    module(monkeypatch, tmp_path, code)
    assert run_child(tiny, tiny, Deadline(30)) == {}
    module(monkeypatch, tmp_path, code + "; sys.exit(1)")
    with pytest.raises(NoFingerprint) as raised:
        run_child(tiny, tiny, Deadline(30))
    assert len(str(raised.value)) <= 300
