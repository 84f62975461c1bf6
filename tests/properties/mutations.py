"""Damage for the fuzz tests: good bytes and good JSON with drawn changes; and the claim that every reader must keep.

A test writes a small good file, draws a damaged copy of its content, and gives it to the reader under `survives`.
"""

import contextlib
import json
import resource
import signal
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import strategies as st

from bert.core import cli

T = TypeVar("T")
Place = tuple[str | int, ...]

SECONDS = 5.0  # of the processor, so that a busy machine is no finding
MEMORY = 1 << 30  # bytes beyond what the process has
REFUSED = (2, 3, 4)  # exit codes of usage, bad input and damage
DEEP = 100_000  # levels, far more than any parser's stack
NUMBERS = (0, 1, 2, 5, 7, 8, 127, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**63 - 1, 2**63, 2**64 - 1)

# Values that have broken parsers, as JSON's text.
HOSTILE = (
    *("null", "true", "false", "[]", "{}", '""', "0", "1", "-1", "-0.0", "0.5", "1.5", "1e308", "1e400", "-1e400"),
    *("NaN", "Infinity", "-Infinity", '"NaN"', '"1"', '"x"', '" "', '"\\n"', '"\\u0000"', '"\\ud800"', '"../x"', '"/"'),
    *(str(number) for number in NUMBERS),
    *("9" * 4000, "9" * 5000, "[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP, "[" * DEEP),
    *('["x"]', "[1]", "[null]", '{"a": 1}', '{"": null}', '"' + "x" * 3000 + '"', "tru", '"', "\ufeff1", "1 2"),
)


@st.composite
def damaged(draw: st.DrawFn, good: bytes | Sequence[bytes], pieces: Sequence[bytes] = ()) -> bytes:
    """Draw a copy of `good`, or of one of several, with up to four changes; sometimes with none.

    pieces: bytes that mean something to the reader.
    """
    whole = [good] if isinstance(good, bytes) else good
    content = draw(st.sampled_from(whole))
    for _ in range(draw(st.integers(0, 4))):
        content = _changed(draw, content, whole, pieces)
    return content


def _changed(draw: st.DrawFn, content: bytes, whole: Sequence[bytes], pieces: Sequence[bytes]) -> bytes:
    size = len(content)
    at, other = sorted((draw(st.integers(0, size)), draw(st.integers(0, size))))
    near = min(size, at + draw(st.integers(0, 9)))
    bit = bytes([content[at] ^ 1 << draw(st.integers(0, 7))]) if at < size else b""
    source = draw(st.sampled_from(whole))
    begin = draw(st.integers(0, len(source)))
    few = draw(st.binary(min_size=1, max_size=20))
    number = struct.pack("<Q", draw(st.sampled_from(NUMBERS)))[: draw(st.sampled_from((1, 2, 4, 8)))]
    piece = draw(st.sampled_from([*pieces, b"\n", b'"', b"\x80"])) * draw(st.sampled_from([1, 2, 500]))
    changes = {
        "flip": content[:at] + bit + content[at + 1 :],
        "byte": content[:at] + few[:1] + content[at + 1 :],
        "number": content[:at] + number + content[at + len(number) :],
        "insert": content[:at] + few + content[at:],
        "piece": content[:at] + piece + content[at:],
        "splice": content[:at] + source[begin : begin + 200] + content[at:],
        "delete a little": content[:at] + content[near:],
        "delete": content[:at] + content[other:],
        "repeat": content[:at] + content[at:near] * 7 + content[near:],
        "duplicate": content[:other] + content[at:other] + content[other:],
        "truncate": content[:at],
        "extend": content + few,
        "swap": content[:at] + content[other:] + content[at:other],
    }
    return changes[draw(st.sampled_from([*changes]))]


@st.composite
def damaged_json(draw: st.DrawFn, good: Any) -> bytes:
    """Draw the text of `good` with up to three of its values or keys changed, or with changes of its bytes."""
    if draw(st.integers(0, 3)) == 0:
        return draw(damaged(json.dumps(good, indent=1).encode()))
    places = list(_places(good))
    edits: dict[Place, str | None] = {}
    more: dict[Place, str] = {}
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.sampled_from(places))
        match draw(st.sampled_from(("replace", "replace", "swap", "remove", "add", "repeat"))):
            case "replace":
                edits[place] = draw(values())
            case "swap":
                edits[place] = json.dumps(_at(good, draw(st.sampled_from(places))))
            case "remove":
                edits[place] = None
            case "add":
                more[place] = f"{json.dumps(draw(st.text(max_size=5)))}: {draw(values())}"
            case "repeat" if place:  # the same key twice
                more[place[:-1]] = f"{json.dumps(str(place[-1]))}: {draw(values())}"
    return (_text(good, (), edits, more) or "").encode("utf-8", "surrogatepass")


def values() -> st.SearchStrategy[str]:
    """Draw any JSON value, as text."""
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
    trees = st.recursive(
        scalars, lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(), below), max_leaves=5
    )
    return st.sampled_from(HOSTILE) | trees.map(json.dumps)


def _places(value: Any, place: Place = ()) -> Iterator[Place]:
    yield place
    if isinstance(value, dict | list):
        for key, below in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(below, (*place, key))


def _at(value: Any, place: Place) -> Any:
    for key in place:
        value = value[key]
    return value


def _text(value: Any, place: Place, edits: dict[Place, str | None], more: dict[Place, str]) -> str | None:
    """Return the JSON of `value` with the edits, or None if it is removed."""
    if place in edits:
        return edits[place]
    if isinstance(value, dict):
        texts = {key: _text(below, (*place, key), edits, more) for key, below in value.items()}
        entries = [f"{json.dumps(key)}: {text}" for key, text in texts.items() if text is not None]
        return "{" + ", ".join([*entries, *([more[place]] if place in more else [])]) + "}"
    if isinstance(value, list):
        items = [_text(below, (*place, number), edits, more) for number, below in enumerate(value)]
        return "[" + ", ".join(item for item in items if item is not None) + "]"
    return json.dumps(value)


def survives(read: Callable[[], T]) -> T | None:
    """Return what a reader returns, or None if it refuses the content with an error that the command line documents.

    Another exception, more than `SECONDS` or more than `MEMORY` fails the test.
    """
    try:
        with limits():
            return read()
    except Exception as error:
        if cli.exit_code(error) not in REFUSED:
            raise
        assert str(error)
        return None


@contextlib.contextmanager
def limits() -> Iterator[None]:
    """Limit the time and the memory of the block."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"still reading after {SECONDS:g} s")

    handler, (soft, hard) = signal.signal(signal.SIGPROF, stop), resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, hard))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
