"""The options of access: who gets in, and what the gateway shows its workers."""

from pathlib import Path
from typing import Annotated, Literal

from gateway.settings.options import option
from gateway.settings.shared_config import SharedConfig
from gateway.settings.values import origins, secret


class AccessConfig(SharedConfig, frozen=True, kw_only=True):
    """Whom the front door lets in, and as whom it comes to the workers."""

    api_keys_file: Annotated[
        Path | None,
        option(
            "file of the hashes of clients' API keys and of their limits, read again "
            "when it changes; without it clients need no key",
            metavar="FILE",
            parse=Path,
        ),
    ] = None
    cache_per_client: Annotated[
        bool,
        option(
            "keep the caches of clients apart, by a cache_salt that is made of the "
            "client's key and added to its chats, completions and responses"
        ),
    ] = False
    allowed_origins: Annotated[
        tuple[tuple[str, ...], ...],
        option(
            "origins whose pages a browser lets ask, and read, what clients may, "
            "comma-separated; *: any",
            metavar="ORIGIN[,ORIGIN...]",
            parse=origins,
        ),
    ] = ()
    metrics_key: Annotated[
        str | None,
        option(
            "bearer key, or password, without which /metrics answers nobody",
            metavar="KEY",
            parse=secret,
        ),
    ] = None
    worker_auth: Annotated[
        Literal["auto", "pass", "replace"],
        option(
            "what workers get as Authorization: what the client sent, or in its place "
            "the worker's key (--worker-api-key, or that of the workers file); auto: "
            "replace where clients have keys of the gateway's, else pass"
        ),
    ] = "auto"
    worker_ca: Annotated[
        Path | None,
        option(
            "certificates, PEM, by one of which that of an https:// worker has to be "
            "signed",
            metavar="FILE",
            parse=Path,
            shown_default="the system's",
        ),
    ] = None
    worker_cert: Annotated[
        Path | None,
        option(
            "certificate chain, PEM, that the gateway shows https:// workers",
            metavar="FILE",
            parse=Path,
        ),
    ] = None
    worker_key: Annotated[
        Path | None,
        option(
            "private key of --worker-cert, PEM",
            metavar="FILE",
            parse=Path,
            shown_default="in the file of --worker-cert",
        ),
    ] = None
