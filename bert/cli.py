"""Command lines made from dataclasses, and exit codes made from exceptions.

A command's options are a dataclass; each field is a flag of the same name, and the string below the field is its help.
Nested dataclasses give dotted flags: `--batch.per_device 64`.
"""

import argparse
import ast
import dataclasses
import difflib
import errno
import inspect
import os
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

from bert.errors import UsageError, UserError

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Flag:
    """One leaf of a dataclass tree: `path` joined by dots is the flag's name."""

    path: tuple[str, ...]
    type: Any
    help: str
    default: Any

    @property
    def name(self) -> str:
        return ".".join(self.path)


def parse(options: type[T], argv: Sequence[str], *, prog: str, description: str | None) -> T:
    """Reads `argv` into a new `options`; fields without a default are required."""
    flags = list(_flags(options, None))
    return _build(options, None, _values(flags, argv, prog, description))


def override(config: T, argv: Sequence[str], *, prog: str, description: str | None) -> T:
    """Returns `config` with the fields named in `argv` replaced."""
    flags = list(_flags(type(config), config))
    return _build(type(config), config, _values(flags, argv, prog, description))


def choose(
    argv: Sequence[str], recipes: dict[str, Callable[[], T]], *, prog: str, description: str | None
) -> tuple[str, T]:
    """The recipe named first on the command line, and the configuration that it and the flags behind it give."""
    if not argv or argv[0].startswith("-"):
        if {"-h", "--help"} & set(argv):
            lines = [f"  {name}: {recipe.__doc__}" for name, recipe in recipes.items()]
            print(description, "Recipes:", *lines, sep="\n")
            raise SystemExit(0)
        raise UsageError(f"{prog}: no recipe given; one of {' '.join(recipes)}")
    name = argv[0]
    if name not in recipes:
        near = difflib.get_close_matches(name, recipes, n=2) or list(recipes)
        raise UsageError(f"{prog}: no recipe {name!r}; did you mean {' or '.join(near)}?")
    return name, override(recipes[name](), argv[1:], prog=f"{prog} {name}", description=description)


def take(argv: Sequence[str], flag: str) -> tuple[int | None, list[str]]:
    """The whole number behind `flag`, if it is there, and the arguments without both."""
    rest = list(argv)
    if flag not in rest:
        return None, rest
    place = rest.index(flag)
    rest.pop(place)
    value = rest.pop(place) if place < len(rest) else ""
    if not value.isdecimal() or int(value) == 0:
        raise UsageError(f"{flag} {value}: a whole number from 1 is needed")
    return int(value), rest


def main(function: Callable[[list[str]], None]) -> NoReturn:
    """Runs `function(sys.argv[1:])`; whatever a user can cause ends in one line and its documented exit code."""
    try:
        function(sys.argv[1:])
    except Exception as error:
        code = exit_code(error)
        if code is None:
            raise  # our own fault: the traceback is wanted
        print("error: " + " ".join(_describe(error).split()), file=sys.stderr, flush=True)
        _leave(code)
    _leave(0)


def exit_code(error: BaseException) -> int | None:
    """The documented exit code of an exception, or None for a programming error."""
    if isinstance(error, UserError):
        return error.exit_code
    if isinstance(error, MemoryError) or type(error).__name__ == "ResourceExhaustedError":  # TensorFlow's, by name:
        return 5  # this module must not import it
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return 5
    if isinstance(error, OSError) and error.filename is not None:
        return 3
    return None


def _describe(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


def _leave(code: int) -> NoReturn:
    # horovodrun answers 1 whatever a rank said, and ends the other ranks at once: the launcher takes this line out.
    if code and (mark := os.environ.get("BERT_LAUNCH")):
        print(f"{mark} ended {code}", file=sys.stderr, flush=True)
    sys.exit(code)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}; see --help")


def _values(flags: list[Flag], argv: Sequence[str], prog: str, description: str | None) -> dict[str, Any]:
    parser = _Parser(
        prog=prog,
        description=textwrap.dedent(description or "").strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    for flag in flags:
        parser.add_argument(f"--{flag.name}", dest=flag.name, **_arguments(flag))
    values, unknown = parser.parse_known_args(argv)
    if unknown:
        known = [f"--{flag.name}" for flag in flags]
        near = difflib.get_close_matches(unknown[0].split("=")[0], known, n=3, cutoff=0.5)
        remedy = f"did you mean {' or '.join(near)}?" if near else "see --help"
        raise UsageError(f"{prog}: unknown argument {unknown[0]!r}; {remedy}")
    return vars(values)


def _flags(cls: type, instance: Any, prefix: tuple[str, ...] = ()) -> Iterator[Flag]:
    hints, helps = typing.get_type_hints(cls), _field_docs(cls)
    for field in dataclasses.fields(cls):
        path, hint = (*prefix, field.name), hints[field.name]
        default = getattr(instance, field.name) if instance is not None else _default(field)
        if dataclasses.is_dataclass(hint):
            yield from _flags(typing.cast(type, hint), None if default is dataclasses.MISSING else default, path)
        else:
            yield Flag(path, hint, helps.get(field.name, ""), default)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _field_docs(cls: type) -> dict[str, str]:
    """The string literal below each field, which Python itself throws away."""
    docs = _field_docs(base) if dataclasses.is_dataclass(base := cls.__base__) else {}
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    for field, doc in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(doc, ast.Expr):
            docs[field.target.id] = " ".join(str(ast.literal_eval(doc.value)).split())
    return docs


def _arguments(flag: Flag) -> dict[str, Any]:
    hint = flag.type
    arguments: dict[str, Any] = {"help": _help(flag), "required": flag.default is dataclasses.MISSING}
    if optional := isinstance(hint, types.UnionType):
        hint = next(option for option in typing.get_args(hint) if option is not types.NoneType)
    if typing.get_origin(hint) is tuple:
        hint, arguments["nargs"] = typing.get_args(hint)[0], "+"
    if typing.get_origin(hint) is typing.Literal:
        arguments["choices"] = typing.get_args(hint)
        hint = str
    kind = _boolean if hint is bool else hint
    arguments["type"] = _optional(kind) if optional else kind
    choices = arguments.get("choices")
    arguments["metavar"] = "{" + ",".join(choices) + "}" if choices else hint.__name__.upper()
    return arguments


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is not true or false")
    return text == "true"


def _optional(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        return None if text == "none" else kind(text)

    read.__name__ = kind.__name__  # argparse names the type in its message
    return read


_boolean.__name__ = "bool"  # argparse names the type in its message


def _help(flag: Flag) -> str:
    default = "required" if flag.default is dataclasses.MISSING else f"default {_show(flag.default)}"
    return f"{flag.help} ({default})".replace("%", "%%").strip()


def _show(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "none"
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def _build(cls: type[T], base: T | None, values: dict[str, Any], prefix: str = "") -> T:
    changes: dict[str, Any] = {}
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(typing.cast(Any, cls)):
        name = prefix + field.name
        if dataclasses.is_dataclass(hints[field.name]):
            current = getattr(base, field.name) if base is not None else _default(field)
            below = None if current is dataclasses.MISSING else current
            changes[field.name] = _build(typing.cast(type, hints[field.name]), below, values, name + ".")
        elif name in values:
            value = values[name]
            changes[field.name] = tuple(value) if isinstance(value, list) else value
    try:
        if base is None:
            return cls(**changes)
        return dataclasses.replace(typing.cast(Any, base), **changes)
    except UserError:
        raise
    except ValueError as error:
        raise UsageError(str(error)) from error
