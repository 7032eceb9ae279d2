"""Virtual environments of their own for programs that benchmarks compare with.

Each is made once, of pinned requirements, below a directory; what cannot be installed
is told as one line of the installer's, so that a benchmark can go on without it.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

INSTALL_S = 1800.0
DIRECTORY = Path("build/environments")
"""Where they are made, unless one says otherwise."""


class NotInstalled(Exception):
    """It could not be installed: why, in one line."""


class Requirements(msgspec.Struct, frozen=True):
    """What an environment holds: `alone` comes without what it depends on."""

    name: str
    packages: Sequence[str] = ()
    alone: Sequence[str] = ()


def python_of(directory: Path, requirements: Requirements) -> Path:
    """The interpreter of an environment, made if it is missing. Raises NotInstalled."""
    home = (directory / requirements.name).absolute()
    python, done = home / "bin" / "python", home / "installed"
    wanted = " ".join([*requirements.alone, *requirements.packages])
    if done.exists() and done.read_text() == wanted:
        return python
    print(f"installing {wanted} into {home}", file=sys.stderr)
    _run(sys.executable, "-m", "venv", "--clear", str(home))
    if requirements.alone:
        _install(python, "--no-deps", *requirements.alone)
    if requirements.packages:
        _install(python, *requirements.packages)
    done.write_text(wanted)
    return python


def _install(python: Path, *words: str) -> None:
    _run(str(python), "-m", "pip", "install", "--quiet", *words)


def _run(*words: str) -> None:
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=INSTALL_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(str(error)) from error
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["the installer said nothing"]
        errors = [line for line in said if line.startswith("ERROR")]
        raise NotInstalled((errors or said)[-1])
