"""The options of the front door as processes on ports."""

from typing import Annotated

from gateway.settings.discovery_config import DiscoveryConfig
from gateway.settings.options import option
from gateway.settings.values import port_number, process_count


class ProcessConfig(DiscoveryConfig, frozen=True, kw_only=True):
    """How many processes there are, and where operators reach them."""

    processes: Annotated[
        int,
        option(
            "processes that serve --port side by side, each a whole gateway; bounds "
            "are of all together; above 1 --admin-port is needed",
            metavar="N",
            parse=process_count,
        ),
    ] = 1
    admin_port: Annotated[
        int | None,
        option(
            "port of operators: /metrics and /gateway/** are there then, and not on "
            "--port",
            metavar="N",
            parse=port_number,
            shown_default="that of clients",
        ),
    ] = None
    admin_host: Annotated[
        str | None,
        option(
            "address to listen on for operators",
            metavar="ADDRESS",
            shown_default="that of --host",
        ),
    ] = None
