"""One request inside a simulated engine."""

from collections.abc import Callable, Sequence

from simworker.hashing import Digest, Hasher, Identity


def _ignore() -> None:
    """Nobody waits for this job."""


class Job:
    """One request inside the engine: its tokens, its blocks, how far it got.

    `output` is what it will say, fixed from the start; `produced` of it are out.
    `cached_tokens` is the hit of the first prefill (None before it). `on_progress` is
    called whenever some more came out.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        output: Sequence[int],
        *,
        identity: Identity | None = None,
        read_cache: bool = True,
        report_hits: bool = False,
    ) -> None:
        if not prompt or not output:
            raise ValueError("a request needs a prompt and at least one output token")
        self.token_ids = [*prompt, *output]
        self.prompt_tokens = len(prompt)
        self.output_tokens = len(output)
        self.identity = identity or Identity()
        self.read_cache = read_cache
        self.report_hits = report_hits
        self.produced = 0
        self.cached_tokens: int | None = None
        self.on_progress: Callable[[], None] = _ignore
        self.aborted = False
        self.blocks: list[int] = []
        self.chain: list[Digest] = []
        self.stored = 0
        self.computed = 0
        self.prefill_tokens = 0
        self.decode_from = 0.0
        self.produced_before = 0

    @property
    def finished(self) -> bool:
        """All of the output is out."""
        return self.produced == self.output_tokens

    def extend_chain(self, hasher: Hasher, size: int, tokens: int) -> None:
        """Hash the blocks of `size` that the first `tokens` tokens fill."""
        full = max(tokens - hasher.lookahead, 0) // size
        for number in range(len(self.chain), full):
            self.chain.append(self.link(hasher, size, number, tokens))

    def link(self, hasher: Hasher, size: int, number: int, tokens: int) -> Digest:
        """The hash of block `number`, as far as `tokens` tokens fill it."""
        end = min((number + 1) * size + hasher.lookahead, tokens)
        parent = self.chain[number - 1] if number else None
        content = self.token_ids[number * size : end]
        return hasher.link(parent, content, self.identity, number)
