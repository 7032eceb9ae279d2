"""A prompt to ids: which of its parts are encoded together, and what is cut off."""

from render.encoder import Encoder
from render.errors import Unrenderable
from render.prompt import Prompt, truncated
from render.template import MAX_TEXT


def prompt_ids(encoder: Encoder, prompt: Prompt) -> bytes:
    """The ids of a prompt, as in Rendered; raises Unrenderable."""
    if prompt.given is not None:
        return truncated(prompt.given, prompt.cut, 0)
    if len(prompt.text or "") > MAX_TEXT:
        words = f"a prompt of {len(prompt.text or '')} characters"
        raise Unrenderable("too_large", words)
    ids = b"".join(_encoded(encoder, piece, prompt) for piece in prompt.pieces())
    if prompt.appended:
        ids += encoder.encode(prompt.appended, add_special_tokens=False)
        ids += encoder.after()
    return ids


def prompt_offsets(encoder: Encoder, prompt: Prompt) -> list[tuple[int, int]] | None:
    """Start and end of each id in the text, in characters.

    None for ids of no text, or of a text that is not encoded in one. Raises
    Unrenderable.
    """
    if prompt.text is None or prompt.appended or prompt.uncut:
        return None
    offsets = encoder.offsets(prompt.text, add_special_tokens=prompt.special)
    if prompt.cut is None:
        return offsets
    kept = min(prompt.cut.tokens, len(offsets))
    return offsets[:kept] if prompt.cut.keep_first else offsets[len(offsets) - kept :]


def _encoded(encoder: Encoder, text: str, prompt: Prompt) -> bytes:
    if prompt.cut is None:
        return encoder.encode(text, add_special_tokens=prompt.special)
    ids = encoder.encode(text, add_special_tokens=False)
    # As tokenizers truncates: room is left for what is added afterwards.
    ids = truncated(ids, prompt.cut, encoder.added_ids if prompt.special else 0)
    return encoder.surround(ids) if prompt.special else ids
