"""Put words together that a hyphen, or a soft one, divides at the end of a line.

A word must go on in lower case, and occur elsewhere, whatever its case: in its text, else in any text of the source. A
word that occurs more often with the hyphen keeps it, without the line end. One that occurs in neither form stays
divided, since "pre-" may stand for itself, as in "pre- and post-war". A soft hyphen only ever stands within a word.

Two passes over all texts, in parallel, settle the words: the first finds what each text says of its own, the second
counts those that are open then. About fifty bytes are held in memory for each open one.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from bert.core import files
from bert.core.progress import MB, Progress
from bert.core.workspace import Work
from data.pipeline import workers
from data.pipeline.duplicates import saved_verdicts
from data.pipeline.sources import SourceStage, SourceTask

LINE_END = re.compile(r"([-\u2010\xad])[ \t]*\n[ \t]*([^\W\d_]+)")  # found fast: few lines end so
BEFORE = re.compile(r"(?<![^\W\d_])(?<![^\W\d_][-\u2010])[^\W\d_]+(?:[-\u2010][^\W\d_]+)*\Z")
HYPHENATED = re.compile(r"[^\W\d_]+(?:[-\u2010][^\W\d_]+)*")
SOFT = "\xad"
# Verdicts: leave it as it is; join the parts; keep the hyphen and join the lines; the text itself does not settle it.
DIVIDE, JOIN, KEEP, OPEN = range(4)

Texts = Callable[[SourceTask], Iterable[str]]  # yields the texts of a task whose lines are joined, in order


class Settings(NamedTuple):
    """What a task needs: the options of its stage, and the verdicts on the divided words of its texts, in order."""

    options: Any
    verdicts: bytes = b""


class Joined(NamedTuple):
    """A text whose words are put together."""

    text: str
    hyphens: int  # that are gone


class _Divided(NamedTuple):
    """A word in two parts."""

    begin: int
    end: int
    before: str
    hyphen: str
    after: str

    @property
    def forms(self) -> tuple[str, str]:
        """The word as a whole and with its hyphen, as words are counted."""
        before, after = _form(self.before), _form(self.after)
        return f"{before}{after}", f"{before}-{after}"


def _form(word: str) -> str:
    return word.lower().replace("\u2010", "-")


def _divided(text: str) -> list[_Divided]:
    """Return the divided words of a text, in order."""
    found, end = list[_Divided](), 0
    for match in LINE_END.finditer(text):
        begin = max(end, text.rfind("\n", 0, match.start()) + 1)
        if before := BEFORE.search(text, begin, match.start()):
            end = match.end()
            found.append(_Divided(before.start(), end, before[0], match[1], match[2]))
    return found


def join(text: str, verdicts: Iterator[int] | None = None) -> Joined:
    """Put the divided words of a text together.

    verdicts: what `settled` decided, from the first divided word of this text on. None: decide by the words of this
    text alone.
    """
    divided = _divided(text)
    if not divided:
        return Joined(text, 0)
    if verdicts is None:
        verdicts = iter(_own_verdicts(text, divided))
    shown, start, gone = list[str](), 0, 0
    for word in divided:
        if (verdict := next(verdicts, OPEN)) in (JOIN, KEEP):
            shown += [text[start : word.begin], word.before, "" if verdict == JOIN else word.hyphen, word.after]
            start = word.end
            gone += verdict == JOIN
    return Joined("".join([*shown, text[start:]]), gone)


def _numbers(text: str, divided: Sequence[_Divided]) -> dict[str, int]:
    """Return how often the forms of divided words occur in a text."""
    numbers = {form: 0 for word in divided for form in word.forms}
    for word in HYPHENATED.findall(text):
        if (form := _form(word)) in numbers:
            numbers[form] += 1
    return numbers


def _own_verdicts(text: str, divided: Sequence[_Divided]) -> list[int]:
    """Return what the words of a text say of its divided words."""
    numbers = _numbers(text, divided) if divided else {}
    return [_verdict(word, numbers) for word in divided]


def _verdict(word: _Divided, numbers: Mapping[str, int]) -> int:
    if word.hyphen == SOFT:
        return JOIN
    if not word.after[0].islower():
        return DIVIDE
    whole, hyphenated = map(numbers.__getitem__, word.forms)
    return (JOIN if whole >= hyphenated else KEEP) if whole or hyphenated else OPEN


class _Search(NamedTuple):
    """Texts to search for divided words, or to count words in. keys: file with the `_key`s of the words to count."""

    texts: Texts
    task: SourceTask
    keys: Path | None = None


def _own(search: _Search) -> tuple[bytes, bytes]:
    """Return the verdicts on the divided words of a task's texts, and the keys of the forms of those that are open.

    The verdicts are uint8 [n], the keys uint64 [open ones, 2].
    """
    verdicts, keys = bytearray(), list[list[int]]()
    for text in search.texts(search.task):
        divided = _divided(text)
        found = _own_verdicts(text, divided)
        verdicts += bytes(found)
        keys += [list(map(_key, word.forms)) for word, one in zip(divided, found, strict=True) if one == OPEN]
    return bytes(verdicts), np.array(keys, "<u8").tobytes()


def _occurrences(search: _Search) -> tuple[bytes, bytes]:
    """Return which of the sorted keys occur in the texts of a task, and how often: int64 [n] each."""
    assert search.keys is not None
    keys, numbers = np.load(search.keys, mmap_mode="r"), Counter[int]()
    for text in search.texts(search.task):
        words = Counter(HYPHENATED.findall(text))
        found = np.fromiter(map(_key, words), "<u8", len(words))
        places = np.searchsorted(keys, found)
        places[places == len(keys)] = 0
        is_wanted = keys[places] == found
        counts = np.fromiter(words.values(), np.int64, len(words))
        for place, count in zip(places[is_wanted].tolist(), counts[is_wanted].tolist(), strict=True):
            numbers[place] += count
    return np.array([*numbers], "<i8").tobytes(), np.array([*numbers.values()], "<i8").tobytes()


def _key(word: str) -> int:
    """Return a number of 64 bits for a word, whatever its case."""
    return int.from_bytes(hashlib.blake2b(_form(word).encode("utf-8", "replace"), digest_size=8).digest(), "little")


def settled(work: Work, stage: SourceStage, listed: Sequence[SourceTask], texts: Texts) -> list[SourceTask]:
    """Return the tasks, whose settings are `Settings`, with their verdicts."""

    def find() -> list[np.ndarray]:
        own = list(_passed(stage, listed, "words at line ends", _own, [_Search(texts, task) for task in listed]))
        forms = [np.frombuffer(keys, "<u8").reshape(-1, 2) for _, keys in own]
        keys = np.unique(np.concatenate(forms)) if forms else np.empty(0, "<u8")
        numbers = np.zeros(len(keys), np.int64)
        if len(keys):
            stored = work.private / "words.npy"
            with files.atomic_write(stored, "wb") as stream:
                np.save(stream, keys)
            searches = [_Search(texts, task, stored) for task in listed]
            for places, counts in _passed(stage, listed, "words of all texts", _occurrences, searches):
                numbers[np.frombuffer(places, "<i8")] += np.frombuffer(counts, "<i8")
        verdicts = [np.frombuffer(of_task, np.uint8).copy() for of_task, _ in own]
        for of_task, of_forms in zip(verdicts, forms, strict=True):
            of_task[of_task == OPEN] = _verdicts(numbers[np.searchsorted(keys, of_forms)])
        return verdicts

    split = saved_verdicts(work, find)
    return [
        task._replace(settings=task.settings._replace(verdicts=verdicts))
        for task, verdicts in zip(listed, split, strict=True)
    ]


def _verdicts(numbers: np.ndarray) -> np.ndarray:
    """Return the verdicts for the numbers of both forms [n, 2]: uint8 [n]."""
    whole, hyphenated = numbers.T
    return np.select([whole + hyphenated == 0, whole >= hyphenated], [DIVIDE, JOIN], KEEP).astype(np.uint8)


Found = TypeVar("Found")


def _passed(
    stage: SourceStage,
    listed: Sequence[SourceTask],
    name: str,
    function: Callable[[_Search], Found],
    searches: Sequence[_Search],
) -> Iterator[Found]:
    """Yield what a function finds in the texts of each task, in order, and show how far it is."""
    sizes = list(map(stage.size, listed))
    results = workers.run(function, searches, stage.options.workers, stage.options.scheduler)
    with Progress(f"{stage.name}: {name}", MB, sum(sizes)) as progress:
        for size, found in zip(sizes, results, strict=True):
            yield found
            progress.add(size)
