"""The `/sim` routes: faults, restarts and resets on request, and the truth.

No engine has them. They are for tests, and for people who want to see what a gateway
makes of a fault.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from kvindex.blocks import unpack_ids
from simworker.contents import Held
from simworker.errors import ApiError, json_answer
from simworker.faults.record import BadFaults, Faults, read_faults
from simworker.faults.restart import Restart
from simworker.rank import Rank, Ranks

Json = dict[str, Any]


class Control:
    """Plays faults on a worker's ranks; `?rank=N` names one, else it is all of them."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    def posts(self) -> Mapping[str, Any]:
        """The POST routes."""
        return {
            "/sim/faults": self.play,
            "/sim/restart": self.restart,
            "/sim/reset": self.reset,
        }

    def gets(self) -> Mapping[str, Any]:
        """The GET routes."""
        return {"/sim/faults": self.faults, "/sim/cache": self.cache}

    async def play(self, request: web.Request) -> web.Response:
        """POST /sim/faults: play these; what is not named is not wrong any more"""
        try:
            faults = read_faults(await request.read() or b"{}")
        except BadFaults as error:
            raise ApiError(str(error)) from error
        for rank in self._chosen(request):
            rank.play(faults)
        return json_answer({"ranks": [_faults(rank) for rank in self._ranks]})

    async def faults(self, request: web.Request) -> web.Response:
        """GET /sim/faults: what is still to be played, and how often each was"""
        return json_answer({"ranks": [_faults(rank) for rank in self._chosen(request)]})

    async def restart(self, request: web.Request) -> web.Response:
        """POST /sim/restart: `faults.restart.Restart` says how"""
        try:
            how = msgspec.json.decode(await request.read() or b"{}", type=Restart)
            await self._ranks.restart(how)
        except (msgspec.DecodeError, ValueError) as error:
            raise ApiError(str(error)) from error
        return json_answer({"started": self._ranks.started})

    async def reset(self, request: web.Request) -> web.Response:
        """POST /sim/reset: empty the caches, unless requests run; `?flush=1` tells it

        Without `flush` the events come with the next step's, as vLLM's do.
        """
        chosen = self._chosen(request)
        done = [rank.reset() for rank in chosen]
        if request.query.get("flush") == "1":
            for rank in chosen:
                rank.flush()
        return json_answer({"success": all(done)})

    async def cache(self, request: web.Request) -> web.Response:
        """GET /sim/cache: what each rank holds, whatever its events say

        `?tokens=1` with the token ids of each block.
        """
        tokens = request.query.get("tokens") == "1"
        return json_answer(
            {"ranks": [_cache(rank, tokens) for rank in self._chosen(request)]}
        )

    def _chosen(self, request: web.Request) -> list[Rank]:
        asked = request.query.get("rank")
        if asked is None:
            return list(self._ranks)
        if not asked.isdecimal() or int(asked) >= len(self._ranks):
            raise ApiError(f"rank {asked} is out of range [0, {len(self._ranks)}).")
        return [self._ranks[int(asked)]]


def _faults(rank: Rank) -> Json:
    line = rank.stream.line if rank.stream else None
    return {
        "rank": rank.number,
        "faults": msgspec.to_builtins(line.faults if line else Faults()),
        "played": line.played if line else {},
    }


def _cache(rank: Rank, tokens: bool) -> Json:
    return {
        "rank": rank.number,
        "block_size": rank.cache.block_size,
        "next_sequence": rank.stream.next_sequence if rank.stream else None,
        "blocks": [_block(held, tokens) for held in rank.cache.holdings()],
    }


def _block(held: Held, tokens: bool) -> Json:
    content, name = held.content, held.name
    told: Json = {
        "hash": name.hex() if isinstance(name, bytes) else name,
        "digest": content.digest.hex(),
        "parent": content.parent.hex() if content.parent else None,
        "number": content.number,
        "tokens": content.size,
        "media": held.media,
        "adapter": content.identity.adapter,
        "salt": content.identity.salt,
    }
    return told | {"token_ids": unpack_ids(content.own_ids)} if tokens else told
