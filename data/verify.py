"""Check that finished folders are unchanged and valid: every file, every line, every record.

    python -m data.verify workdir/corpus workdir/tfrecords/seq128

Give folders written by any stage, or folders that contain such folders at any depth. Each problem is printed as one
line: the file, the record with its byte, and what is wrong. The exit code is 4 if there is any problem, otherwise 0.

- Files are hashed and compared with the manifest: missing, extra, cut, changed or duplicated files.
- Lines must be documents with unique ids, the counts of the manifest must be right, and no text may be both in the
  training set and held out.
- Records must have correct checksums, an index that agrees, and valid content.
- Blocks of tokens must have correct checksums, their ids must be in the vocabulary, and each document must end.
- The inputs of a stage, if they stand beside it, must be those that it was made from.

With `--level files`, only the files are hashed.
"""

import contextlib
import dataclasses
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from bert.core import cli, files, manifest, ranges
from bert.core.errors import InputError, IntegrityError
from bert.core.manifest import File, Manifest
from bert.core.progress import MB, Progress
from bert.core.ranges import Workers
from bert.text import frames
from data.audit import checks, token_audit
from data.audit.checks import Problem, RecordFormat
from data.audit.token_audit import TokenFormat
from data.pipeline import sources, workers

NONE = np.zeros(0, np.uint64)
FETCHED = ("download", "synthetic")  # stages
SPLITS = ("train", "heldout")
COUNTED = {".jsonl": "documents", ".tfrecord": "records", ".tokens": "tokens"}  # what a manifest calls records


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m data.verify`."""

    folders: cli.Positional[tuple[Path, ...]]
    """finished folders, or folders that contain them"""
    level: Literal["files", "records"] = "records"
    """files: hash the files; records: also check each line and record"""
    workers: Workers = workers.available()
    """number of worker processes"""

    def __post_init__(self) -> None:
        ranges.check(self)


class FileTask(NamedTuple):
    """One file to check, and what the manifest says about it and its records."""

    path: Path
    listed: File
    level: str
    records: tuple[str, RecordFormat] | None  # kind and format
    tokens: TokenFormat | None


class FileResult(NamedTuple):
    """The problems and the content of a file."""

    problems: list[Problem]
    counts: Counter[str]
    ids: np.ndarray = NONE  # [documents] keys of the documents' ids, for files of lines
    texts: np.ndarray = NONE  # [documents] keys of their texts, for files of lines or tokens
    changed_to: str = ""  # hash of the file if it differs from the manifest; then the first problem says so


def finished_folders(roots: Sequence[Path]) -> list[Path]:
    """Return the folders with a manifest: each root itself, or all below it. Raise InputError if a root has none."""
    folders: dict[Path, None] = {}
    for root in roots:
        below = [root] if (root / manifest.NAME).is_file() else _folders_below(root)
        if not below:
            reason = f"no {manifest.NAME} in it or below" if root.exists() else "no such folder"
            raise InputError(f"{root}: {reason}; give a folder that a stage finished")
        folders |= dict.fromkeys(below)
    return list(folders)


def _folders_below(root: Path) -> list[Path]:
    """Return the folders with a manifest at any depth, but hidden ones; one that is there under two names once."""
    found = sorted(path.parent for path in files.below(root) if path.name == manifest.NAME) if root.is_dir() else []
    shown = [path for path in found if not any(part.startswith(".") for part in path.relative_to(root).parts)]
    return list({path.resolve(): path for path in reversed(shown)}.values())[::-1]


def tasks_of(described: Manifest, level: str, problems: list[Problem]) -> list[FileTask]:
    """Return one task for each existing file. Add missing, extra and duplicated files to `problems`."""
    originals = _originals(described)
    tasks: list[FileTask] = []
    is_records = any(name.endswith(".tfrecord") for name in described.files)
    records = checks.record_format(described, problems) if is_records and level == "records" else None
    is_tokens = any(map(token_audit.is_tokens, described.files))
    tokens = token_audit.token_format(described, problems) if is_tokens and level == "records" else None
    for name, listed in sorted(described.files.items()):
        path = described.path / name
        if not path.is_file():
            problems.append(Problem(path, "", "missing"))
        if _has_text(name, listed) and (first := originals[listed.sha256]) != name:
            problems.append(Problem(path, "", f"a duplicate: has the content of {first}"))
        tasks += [FileTask(path, listed, level, records, tokens)] * path.is_file()
    existing = {str(path.relative_to(described.path)) for path in described.path.rglob("*") if path.is_file()}
    for name in sorted(existing - described.files.keys() - {manifest.NAME}):
        original = originals.get(files.sha256(described.path / name))
        what = f"extra: a copy of {original}" if original else f"extra: not in {manifest.NAME}"
        problems.append(Problem(described.path / name, "", what))
    return tasks


def _originals(described: Manifest) -> dict[str, str]:
    """Return for each hash of a file with documents, records or tokens the first file, by name, that has it."""
    named = sorted(described.files.items(), reverse=True)
    return {listed.sha256: name for name, listed in named if _has_text(name, listed)}


def _has_text(name: str, listed: File) -> bool:
    return name.endswith(tuple(COUNTED)) and listed.bytes > 0


def check_file(task: FileTask) -> FileResult:
    """Hash one file and, depending on the level, check its lines or records."""
    problems: list[Problem] = []
    result, changed_to = FileResult(problems, Counter()), ""
    try:
        size, listed_size = task.path.stat().st_size, task.listed.bytes
        if (digest := files.sha256(task.path)) != task.listed.sha256:
            what = f"{size} bytes, not {listed_size}" if size != listed_size else "changed: its hash differs"
            what = f"cut: {what}" if size < listed_size else what
            problems.append(Problem(task.path, "", what))
            changed_to = digest
        if task.level == "records" and task.path.suffix == ".jsonl":
            summary = checks.check_lines(task.path, problems)
            result = FileResult(problems, summary.counts, summary.ids, summary.texts)
        elif task.records and task.path.suffix == ".tfrecord":
            result = FileResult(problems, _check_records(task, *task.records, problems))
        elif task.tokens and token_audit.is_tokens(task.path.name):
            checked = token_audit.check_tokens(task.path, task.tokens, problems)
            result = FileResult(problems, checked.counts, texts=checked.texts)
    except OSError as error:
        problems.append(Problem(task.path, "", f"cannot be read: {error.strerror}"))
    unit = COUNTED.get(task.path.suffix, "records")
    if len(problems) >= checks.LIMIT:
        problems.append(Problem(task.path, "", f"{checks.LIMIT} problems or more: the rest was not read"))
    elif result.counts and result.counts[unit] != task.listed.records:
        shown = unit if unit == "tokens" else "records"
        problems.append(Problem(task.path, "", f"{result.counts[unit]} {shown}, not {task.listed.records}"))
    return result._replace(changed_to=changed_to)


def _check_records(task: FileTask, kind: str, expected: RecordFormat, problems: list[Problem]) -> Counter[str]:
    """Read the frames of a file, compare them with the index, and check the content batch by batch."""
    index = frames.read_index(task.path)
    counts: Counter[str] = Counter(records=0)
    entries, end = [], 0
    for batch in frames.batches(task.path, index):
        entries += [frame.offset for frame in batch]
        counts["records"] += sum(not frame.damage.startswith("cut") for frame in batch)
        wrong = [(number, frame.damage) for number, frame in enumerate(batch) if frame.damage]
        right = [number for number, frame in enumerate(batch) if not frame.damage]
        if right:
            checked = checks.KINDS[kind].check([batch[number].payload for number in right], expected)
            counts.update(checked.counts)
            wrong += [(right[row], what) for row, what in checked.wrong]
        for number, what in sorted(wrong):
            where = f"record {batch[number].number} at byte {batch[number].offset}"
            problems.append(Problem(task.path, where, what))
        if len(problems) >= checks.LIMIT:
            return counts
        end = batch[-1].number + 1
    _check_index(task, index, np.array(entries[:end], np.uint64), problems)
    return counts


def _check_index(task: FileTask, index: np.ndarray, begins: np.ndarray, problems: list[Problem]) -> None:
    """Compare the index with the offsets [records] at which the records begin."""
    path, entries = frames.index_path(task.path), (task.listed.records or 0) + 1
    if not path.is_file():
        return  # already reported as missing
    if len(index) != entries:
        problems.append(Problem(path, "", f"{len(index)} entries, not {entries}"))
    common = min(len(index), len(begins))
    for entry in np.flatnonzero(index[:common] != begins[:common])[: checks.LIMIT].tolist():
        what = f"says byte {index[entry]}, but record {entry} begins at byte {begins[entry]}"
        problems.append(Problem(path, f"entry {entry}", what))
    if len(index) == entries and index[-1] != task.listed.bytes:
        problems.append(Problem(path, f"entry {entries - 1}", f"says byte {index[-1]}, not the file's end"))


def check_folder(
    described: Manifest, tasks: Sequence[FileTask], results: Sequence[FileResult], problems: list[Problem]
) -> None:
    """Add damaged files, repeated documents and wrong counts to a folder's `problems`."""
    originals = _originals(described)
    for result in results:
        if original := originals.get(result.changed_to):
            changed = result.problems[0]
            result.problems[0] = changed._replace(what=f"{changed.what}; it is a duplicate of {original}")
        problems += result.problems
    documents = [(task.path, result) for task, result in zip(tasks, results, strict=True) if len(result.texts)]
    if documents:
        paths = [path for path, _ in documents]
        starts = np.cumsum([0, *(len(result.texts) for _, result in documents)])
        ids = np.concatenate([result.ids for _, result in documents])
        texts = np.concatenate([result.texts for _, result in documents])
        problems += _repeated_ids(ids, paths, starts)  # tokens have none
        problems += _in_both_splits(texts, paths, starts)
    if not problems:  # otherwise the counts differ anyway
        problems += _wrong_counts(described, tasks, results)


def _place(row: int, paths: Sequence[Path], starts: np.ndarray) -> tuple[Path, str]:
    file = int(np.searchsorted(starts, row, side="right")) - 1
    unit = "document" if token_audit.is_tokens(paths[file].name) else "line"
    return paths[file], f"{unit} {row - int(starts[file]) + 1}"


def _repeated_ids(ids: np.ndarray, paths: Sequence[Path], starts: np.ndarray) -> Iterator[Problem]:
    order = np.argsort(ids, kind="stable")
    again = np.flatnonzero(np.diff(ids[order]) == 0)
    for row, earlier in sorted(zip(order[again + 1].tolist(), order[again].tolist(), strict=True))[: checks.LIMIT]:
        path, where = _place(earlier, paths, starts)
        yield Problem(*_place(row, paths, starts), f"has the same id as {where} of {path.name}")


def _in_both_splits(texts: np.ndarray, paths: Sequence[Path], starts: np.ndarray) -> Iterator[Problem]:
    """Yield the training documents that have the same text as a held-out document."""
    split = np.repeat([path.name.split("-")[0] for path in paths], np.diff(starts))
    held_out, trained = np.flatnonzero(split == "heldout"), np.flatnonzero(split == "train")
    for row in trained[np.isin(texts[trained], texts[held_out])][: checks.LIMIT].tolist():
        other, where = _place(int(held_out[texts[held_out] == texts[row]][0]), paths, starts)
        yield Problem(*_place(row, paths, starts), f"is trained on, and held out in {where} of {other.name}")


def _wrong_counts(described: Manifest, tasks: Sequence[FileTask], results: Sequence[FileResult]) -> Iterator[Problem]:
    """Compare the counts with the counts of the same name in the manifest, for the folder and for each split."""
    total: Counter[str] = Counter()
    for split in (*SPLITS, "part"):
        names = [task.path.name.split("-")[0] == split for task in tasks]
        counts = sum((result.counts for result in itertools.compress(results, names)), Counter[str]())
        total += counts
        claimed = described.counts.get(split)
        yield from _differences(described.path, f"{split} ", counts, claimed if isinstance(claimed, dict) else {})
        if counts["documents"]:
            name = {"heldout": "held_out_documents"}.get(split, f"{split}_documents")
            yield from _differences(described.path, "", Counter({name: counts["documents"]}), described.counts)
    lines = described.counts.get("pieces")  # of documents that are too long for one line
    yield from _differences(described.path, "", total, described.counts | ({"documents": lines} if lines else {}))


def _differences(folder: Path, of: str, counts: Counter[str], claimed: dict[str, Any]) -> Iterator[Problem]:
    for key in counts.keys() & claimed.keys():
        if counts[key] != claimed[key]:
            yield Problem(folder / manifest.NAME, "", f"counts {claimed[key]} {of}{key}, but there are {counts[key]}")


def check_inputs(described: Manifest, others: Sequence[Manifest]) -> Iterator[Problem]:
    """Compare the inputs that a folder was made from with those now beside it or checked with it."""
    recorded: dict[str, set[str]] = {}
    for name, digest in described.inputs.items():  # "shards", or "0:shards" if two inputs had the same name
        recorded.setdefault(re.sub(r"^\d+:", "", name), set()).add(digest)
    near = [other.path for other in others if other.stage != described.stage]
    for name, digests in sorted(recorded.items()):
        here = [folder for folder in near if folder.name == name] + [folder / name for folder in near]
        candidates = [path for path in (described.path.parent / name, *here) if _may_be_input(path, described)]
        if candidates and not digests & set(_hashes(candidates)):
            what = f"made from another {name} than the present {candidates[0]}; run data.{described.stage} again"
            yield Problem(described.path, "", what)


def _may_be_input(path: Path, described: Manifest) -> bool:
    """Return whether a folder may have been made from `path`, an existing file or folder with the name of its input.

    A user's folder of texts may have the name of a stage, such as "books". It is not the folder itself, nor what
    another stage made of texts.
    """
    if not path.exists() or path.resolve() == described.path.resolve():
        return False
    if not sources.is_from_texts(described) or not manifest.is_finished(path):
        return True
    try:
        return manifest.read(path).stage in FETCHED
    except IntegrityError:
        return False


def _hashes(paths: Sequence[Path]) -> Iterator[str]:
    for path in paths:
        with contextlib.suppress(IntegrityError):  # damaged, so it is another one
            yield manifest.content_hash(path)


def run(options: Options) -> dict[Path, list[Problem]]:
    """Check all folders and print the problems of each, or that there are none. Return the problems by folder."""
    all_problems: dict[Path, list[Problem]] = {folder: [] for folder in finished_folders(options.folders)}
    manifests: dict[Path, Manifest] = {}
    tasks: dict[Path, list[FileTask]] = {}
    for folder, problems in all_problems.items():
        try:
            content = manifest.read(folder)
            manifest.check_inside(folder, content.files)
            manifests[folder] = content
        except IntegrityError as error:
            problems.append(Problem(folder / manifest.NAME, "", str(error).partition(": ")[2]))
        else:
            tasks[folder] = tasks_of(manifests[folder], options.level, problems)
    every = [task for several in tasks.values() for task in several]
    results = workers.run(check_file, every, options.workers)
    with Progress("verify", MB, sum(task.path.stat().st_size for task in every)) as progress:
        for folder, problems in all_problems.items():
            if described := manifests.get(folder):
                folder_results = []
                for task in tasks[folder]:
                    folder_results.append(next(results))
                    progress.add(task.path.stat().st_size)
                check_folder(described, tasks[folder], folder_results, problems)
                problems += check_inputs(described, list(manifests.values()))
            print("\n".join(map(str, problems)) or _no_problems(manifests[folder], options.level), flush=True)
    return all_problems


def _no_problems(described: Manifest, level: str) -> str:
    size = sum(listed.bytes for listed in described.files.values())
    records = sum(listed.records or 0 for listed in described.files.values())
    unit = "tokens" if any(map(token_audit.is_tokens, described.files)) else "records"
    checked = f", {records:,} {unit}" if level == "records" and records else ""
    return f"{described.path}: ok ({described.stage}: {len(described.files):,} files, {size / 1e6:,.1f} MB{checked})"


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m data.verify", description=__doc__)
    os.environ.update(workers.NO_GPU)  # inherited by the workers, which need no GPU
    damaged = {folder: problems for folder, problems in run(options).items() if problems}
    if damaged:
        count, first = sum(map(len, damaged.values())), next(iter(damaged))
        where = str(first) if len(damaged) == 1 else f"{first} and {len(damaged) - 1} more"
        raise IntegrityError(f"{where}: {count} problems, listed above; remove damaged folders and run the stage again")


if __name__ == "__main__":
    cli.main(main)
