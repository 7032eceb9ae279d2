"""The length of a prompt against the model's context, before and after tokenizing.

Rules and texts are vLLM 0.32's.
"""

import msgspec

from render.body import Truncation
from render.refused import RenderRefused, bad_value


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Lengths allowed, in tokens.

    `total` is the model's context, `output` what the request may generate (0: not
    said) and `output_name` the field that says so; `longest_token` is in characters.
    """

    total: int
    output: int
    output_name: str
    longest_token: int

    def check_request(self, truncate: int | None) -> None:
        """What needs no prompt to be refused; raises RenderRefused."""
        if self.output > self.total:
            raise bad_value(
                f"{self.output_name}={self.output} cannot be greater than "
                f"max_model_len={self.total}. Please request fewer output tokens.",
                self.output_name,
                self.output,
            )
        if truncate is not None and truncate > self.total:
            raise bad_value(
                f"truncate_prompt_tokens={truncate} cannot be greater than "
                f"max_model_len = {self.total}. "
                "Please request a smaller truncation size.",
                "truncate_prompt_tokens",
                truncate,
            )

    def truncation(self, *, keep_first: bool) -> Truncation:
        """The cut to the context, less one token if the request says it wants any."""
        return Truncation(
            tokens=self.total - (1 if self.output else 0), keep_first=keep_first
        )

    def check_text(self, text: str) -> None:
        """Before tokenizing: can so many characters be few enough tokens at all?"""
        most = self.total * self.longest_token
        if len(text) > most:
            raise bad_value(
                f"This model's maximum context length is {self.total} tokens. However, "
                f"your prompt contains {len(text)} characters (more than {most} "
                f"characters, which is the upper bound for {self.total} input tokens). "
                "Please reduce the length of the input prompt.",
                "input_text",
                len(text),
            )

    def check_tokens(self, tokens: int) -> None:
        """After tokenizing; raises RenderRefused.

        What is asked for is not counted: less is generated where room is short.
        """
        if tokens > self.total:
            raise self._too_long()

    def _too_long(self) -> RenderRefused:
        # vLLM stops tokenizing one token above the limit.
        least = self.total + 1
        return bad_value(
            f"This model's maximum context length is {self.total} tokens. However, "
            f"your prompt contains at least {least} input tokens, which exceeds this "
            "limit even without any output tokens. Please reduce the length of the "
            "input prompt.",
            "input_tokens",
            least,
        )
