"""The model of the demo: a model directory unpacked once from package data.

It holds Qwen3's tokenizer and chat template (`data/LICENSE.qwen3`) and a
`config.json` of a few lines. It is not a model: there are no weights.
"""

import contextlib
import errno
import hashlib
import json
import lzma
import os
import shutil
import tempfile
from importlib import resources
from pathlib import Path

SHA256 = {
    "tokenizer.json": (
        "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4"
    ),
    "tokenizer_config.json": (
        "5a7303fcb1a27ede63134a2cbd61d5282c247ca6d769ce4746d4ffa124aedd63"
    ),
}
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "max_position_embeddings": 40960,
    "vocab_size": 151936,
}
NAME = "qwen3-demo"


def demo_model_dir(cache_dir: Path | None = None) -> Path:
    """The demo's model directory, unpacked first if it is not there yet.

    `cache_dir` is where to unpack; by default the user's cache directory
    (`$XDG_CACHE_HOME`, else `~/.cache`), or a per-user temporary one where that
    cannot be written. Several processes may call this at once. What is there
    already is verified by hash and made anew if it differs.
    Raises OSError if no directory can be written.
    """
    if cache_dir is not None:
        return _unpacked_in(cache_dir)
    try:
        return _unpacked_in(_user_cache_dir())
    except OSError:
        return _unpacked_in(_temporary_dir())


def _user_cache_dir() -> Path:
    configured = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(configured):
        base = Path(configured)
    else:
        base = Path(os.path.expanduser("~")) / ".cache"
    return base / "kv-gateway"


def _temporary_dir() -> Path:
    """A directory of this user alone: another's files are not to be trusted."""
    path = Path(tempfile.gettempdir()) / f"kv-gateway-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.getuid():
        return Path(tempfile.mkdtemp(prefix="kv-gateway-"))
    return path


def _unpacked_in(cache_dir: Path) -> Path:
    """The whole directory is built aside and renamed, so none is ever half made."""
    # The hash in the name: another version of the data never meets this one.
    target = cache_dir / f"{NAME}-{SHA256['tokenizer.json'][:12]}"
    if _is_whole(target):
        return target
    cache_dir.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{NAME}-", dir=cache_dir))
    try:
        _unpack(building)
        return _put_in_place(building, target)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _put_in_place(building: Path, target: Path) -> Path:
    """Rename `building` to `target`; where another process was first, use its work."""
    for _ in range(5):
        try:
            building.rename(target)
            return target
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
        if _is_whole(target):
            return target
        _move_away(target)
    raise OSError(errno.EBUSY, f"cannot replace the damaged {target}")


def _move_away(damaged: Path) -> None:
    aside = Path(tempfile.mkdtemp(prefix=".damaged-", dir=damaged.parent))
    with contextlib.suppress(FileNotFoundError):  # another process moved it
        damaged.rename(aside / damaged.name)
    shutil.rmtree(aside, ignore_errors=True)


def _is_whole(directory: Path) -> bool:
    try:
        config = (directory / "config.json").read_bytes()
        return config == _config() and all(
            _sha256((directory / name).read_bytes()) == digest
            for name, digest in SHA256.items()
        )
    except OSError:
        return False


def _unpack(directory: Path) -> None:
    data = resources.files("simworker") / "data"
    packed = (data / "tokenizer.json.xz").read_bytes()
    contents = {
        "tokenizer.json": lzma.decompress(packed),
        "tokenizer_config.json": (data / "tokenizer_config.json").read_bytes(),
        "config.json": _config(),
    }
    for name, content in contents.items():
        if name in SHA256 and _sha256(content) != SHA256[name]:
            raise OSError(errno.EIO, f"package data of {name} is damaged")
        (directory / name).write_bytes(content)
    directory.chmod(0o755)


def _config() -> bytes:
    return json.dumps(CONFIG, indent=2).encode() + b"\n"


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
