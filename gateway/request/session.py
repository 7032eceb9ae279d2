"""Which session a request belongs to, as clients and agents say it.

A header goes before the body, and what names a conversation before what names a user.
Only the first name counts; what it says is never looked into.
"""

from gateway.request.headers import RawHeaders
from gateway.request.peek import Peeked

HEADERS = (
    b"x-session-id",
    b"x-session-affinity",
    b"x-correlation-id",
    b"x-multi-turn-session-id",
    b"x-claude-code-session-id",
    b"x-dynamo-session-id",
    b"x-smg-routing-key",
    b"session-id",
    b"session_id",
    b"conversation-id",
    b"conversation_id",
    b"thread-id",
)
"""In their order: vLLM's, AIPerf's and TensorRT-LLM's, then those of agents."""
LONGEST = 512
"""Characters of a name; a longer one is none."""

_PLACES = {name: place for place, name in enumerate(HEADERS)}


def session_of(headers: RawHeaders, peeked: Peeked) -> str | None:
    """The session's name, or None where the client gave none."""
    found = len(HEADERS)
    name = b""
    for key, value in headers:
        place = _PLACES.get(key.lower(), found)
        value = value.strip()
        if place < found and 0 < len(value) <= LONGEST:
            found, name = place, value
    if name:
        return name.decode("latin-1")
    named = (peeked.session_id, peeked.conversation, peeked.user)
    return next((name for name in named if name and len(name) <= LONGEST), None)
