"""Log probabilities of a model that has none: every token is as sure as the next."""

from collections.abc import Sequence

from render.body import Json

LOGPROB = -0.1


def completion_logprobs(pieces: Sequence[str], offset: int) -> Json:
    """`logprobs` of some tokens of a completions answer, `offset` characters in."""
    offsets = []
    for piece in pieces:
        offsets.append(offset)
        offset += len(piece)
    return {
        "text_offset": offsets,
        "token_logprobs": [LOGPROB] * len(pieces),
        "tokens": list(pieces),
        "top_logprobs": [{piece: LOGPROB} for piece in pieces],
    }
