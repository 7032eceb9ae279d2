"""The options of TLS for clients, which every server of ours has."""

from pathlib import Path
from typing import Annotated

import msgspec

from gateway.settings.options import option


class TlsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """By what certificate a server of ours is known, and by what its clients are."""

    tls_cert: Annotated[
        Path | None,
        option(
            "certificate chain, PEM, read again when it changes; with it only https "
            "is served",
            metavar="FILE",
            parse=Path,
        ),
    ] = None
    tls_key: Annotated[
        Path | None,
        option(
            "private key of --tls-cert, PEM",
            metavar="FILE",
            parse=Path,
            shown_default="in the file of --tls-cert",
        ),
    ] = None
    tls_client_ca: Annotated[
        Path | None,
        option(
            "certificates, PEM, by one of which a client's certificate has to be "
            "signed; without it clients need none",
            metavar="FILE",
            parse=Path,
        ),
    ] = None
