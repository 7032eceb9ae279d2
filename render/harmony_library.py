"""The library openai-harmony, an optional extra: what only it can write.

That is the system message and the descriptions of functions, as text: they are short,
and the same in most requests. It is never asked to encode a prompt, for it needs
quadratic time for a long word and lets no other thread run meanwhile.
"""

import base64
import hashlib
import json
import os
import re
import tempfile
import threading
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from render.errors import Unrenderable
from render.rust import RustFailed, rust

INSTALL = "gpt-oss is rendered by openai-harmony: pip install kv-gateway[harmony]"
VOCABULARY = "o200k_base.tiktoken"
VOCABULARY_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
BASE = "TIKTOKEN_ENCODINGS_BASE"
SYSTEM = ("<|start|>system<|message|>", "<|end|>")
NAMESPACE = (
    "<|start|>developer<|message|># Tools\n\n## functions\n\nnamespace functions {\n\n",
    "} // namespace functions<|end|>",
)
IDENTITY = "You are ChatGPT, a large language model trained by OpenAI."
EFFORTS = ("low", "medium", "high")
MAX_FUNCTION = 256 * 1024  # characters of one function's description
KEPT_FUNCTION = 16 * 1024  # characters of one that is remembered
LONGEST_INT = 18  # digits: what surely is no floating-point number there
# What the library would take too long for: it is quadratic in the length of a word.
LONG_WORD = re.compile(r"[^\s\d，。、；：]{4000}|\s{4000}")  # noqa: RUF001 - Chinese

_environment = threading.Lock()


class HarmonyUnusable(Exception):
    """The library cannot be used; `installed` is whether it is there at all."""

    def __init__(self, message: str, *, installed: bool = True) -> None:
        super().__init__(message)
        self.message = message
        self.installed = installed


class HarmonyLibrary:
    """The library with its encoding loaded; safe to use from several threads."""

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        """`vocabulary` is that of gpt-oss's tokenizer, without its added tokens.

        Takes a second, the first time. Raises HarmonyUnusable.
        """
        try:
            import openai_harmony
        except ImportError:
            raise HarmonyUnusable(INSTALL, installed=False) from None
        self._library: Any = openai_harmony
        try:
            self._encoding: Any = _encoding(openai_harmony, vocabulary)
        except RustFailed as error:
            raise HarmonyUnusable(f"openai-harmony cannot be used: {error}") from error
        self.system = lru_cache(maxsize=64)(self._system)
        self._remembered = lru_cache(maxsize=1024)(self._function)

    def function(self, function: Mapping[str, object]) -> str:
        """A function as the developer message describes it; raises Unrenderable.

        `function` has the keys name, description and parameters.
        """
        try:
            written = json.dumps(function, ensure_ascii=False)
        except (ValueError, RecursionError) as error:
            raise Unrenderable("bad_field", f"a function: {error}") from error
        if len(written) > MAX_FUNCTION or LONG_WORD.search(written.replace("\\n", " ")):
            raise Unrenderable("too_large", "the description of a function")
        if len(written) > KEPT_FUNCTION:
            return self._function(written)
        return self._remembered(written)

    def encode(self, text: str) -> list[int]:
        """The ids of a text in which special tokens are text; for short ones only."""
        ids: list[int] = self._encoding.encode(text, disallowed_special=())
        return ids

    def _system(self, effort: str, date: str, functions: bool) -> str:
        """The system message. `functions` is whether there are any to call."""
        content = (
            self._library.SystemContent.new()
            .with_model_identity(IDENTITY)
            .with_reasoning_effort(self._library.ReasoningEffort[effort.upper()])
            .with_conversation_start_date(date)
        )
        message = self._library.Message.from_role_and_content(
            self._library.Role.SYSTEM, content
        )
        return self._text(message, SYSTEM, functions=functions)

    def _function(self, written: str) -> str:
        function = json.loads(written, parse_float=_plain_float, parse_int=_plain_int)
        try:
            described = self._library.ToolDescription.new(
                function["name"], function["description"], function["parameters"]
            )
            content = self._library.DeveloperContent.new()
            content = content.with_function_tools([described])
            message = self._library.Message.from_role_and_content(
                self._library.Role.DEVELOPER, content
            )
            return rust(lambda: self._text(message, NAMESPACE, functions=False))
        except (RustFailed, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise Unrenderable("bad_field", f"a function: {reason}") from error

    def _text(self, message: Any, around: tuple[str, str], *, functions: bool) -> str:
        options = self._library.RenderOptions(conversation_has_function_tools=functions)
        ids = self._encoding.render(message, options)
        text: str = self._encoding.decode_utf8(ids)
        before, after = around
        if not (text.startswith(before) and text.endswith(after)):
            raise RustFailed("it writes messages in a way that is not known")
        return text[len(before) : len(text) - len(after)]


def _plain_float(written: str) -> float:
    """Releases of the library differ in how they write exponents."""
    if "e" in written.lower():
        raise Unrenderable("bad_field", f"a function with the number {written}")
    return float(written)


def _plain_int(written: str) -> int:
    if len(written) > LONGEST_INT:
        raise Unrenderable("bad_field", "a function with a number of many digits")
    return int(written)


def _encoding(library: Any, vocabulary: Mapping[str, int]) -> Any:
    """The encoding, without the download the library would try; raises RustFailed."""
    content = _vocabulary_file(vocabulary)
    if hashlib.sha256(content).hexdigest() != VOCABULARY_SHA256:
        raise RustFailed("the model's vocabulary is not that of gpt-oss")
    name = library.HarmonyEncodingName.HARMONY_GPT_OSS
    with _environment, tempfile.TemporaryDirectory() as directory:
        (Path(directory) / VOCABULARY).write_bytes(content)
        before = os.environ.get(BASE)
        os.environ[BASE] = directory
        try:
            return rust(lambda: library.load_harmony_encoding(name))
        finally:
            if before is None:
                del os.environ[BASE]
            else:
                os.environ[BASE] = before


def _vocabulary_file(vocabulary: Mapping[str, int]) -> bytes:
    """The vocabulary in tiktoken's format; raises RustFailed if it has none in it."""
    alphabet = _byte_alphabet()
    try:
        return b"".join(
            base64.b64encode(bytes(alphabet[letter] for letter in token))
            + b" %d\n" % token_id
            for token, token_id in sorted(vocabulary.items(), key=lambda item: item[1])
        )
    except KeyError:
        raise RustFailed("the model's vocabulary is not one of bytes") from None


def _byte_alphabet() -> dict[str, int]:
    """The letters that byte-level vocabularies spell bytes with."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + index): byte for index, byte in enumerate(others)
    }
