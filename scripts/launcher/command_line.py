"""The command lines of the launchers: flags up to the command, errors in one line, --help and --dry-run."""

import os
import re
import shlex
import sys
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

import settings


class Options(NamedTuple):
    """What stands in front of a command, and the command."""

    values: dict[str, str]
    """flags with a value that the launcher itself uses, as -np"""
    bind: bool
    dry_run: bool
    command: list[str]


def fail(script: str, message: str) -> NoReturn:
    """End with one line and exit code 2."""
    print(f"error: scripts/{script}: {message} ; see scripts/{script} --help", file=sys.stderr)
    sys.exit(2)


def print_help(script: str) -> NoReturn:
    """Print the head of the script and the table of settings, and end."""
    head = (settings.SCRIPTS / script).read_text().split("\nset -")[0].splitlines()[1:]
    lines = [line.removeprefix("#").removeprefix(" ") for line in head if not line.startswith("#SBATCH")]
    print("\n".join(lines).rstrip() + "\n\n" + settings.TABLE, end="")
    sys.exit()


def parse(script: str, own: Sequence[str], words: Sequence[str]) -> Options:
    """Read flags up to `--` or the first word without a dash; set the variables of settings. `own` take a value."""
    values: dict[str, str] = {}
    bind = dry_run = False
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "--":
        flag = rest.pop(0)
        if flag in ("-h", "--help"):
            print_help(script)
        elif flag == "--bind":
            bind = True
        elif flag == "--dry-run":
            dry_run = True
        elif flag in own:
            values[flag] = _value(script, flag, rest)
        elif flag in settings.SETTINGS:
            is_switch = settings.SETTINGS[flag].kind == "1"
            try:
                settings.set_variable(flag, "1" if is_switch else _value(script, flag, rest))
            except ValueError as error:
                fail(script, str(error))
        else:
            fail(script, f"unknown flag {flag}")
    if rest[:1] == ["--"]:
        rest.pop(0)
    if not rest:
        fail(script, "no command")
    return Options(values, bind, dry_run, rest)


def _value(script: str, flag: str, rest: list[str]) -> str:
    if not rest:
        fail(script, f"{flag} needs a value")
    return rest.pop(0)


def show(command: Sequence[str]) -> None:
    """Print the settings and the command, as --dry-run does."""
    for name in sorted(filter(settings.SHOWN.match, os.environ)):
        print(f"{name}={os.environ[name]}")
    print(shlex.join(command), flush=True)


def number_of_ranks(script: str, options: Options) -> int:
    """Return the value of -np."""
    ranks = options.values.get("-np", "")
    if not re.fullmatch("[1-9][0-9]*", ranks):
        fail(script, f"-np needs the number of ranks, not '{ranks}'")
    return int(ranks)


def passed_names(script: str, options: Options) -> list[str]:
    """Return the names of the variables that -x gives to the ranks."""
    names = options.values.get("-x", "").split(",") if "-x" in options.values else []
    if unset := [name for name in names if name not in os.environ]:
        fail(script, f"-x {','.join(names)}: {unset[0] or 'a name'} is not set")
    return names
