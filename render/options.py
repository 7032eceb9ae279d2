"""How a model's render endpoints behave."""

import msgspec

from render.refused import Dialect


class RenderOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a model's render endpoints behave.

    `served_model_names` are the names a request may use; `max_model_len` is in tokens,
    None: as the model's configuration says. The parsers are named as the workers'
    options name them.
    """

    served_model_names: tuple[str, ...]
    max_model_len: int | None = None
    reasoning_parser: str | None = None
    tool_call_parser: str | None = None
    trust_request_chat_template: bool = False
    dialect: Dialect = "union"

    @property
    def parses(self) -> bool:
        """Whether there is a parser."""
        return bool(self.reasoning_parser or self.tool_call_parser)
