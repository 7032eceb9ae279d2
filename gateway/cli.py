"""The command line: which sub-command runs, and how a mistake ends.

Every mistake a user can make ends in one line on stderr and exit status 2. What each
sub-command does: commands.py.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import NoReturn

import msgspec

from gateway.commands import COMMANDS, DESCRIPTION, Command
from gateway.errors import ConfigError
from gateway.settings.config_file import NAME
from gateway.settings.options import add_arguments, options_of
from gateway.streams import hold_places

IN_THE_ENVIRONMENT = (
    " Each option can also be set as KV_GATEWAY_<NAME> in the environment"
)
IN_A_FILE = ", or under its name in the file of --config"
USAGE_STATUS = 2
SIMULATED = {
    "demo": ("simworker.demo", "simulated workers, a gateway and traffic"),
    "sim-worker": ("simworker.cli", "one simulated worker"),
    "simulate": (
        "simworker.simulate.cli",
        "replay a trace on a virtual clock, and tell what each policy would do",
    ),
}
"""The simulated worker is beside the gateway, not below it: it is imported only for its
own commands."""


class _Parser(argparse.ArgumentParser):
    """argparse, but a mistake is one line."""

    def error(self, message: str) -> NoReturn:
        said = _one_line(message)
        self.exit(USAGE_STATUS, f"{self.prog}: {said} (see {self.prog} --help)\n")


def parser(command: str, about: str | None = None) -> argparse.ArgumentParser:
    """The parser of every sub-command; only `command` itself gets its options.

    `about` is the command whose options those are, if it is about another.
    """
    top = _Parser(
        prog="kv-gateway",
        usage="kv-gateway [COMMAND] --workers URL[,URL...] [OPTION ...]",
        description=DESCRIPTION,
        epilog="`kv-gateway serve --help` lists the options of the front door.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=version("kv-gateway"))
    subparsers = top.add_subparsers(
        dest="command", metavar="COMMAND", required=True, prog="kv-gateway"
    )
    for name, ours in COMMANDS.items():
        sub = subparsers.add_parser(
            name,
            help=ours.summary,
            description=ours.description,
            allow_abbrev=False,
        )
        if name == command:
            _add_options(sub, ours, about)
    for name, (module, summary) in SIMULATED.items():
        simulated = subparsers.add_parser(
            name, help=summary, description=f"{summary}.", allow_abbrev=False
        )
        if name == command:
            imported = importlib.import_module(module)
            imported.add_arguments(simulated)
            simulated.set_defaults(run=imported.run)
    return top


def _add_options(
    sub: argparse.ArgumentParser, ours: Command, about: str | None
) -> None:
    if ours.of:
        sub.add_argument("of", nargs="?", choices=ours.of)
    options = (COMMANDS[about] if about in ours.of else ours).options()
    sub.description = ours.description + _elsewhere(options)
    add_arguments(sub, options)
    for flag, help_text in ours.switches.items():
        sub.add_argument(flag, action="store_true", help=help_text)
    sub.set_defaults(run=ours.run)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit status."""
    hold_places()
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or (
        words[0].startswith("-") and words[0] not in ("-h", "--help", "--version")
    ):
        words.insert(0, "serve")
    about = words[1] if len(words) > 1 else None
    arguments, unknown = parser(words[0], about).parse_known_args(words)
    if unknown:
        # argparse would point at the top, whose help has none of a command's options.
        command = _Parser(prog=f"kv-gateway {arguments.command}")
        command.error(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        return int(arguments.run(arguments))
    except ConfigError as error:
        sys.stderr.write(f"kv-gateway: {_one_line(str(error))}\n")
        return USAGE_STATUS
    except KeyboardInterrupt:
        return 130


def _elsewhere(options: type[msgspec.Struct]) -> str:
    """Where options can be set as well."""
    filed = any(option.name == NAME for option in options_of(options))
    return f"{IN_THE_ENVIRONMENT}{IN_A_FILE if filed else ''}."


def _one_line(text: str) -> str:
    return " ".join(text.split())
