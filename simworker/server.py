"""A simulated worker as an object: several can run in one process, on one loop."""

import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from aiohttp import web

from render import Renderer
from simworker.answers import Author, read_answers
from simworker.api import Api, Parts
from simworker.cache import BlockCache
from simworker.caching import Caching
from simworker.engine import Engine
from simworker.exchange import Service
from simworker.model import NAME, demo_model_dir
from simworker.options import BadOptions, SimOptions
from simworker.planning import Planner, Wording
from simworker.publisher import Publisher, start_all
from simworker.rank import Ranks
from simworker.runner import Runner
from simworker.sglang import errors as sglang_errors
from simworker.sglang.api import SglangApi
from simworker.sglang.caching import caching as sglang_caching
from simworker.trtllm import errors as trtllm_errors
from simworker.trtllm.api import TrtllmApi
from simworker.trtllm.caching import caching as trtllm_caching
from simworker.vllm import errors as vllm_errors
from simworker.vllm.api import VERSION, VllmApi
from simworker.vllm.caching import caching as vllm_caching

DEFAULT_CONTEXT = 40_960
# Engines behind uvicorn close idle connections after so many seconds.
KEEP_ALIVE_S = 5.0
ENGINES: Mapping[str, tuple[type[Api], Wording, Callable[[SimOptions], Caching]]] = {
    "vllm": (VllmApi, vllm_errors, vllm_caching),
    "trtllm": (TrtllmApi, trtllm_errors, trtllm_caching),
    "sglang": (SglangApi, sglang_errors, sglang_caching),
}


class SimWorker:
    """One simulated worker: HTTP server, engine, event publisher.

    `renderer` may be shared by workers of the same model, whatever the engine; without
    it the model of the options is loaded. `url` and `kv_endpoint` are known once
    started. `ranks` are its caches and schedulers.
    """

    def __init__(self, options: SimOptions, renderer: Renderer | None = None) -> None:
        options.check()
        self.options = options
        self._answers = read_answers(Path(options.answers)) if options.answers else ()
        self.renderer = _renderer(options, renderer)
        self.caching = ENGINES[options.engine][2](options)
        self.ranks = Ranks(options, self.caching)
        for rank in self.ranks:
            rank.play(options.faults_at_start())
        self.max_model_len = self._context_length()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="sim-render")
        self.api = ENGINES[options.engine][0](self._parts())
        self._http: web.AppRunner | None = None
        self.url = ""

    # --- the first rank, of those that have but one

    @property
    def cache(self) -> BlockCache:
        """Its cache now."""
        return self.ranks[0].cache

    @property
    def engine(self) -> Engine:
        """Its scheduler."""
        return self.ranks[0].engine

    @property
    def runner(self) -> Runner:
        """What keeps its scheduler in step with the clock."""
        return self.ranks[0].runner

    @property
    def publisher(self) -> Publisher | None:
        """What sends its events over a socket; None where nothing does."""
        stream = self.ranks[0].stream
        return stream if isinstance(stream, Publisher) else None

    @property
    def kv_endpoint(self) -> str | None:
        """Where to subscribe to its events; None with events off."""
        return self.publisher.endpoint if self.publisher else None

    @property
    def replay_endpoint(self) -> str | None:
        """Where to ask for events again; None without replay."""
        return self.publisher.replay_endpoint if self.publisher else None

    async def start(self) -> None:
        """Listen. Raises OSError if a port is taken."""
        http = web.AppRunner(
            self.api.application(),
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=KEEP_ALIVE_S,
            shutdown_timeout=0.1,
        )
        await http.setup()
        self._http = http
        try:
            await start_all(self.ranks.publishers)
            self.ranks.open()
            site = web.TCPSite(http, self.options.host, self.options.port)
            await site.start()
        except OSError:
            await self.stop()
            raise
        host, port = self.options.host, http.addresses[0][1]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def stop(self) -> None:
        """Close everything at once; open requests are cut off."""
        self.ranks.stop()
        if self._http is not None:
            await self._http.cleanup()
            self._http = None
        for publisher in self.ranks.publishers:
            await publisher.stop()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _context_length(self) -> int:
        """What the model allows and the cache holds. Raises BadOptions."""
        fits = self.cache.capacity * self.cache.block_size
        asked = self.options.max_model_len
        if asked is None:
            return min(self.renderer.model.max_length or DEFAULT_CONTEXT, fits)
        if not 0 < asked <= fits:
            raise BadOptions(f"--max-model-len {asked}: the cache holds {fits} tokens")
        return asked

    def _parts(self) -> Parts:
        options = self.options
        model = options.model or NAME
        return Parts(
            options=options,
            model=model,
            renderer=self.renderer,
            planner=self._planner(model),
            ranks=self.ranks,
            buffer=self.caching.buffer,
            service=Service(
                ranks=self.ranks,
                fingerprint=_fingerprint(options),
                tell_cached=options.prompt_tokens_details,
            ),
            executor=self._executor,
            max_model_len=self.max_model_len,
        )

    def _planner(self, model: str) -> Planner:
        options = self.options
        return Planner(
            self.renderer,
            Author(self.renderer, fixed=self._answers),
            ENGINES[options.engine][1],
            model=(options.served_model_name or (model,))[0],
            max_model_len=self.max_model_len,
        )


def _renderer(options: SimOptions, shared: Renderer | None) -> Renderer:
    """The engine's own; a template of its own is not in one that is shared."""
    if shared is None or options.chat_template is not None:
        path = shared.model.path if shared else options.model or demo_model_dir()
        return Renderer.load(
            path, profile=options.engine, chat_template=options.chat_template
        )
    return shared.with_profile(options.engine)


def _fingerprint(options: SimOptions) -> str:
    """`system_fingerprint`: the same for workers with the same options."""
    content = msgspec.json.encode(options)
    digest = hashlib.blake2b(content, digest_size=4).hexdigest()
    return f"vllm-{VERSION}-{digest}"
