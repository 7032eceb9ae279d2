"""What a benchmark ran on, as one line."""

import importlib.metadata
import os
import platform
from pathlib import Path

PACKAGES = ("tokenizers", "fastokens", "transformers", "jinja2")


def machine(packages: tuple[str, ...] = PACKAGES) -> str:
    """Processor, system, Python and the packages' versions."""
    versions = ", ".join(f"{name} {_version(name)}" for name in packages)
    return (
        f"{os.cpu_count()} x {_processor()}, {platform.system()} "
        f"{platform.release().split('-')[0]}, Python {platform.python_version()}, "
        f"{versions}"
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = (line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    return next(names, platform.machine())
