"""JSON files that this program writes and later relies on: with a checksum, and read into typed values.

The second line of such a file is its checksum, the SHA-256 of all bytes after that line:

    {
     "checksum": "9f86d081...",
     "counts": {

So any damage is noticed, even damage that leaves valid JSON: `tail -n +3 FILE | sha256sum` gives the same number. A
file without a checksum, which earlier versions wrote, is read too; then only the types are checked.

A type is a dataclass of strings, numbers, None, Literal, `list[X]`, `tuple[X, ...]`, `dict[str, X]`, `X | Y`, `Any` and
other such dataclasses. A dataclass can check its values in `__post_init__`, by raising ValueError.
"""

import dataclasses
import functools
import hashlib
import json
import math
import types
import typing
from pathlib import Path
from typing import Any, Literal, TypeVar

from bert.core import files
from bert.core.errors import IntegrityError

T = TypeVar("T")

KEY = "checksum"
LARGEST = 2**63 - 1  # integer: these files hold sizes and counts
SHOWN = 60  # characters of a wrong value in a message


def write(path: Path, fields: dict[str, Any]) -> None:
    """Write `text(fields)` atomically."""
    with files.atomic_write(path) as stream:
        stream.write(text(fields))


def text(fields: dict[str, Any]) -> str:
    """Return `fields` and their checksum as JSON with sorted keys, so that equal fields give equal bytes."""
    assert fields and all(name > KEY for name in fields), "the checksum is the first field"
    body = json.dumps(fields, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False).removeprefix("{\n") + "\n"
    return head(body.encode()).decode() + body


def head(body: bytes) -> bytes:
    """Return the first two lines of a file: the brace, and the checksum of `body`, which is the rest of the file."""
    return f'{{\n "{KEY}": "{hashlib.sha256(body).hexdigest()}",\n'.encode()


def read(path: Path, kind: type[T], *, what: str, remedy: str) -> T:
    """Return the content of a file that `write` wrote, as an instance of the dataclass `kind`.

    what, remedy: words for the message, such as "a manifest of ours" and "build the folder again". Raise IntegrityError
    if the file is damaged or its values do not fit `kind`, OSError if it cannot be read.
    """
    content = files.read_description(path)
    try:
        fields = parse(content)
        if not isinstance(fields, dict):
            raise ValueError("it is not an object")
        if KEY in fields:
            _verify(content)
            del fields[KEY]
        if unknown := fields.keys() - {field.name for field in dataclasses.fields(kind)}:  # type: ignore[arg-type]
            raise ValueError(f"unknown field {_shown(min(unknown))}")
        return take(kind, fields)
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{path}: not {what} ({error}); {remedy}") from error


def _verify(content: bytes) -> None:
    first = content[: len(head(b""))]
    if first != head(content[len(first) :]):
        raise ValueError("its content differs from its checksum")


def parse(content: bytes) -> Any:
    """Return the value of a JSON text in UTF-8.

    Raise ValueError if the text is not JSON, repeats a name, or has a number that is not finite. Raise RecursionError
    if it is nested too deeply.
    """
    hooks: dict[str, Any] = {"object_pairs_hook": _object, "parse_constant": _finite, "parse_float": _finite}
    return json.loads(content.decode("utf-8"), **hooks)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the name {_shown(next(name for name in names if names.count(name) > 1))} is repeated")
    return fields


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"the number {text[:SHOWN]} is not finite")
    return number


def take(hint: Any, value: Any, where: str = "") -> Any:
    """Return a value of `parse` as an instance of the type `hint`.

    where: the value's place, for messages. Ignore unknown fields of a dataclass. Raise ValueError if the value does not
    fit.
    """
    if dataclasses.is_dataclass(hint):
        return _dataclass(typing.cast(type, hint), value, where)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _first_that_fits(arguments, value, where)
    if origin is list and isinstance(value, list):
        return [take(arguments[0], item, f"{where}[{number}]") for number, item in enumerate(value)]
    if origin is tuple and isinstance(value, list):  # of any length
        return tuple(take(arguments[0], item, f"{where}[{number}]") for number, item in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {_text(name, where): take(arguments[1], item, _below(where, name)) for name, item in value.items()}
    if not _fits(hint, origin, arguments, value):
        raise ValueError(f"{where or 'the value'} is {_shown(value)}")
    return _text(value, where) if hint is str else value


def _dataclass(kind: type, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where or 'the value'} is {_shown(value)}")
    hints, arguments = _hints(kind), {}
    for field in dataclasses.fields(kind):
        if field.name in value:
            arguments[field.name] = take(hints[field.name], value[field.name], _below(where, field.name))
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ValueError(f"no {_below(where, field.name)}")
    try:
        return kind(**arguments)
    except ValueError as error:
        raise ValueError(f"{where}: {error}" if where else str(error)) from error


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _first_that_fits(hints: tuple[Any, ...], value: Any, where: str) -> Any:
    for hint in hints[:-1]:
        try:
            return take(hint, value, where)
        except ValueError:
            continue
    return take(hints[-1], value, where)


def _fits(hint: Any, origin: Any, arguments: tuple[Any, ...], value: Any) -> bool:
    if hint is Any:
        return True
    if origin is Literal:
        return any(value == choice and type(value) is type(choice) for choice in arguments)
    if hint in (int, float):
        return (type(value) is int and abs(value) <= LARGEST) or (hint is float and type(value) is float)
    return origin is None and type(value) is hint  # a bool is not an int here


def _text(text: str, where: str) -> str:
    """Return the text. Raise ValueError for a lone surrogate: JSON can have one, but no file can."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{where or 'the value'} has {_shown(text)}, which is not Unicode text") from error
    return text


def _below(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _shown(value: Any) -> str:
    """Return the value for a message, short and in ASCII."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    text = ascii(value[:SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."
