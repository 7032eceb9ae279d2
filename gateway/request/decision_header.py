"""The header that tells a client where its request went, if the operator wants it.

A structured field (RFC 9651): ``worker="http://10.0.0.7:8000", rank=0, held=960,
uncached=64``, in tokens of the prompt as the decision took them.
"""

from gateway.request.headers import RawHeaders
from router.decision import Decision

HEADER = b"X-KV-Gateway-Decision"


def decision_header(decision: Decision) -> RawHeaders:
    """The header of an answer by the worker of this decision."""
    held = decision.hit_tokens
    uncached = max(0, decision.prompt_tokens - held)
    text = f'worker="{decision.worker.url}", rank={decision.rank}, '
    text += f"held={held}, uncached={uncached}"
    return [(HEADER, text.encode())]
