"""Asking one worker to render the probes, one after the other, and comparing."""

from collections.abc import Mapping, Sequence

import msgspec

from gateway.proof.not_proven import NotProven
from gateway.proof.probe_route import ProbeRoute
from gateway.proof.published import UNAUTHORISED
from gateway.threads import Threads
from gateway.workers.asking import Asker
from render import Renderer, Unrenderable
from render.probes import PROBES, Probe, first_difference

ANSWER_LIMIT = 256 * 1024
"""Bytes: the longest probe has some thousand ids."""
BUSY = frozenset({408, 425, 429, 502, 503, 504})
OWN_WAY = {
    "model_type": "own_processor",
    "no_template": "no_model",
    "missing_extra": "no_model",
}
"""Why no chat of a model is rendered here -> the word of the blocker."""


class Prober:
    """Compares one renderer with one worker, by the routes that worker may have."""

    def __init__(
        self,
        asker: Asker,
        routes: Sequence[ProbeRoute],
        renderer: Renderer,
        threads: Threads,
        *,
        model: str,
        ids: dict[str, bytes],
    ) -> None:
        """`model` is what the worker calls the renderer's model.

        `ids` are the renderer's own of the probes, by name; more are noted.
        """
        self._asker = asker
        self._open = list(routes)
        self._renderer = renderer
        self._threads = threads
        self._model = model
        self._ids = ids
        self._said = ""

    async def check(self) -> None:
        """Raises NotProven if not even a plain chat is rendered here."""
        try:
            await self._render(PROBES[0])
        except Unrenderable as error:
            reason = OWN_WAY.get(error.reason, "probe_failed")
            raise NotProven(reason, error.message) from None

    async def run(self, probes: Sequence[Probe]) -> frozenset[str]:
        """The features that equal renderings prove.

        Raises NotProven, Unanswered, and what `Threads.run` raises.
        """
        proven: set[str] = set()
        for number, probe in enumerate(probes):
            equal = await self._equal(probe)
            if equal:
                proven |= probe.features(self._renderer.profile)
            elif number == 0:
                raise NotProven("probe_failed", self._why_none(probe))
        return frozenset(proven)

    def _why_none(self, probe: Probe) -> str:
        if not self._open:
            return "the worker has no route that tells how it renders"
        return f"probe {probe.name}: {self._said or 'cannot be asked'}"

    async def _equal(self, probe: Probe) -> bool:
        """Whether both sides render it, and equally; raises NotProven if not so."""
        ours = await self._rendered(probe)
        theirs = None if ours is None else await self._asked(probe.body)
        if ours is None or theirs is None:
            return False
        position = first_difference(ours, theirs)
        if position is not None:  # templates may print what the clock shows
            self._ids.pop(probe.name, None)
            again = await self._rendered(probe)
            position = first_difference(again or ours, theirs)
        if position is None:
            return True
        if probe.of_release:
            return False
        text = f"probe {probe.name} differs at position {position}"
        raise NotProven("probe_differs", text)

    async def _rendered(self, probe: Probe) -> bytes | None:
        try:
            return await self._render(probe)
        except Unrenderable:
            return None

    async def _render(self, probe: Probe) -> bytes:
        known = self._ids.get(probe.name)
        if known is None:
            render, body = self._renderer.render_chat, probe.body
            known = (await self._threads.run(lambda: render(body))).token_ids
            self._ids[probe.name] = known
        return known

    async def _asked(self, body: Mapping[str, object]) -> list[int] | None:
        """The worker's ids; None where no route expresses the chat, or all refuse."""
        for route in tuple(self._open):
            asked = route.express(body)
            if asked is None:
                continue
            sent = msgspec.json.encode({**asked, "model": self._model})
            page = await self._asker.post(route.path, sent, ANSWER_LIMIT)
            if page.status in route.closed:
                self._open.remove(route)
            elif page.status == 200:
                ids = route.read(page.body)
                if ids is None:
                    text = f"{route.path} answers no token ids"
                    raise NotProven("probe_failed", text)
                return ids
            else:
                self._refused(route, page.status)
        return None

    def _refused(self, route: ProbeRoute, status: int) -> None:
        """Note a refusal of this chat; raises NotProven if it is of another kind."""
        self._said = f"{route.path} answers {status}"
        if status in UNAUTHORISED:
            raise NotProven("unauthorised", f"{self._said}: see --worker-api-key")
        if status in BUSY or status < 400:
            raise NotProven("probe_failed", self._said)
