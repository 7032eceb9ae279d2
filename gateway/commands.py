"""Our own sub-commands: which options each has, and what it runs.

What a command needs is imported when it runs: serving loads nothing of the doctor, and
a mistake is told before anything large is loaded.
"""

import argparse
import itertools
import logging
import sys
from collections.abc import Callable, Mapping

import msgspec

from gateway.listening import close, take_port, take_ports
from gateway.logs import formats as logs
from gateway.settings.checking import check, check_workers
from gateway.settings.config import Config
from gateway.settings.reading import read, said, unknown_variables
from gateway.settings.render_config import RenderConfig
from gateway.settings.shared_config import SharedConfig

log = logging.getLogger(__name__)

DESCRIPTION = "A KV-cache-aware routing gateway with built-in rendering."


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One sub-command."""

    summary: str
    description: str
    options: Callable[[], type[msgspec.Struct]]
    """The configuration whose options it takes."""
    run: Callable[[argparse.Namespace], int]
    """Its exit status; raises ConfigError."""
    switches: Mapping[str, str] = {}
    """Flags that are its alone, and no part of a configuration."""
    of: tuple[str, ...] = ()
    """The commands one of which may follow it: then it is about that one's options."""


def _doctor_options() -> type[msgspec.Struct]:
    from gateway.doctor.checkup import DoctorConfig

    return DoctorConfig


def _serve(arguments: argparse.Namespace) -> int:
    config = read(Config, arguments)
    check(config)
    _log(config)
    if config.processes > 1:
        from gateway.processes.supervisor import supervise

        return supervise(config)
    from gateway.app import Gateway
    from gateway.serve import Doors, serve
    from gateway.tls import Tls

    Tls.of(config)  # mistakes are told before models are loaded
    close(itertools.chain(*take_ports(config)))
    gateway = Gateway(config)
    clients, operators = take_ports(config)
    return serve(gateway, config, Doors(clients=clients, operators=operators))


def _render(arguments: argparse.Namespace) -> int:
    config = read(RenderConfig, arguments)
    check(config)
    _log(config)
    from gateway.endpoints.render_server import RenderServer
    from gateway.serve import Doors, serve
    from gateway.tls import Tls

    Tls.of(config)  # mistakes are told before models are loaded
    close(take_port(config.host, config.port))
    server = RenderServer(config)
    doors = Doors(clients=take_port(config.host, config.port))
    return serve(server, config, doors)


def _doctor(arguments: argparse.Namespace) -> int:
    from gateway.doctor.checkup import DoctorConfig, diagnose

    config = read(DoctorConfig, arguments)
    check_workers(config)
    logging.basicConfig(level=logging.ERROR)
    return diagnose(config)


def _key_options() -> type[msgspec.Struct]:
    from gateway.access.key_command import KeyConfig

    return KeyConfig


def _key(arguments: argparse.Namespace) -> int:
    from gateway.access import key_command

    return key_command.run(arguments)


def _config(arguments: argparse.Namespace) -> int:
    from gateway.settings.shown import page

    if arguments.show:
        everything = said(COMMANDS[arguments.of or "serve"].options(), arguments)
        sys.stdout.write(page(everything))
    elif arguments.of == "render":
        check(read(RenderConfig, arguments))
    else:
        check(read(Config, arguments))
    return 0


def _log(config: SharedConfig) -> None:
    logs.set_up(config.log_level, config.log_format, prompts=config.log_prompts)
    for name in unknown_variables((Config, RenderConfig, _doctor_options())):
        log.warning("the variable %s in the environment sets no option", name)


COMMANDS: Mapping[str, Command] = {
    "serve": Command(
        summary="the front door (the default command)",
        description=DESCRIPTION,
        options=lambda: Config,
        run=_serve,
    ),
    "render": Command(
        summary="a render server for one model, without workers",
        description="Renders requests to token ids, on a CPU: only a model's "
        "tokenizer, configuration and chat template are loaded.",
        options=lambda: RenderConfig,
        run=_render,
    ),
    "doctor": Command(
        summary="does each worker answer, send events, render alike?",
        description="Contacts each worker and says what is wrong with it, and which "
        "flag mends it; exit status 1 if something is.",
        options=_doctor_options,
        run=_doctor,
    ),
    "key": Command(
        summary="a new API key for a client",
        description="Makes a key and prints its record, for the file of "
        "--api-keys-file, on standard output; the key itself on standard error, once.",
        options=_key_options,
        run=_key,
        switches={"--stdin": "take the key from standard input in place of a new one"},
    ),
    "config": Command(
        summary="is the configuration right, and what is in force?",
        description="Reads the configuration as `serve` would, or `render` if that is "
        "named, and says nothing where it is right.",
        options=lambda: Config,
        run=_config,
        switches={"--show": "print what is in force, and where each value comes from"},
        of=("serve", "render"),
    ),
}
