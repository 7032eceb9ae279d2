"""Standard streams that whoever starts a process has closed."""

import os
import subprocess
import sys

SHOW = """
import os, sys
from gateway.cli import main
try:
    main(["--version"])
except SystemExit:
    pass
opened = os.open("/dev/zero", os.O_RDONLY)
print("output")
print("error", file=sys.stderr)
places = [os.readlink(f"/proc/self/fd/{n}") for n in range(3)]
with open(sys.argv[1], "w") as file:
    print(opened > 2, *places, file=file)
"""


def places(tmp_path: os.PathLike[str], *closed: int) -> list[str]:
    """Whether what is opened later comes later, and what is at the first places."""
    told = os.path.join(tmp_path, "told")
    shut = " ".join(f"{number}>&-" for number in closed)
    shell = f'exec "$0" -c "$1" "$2" {shut}'
    subprocess.run(
        ["sh", "-c", shell, sys.executable, SHOW, told],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=30,
    )
    with open(told) as file:
        return file.read().split()


def test_closed_streams_lead_nowhere(tmp_path: os.PathLike[str]) -> None:
    """No file or connection takes their places."""
    assert places(tmp_path, 0, 1, 2) == ["True", *["/dev/null"] * 3]


def test_open_streams_stay(tmp_path: os.PathLike[str]) -> None:
    """The others are as they were."""
    later, given, output, error = places(tmp_path, 2)
    assert (later, given, error) == ("True", "/dev/null", "/dev/null")
    assert output.startswith("pipe:")


SAY = """
import sys
from gateway.streams import say
say("ready")
say("again")
print("on", file=sys.stderr)
"""


def test_a_line_that_nobody_takes() -> None:
    """A disk that is full ends no server, and its exit status stays what it is."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", SAY],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=30,
        )
    assert (done.returncode, done.stderr) == (
        0,
        "standard output takes nothing: No space left on device\non\n",
    )
