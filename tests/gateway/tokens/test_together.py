"""Prompts that are at one worker at the same time."""

import asyncio

import pytest

from gateway.errors import ConnectFailed
from gateway.tokens.together import AT_ONCE, together


async def test_after_an_error_none_is_begun() -> None:
    """Though others end, and make room, while it is waited for what becomes of them."""
    failed = asyncio.Event()
    begun: list[int] = []

    async def one(prompt: int) -> int:
        begun.append(prompt)
        if prompt:
            await failed.wait()
            await asyncio.sleep(0.01)
            return prompt
        failed.set()
        raise ConnectFailed("nobody is there")

    with pytest.raises(ConnectFailed) as raised:
        await together(AT_ONCE + 4, one)
    assert not raised.value.retryable  # as the others were taken
    assert begun == [*range(AT_ONCE)]
