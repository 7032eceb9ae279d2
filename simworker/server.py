"""A simulated worker as an object: several can run in one process, on one loop."""

import hashlib
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from aiohttp import web

from render import Renderer
from simworker.answers import Author, read_answers
from simworker.api import Api, Parts
from simworker.cache import BlockCache
from simworker.engine import Engine
from simworker.exchange import Service
from simworker.hashing import BlockHasher
from simworker.model import NAME, demo_model_dir
from simworker.options import BadOptions, SimOptions
from simworker.planning import Planner, Wording
from simworker.publisher import Publisher
from simworker.runner import Runner
from simworker.sglang import errors as sglang_errors
from simworker.sglang.api import SglangApi
from simworker.trtllm import errors as trtllm_errors
from simworker.trtllm.api import TrtllmApi
from simworker.vllm import errors as vllm_errors
from simworker.vllm.api import VERSION, VllmApi

DEFAULT_CONTEXT = 40_960
# Engines behind uvicorn close idle connections after so many seconds.
KEEP_ALIVE_S = 5.0
ENGINES: Mapping[str, tuple[type[Api], Wording]] = {
    "vllm": (VllmApi, vllm_errors),
    "trtllm": (TrtllmApi, trtllm_errors),
    "sglang": (SglangApi, sglang_errors),
}


class SimWorker:
    """One simulated worker: HTTP server, engine, event publisher.

    `renderer` may be shared by workers of the same model, whatever the engine; without
    it the model of the options is loaded. `url` and `kv_endpoint` are known once
    started.
    """

    def __init__(self, options: SimOptions, renderer: Renderer | None = None) -> None:
        options.check()
        self.options = options
        self._answers = read_answers(Path(options.answers)) if options.answers else ()
        self.renderer = _renderer(options, renderer)
        hasher = BlockHasher(
            options.hash_algo,
            seed=options.hash_seed,
            bytes_hashes=options.bytes_hashes,
        )
        self.cache = BlockCache(
            blocks=options.blocks, block_size=options.tokens_per_block, hasher=hasher
        )
        self.publisher = (
            Publisher(options.publisher_options()) if options.publishes else None
        )
        self.engine = Engine(
            options.engine_settings(),
            self.cache,
            hasher,
            on_batch=self.publisher.publish if self.publisher else lambda events: None,
        )
        self.runner = Runner(self.engine)
        self.max_model_len = self._context_length()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="sim-render")
        self.api = ENGINES[options.engine][0](self._parts())
        self._http: web.AppRunner | None = None
        self.url = ""

    @property
    def kv_endpoint(self) -> str | None:
        """Where to subscribe to this worker's events; None with events off."""
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
            if self.publisher is not None:
                self.publisher.start()
            site = web.TCPSite(http, self.options.host, self.options.port)
            await site.start()
        except OSError:
            await self.stop()
            raise
        host, port = self.options.host, http.addresses[0][1]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def stop(self) -> None:
        """Close everything at once; open requests are cut off."""
        self.runner.stop()
        if self._http is not None:
            await self._http.cleanup()
            self._http = None
        if self.publisher is not None:
            await self.publisher.stop()
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
        options, started = self.options, time.time()
        model = options.model or NAME
        return Parts(
            options=options,
            model=model,
            renderer=self.renderer,
            planner=self._planner(model),
            runner=self.runner,
            cache=self.cache,
            publisher=self.publisher,
            service=Service(
                runner=self.runner,
                block_size=self.cache.block_size,
                fingerprint=_fingerprint(options),
                tell_cached=options.prompt_tokens_details,
            ),
            executor=self._executor,
            max_model_len=self.max_model_len,
            started=started,
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
