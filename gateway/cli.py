"""The command line: which sub-command runs, and how a mistake ends.

Every mistake a user can make ends in one line on stderr and exit status 2.
"""

import argparse
import importlib
import logging
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import NoReturn

from gateway.errors import ConfigError
from gateway.settings.config import Config
from gateway.settings.options import add_arguments, read
from gateway.settings.render_config import RenderConfig
from gateway.settings.shared_config import SharedConfig

DESCRIPTION = "A KV-cache-aware routing gateway with built-in rendering."
RENDER_DESCRIPTION = (
    "Renders requests to token ids, on a CPU: only a model's tokenizer, configuration "
    "and chat template are loaded."
)
DOCTOR_DESCRIPTION = (
    "Contacts each worker and says what is wrong with it, and which flag mends it; "
    "exit status 1 if something is."
)
IN_THE_ENVIRONMENT = (
    " Each option can also be set as KV_GATEWAY_<NAME> in the environment."
)
USAGE_STATUS = 2
SIMULATED = {
    "demo": ("simworker.demo", "Simulated workers, a gateway and traffic"),
    "sim-worker": ("simworker.cli", "One simulated worker"),
    "simulate": (
        "simworker.simulate.cli",
        "A trace replayed on a virtual clock: what would each policy do",
    ),
}


class _Parser(argparse.ArgumentParser):
    """argparse, but a mistake is one line."""

    def error(self, message: str) -> NoReturn:
        said = _one_line(message)
        self.exit(USAGE_STATUS, f"{self.prog}: {said} (see {self.prog} --help)\n")


def parser(command: str) -> argparse.ArgumentParser:
    """The parser of every sub-command; only `command` itself gets its options.

    The simulated worker is beside the gateway, not below it, and is imported only
    for its own commands.
    """
    top = _Parser(
        prog="kv-gateway",
        usage="kv-gateway [COMMAND] --workers URL[,URL...] [OPTION ...]",
        description=DESCRIPTION,
        epilog="`kv-gateway serve --help` lists the options of the front door.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=version("kv-gateway"))
    commands = top.add_subparsers(
        dest="command", metavar="COMMAND", required=True, prog="kv-gateway"
    )
    serve = commands.add_parser(
        "serve",
        help="the front door (the default command)",
        description=DESCRIPTION + IN_THE_ENVIRONMENT,
        allow_abbrev=False,
    )
    add_arguments(serve, Config)
    serve.set_defaults(run=_serve)
    render = commands.add_parser(
        "render",
        help="a render server for one model, without workers",
        description=RENDER_DESCRIPTION + IN_THE_ENVIRONMENT,
        allow_abbrev=False,
    )
    add_arguments(render, RenderConfig)
    render.set_defaults(run=_render)
    doctor = commands.add_parser(
        "doctor",
        help="does each worker answer, send events, render alike?",
        description=DOCTOR_DESCRIPTION + IN_THE_ENVIRONMENT,
        allow_abbrev=False,
    )
    if command == "doctor":
        from gateway.doctor.checkup import DoctorConfig

        add_arguments(doctor, DoctorConfig)
    doctor.set_defaults(run=_doctor)
    for name, (module, summary) in SIMULATED.items():
        simulated = commands.add_parser(
            name, help=summary, description=f"{summary}.", allow_abbrev=False
        )
        if name == command:
            imported = importlib.import_module(module)
            imported.add_arguments(simulated)
            simulated.set_defaults(run=imported.run)
    return top


def _serve(arguments: argparse.Namespace) -> int:
    config = read(Config, arguments)
    _check_workers(config)
    _log(config)
    from gateway.app import Gateway
    from gateway.serve import serve

    return serve(Gateway(config), config, config.port)


def _render(arguments: argparse.Namespace) -> int:
    config = read(RenderConfig, arguments)
    _log(config)
    from gateway.endpoints.render_server import RenderServer
    from gateway.serve import serve

    return serve(RenderServer(config), config, config.port)


def _doctor(arguments: argparse.Namespace) -> int:
    from gateway.doctor.checkup import DoctorConfig, diagnose

    config = read(DoctorConfig, arguments)
    _check_workers(config)
    logging.basicConfig(level=logging.ERROR)
    return diagnose(config)


def _check_workers(config: Config) -> None:
    if not config.workers and config.workers_file is None:
        raise ConfigError("--workers URL[,URL...] is missing, or --workers-file")


def _log(config: SharedConfig) -> None:
    logging.basicConfig(
        level=config.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or (
        words[0].startswith("-") and words[0] not in ("-h", "--help", "--version")
    ):
        words.insert(0, "serve")
    arguments = parser(words[0]).parse_args(words)
    try:
        return int(arguments.run(arguments))
    except ConfigError as error:
        sys.stderr.write(f"kv-gateway: {_one_line(str(error))}\n")
        return USAGE_STATUS
    except KeyboardInterrupt:
        return 130


def _one_line(text: str) -> str:
    return " ".join(text.split())
