"""Whether finished folders still are what their stages wrote: every file, every line, every record.

    python -m data.verify workdir/corpus workdir/tfrecords/seq128

A folder of any stage is taken, or one that holds such folders at any depth. Each damage is one line on stdout: the
file, the record and its byte, and what. Exit code 4 if there is any; else 0, and one line for each folder.

Files are hashed and compared with the manifest: missing, extra, cut, changed, doubled. Lines must be documents, with
ids and counts as they should be, and none of them both held out and trained on. Records must have right checksums, an
index that agrees, and a content that training can rely on. Inputs of a stage that stand beside it must be those it was
made from. `--level files` only hashes.
"""

import dataclasses
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from bert import cli
from bert.errors import InputError, IntegrityError
from bert.storage import files, manifest
from bert.storage.manifest import Manifest
from data.audit import checks, tfrecord_audit
from data.audit.checks import Facts, Problem
from data.pipeline import workers
from data.pipeline.progress import Progress

BATCH = 1024  # records parsed and checked at once
NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
NONE = np.zeros(0, np.uint64)
SPLITS = ("train", "heldout")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m data.verify`"""

    folders: cli.Positional[tuple[Path, ...]]
    """finished folders, or folders that hold some"""
    level: Literal["files", "records"] = "records"
    """files only hashes them; records looks at each line and record too"""
    workers: int = workers.available()
    """processes"""

    def __post_init__(self) -> None:
        workers.check(self.workers)


class Task(NamedTuple):
    """One file to check: what the manifest says of it, and of its records."""

    path: Path
    listed: dict[str, Any]  # {"bytes", "sha256", "records"}
    twins: dict[str, str]  # sha256 -> the listed file that has it
    level: str
    records: tuple[str, Facts] | None


class Found(NamedTuple):
    """What a file holds."""

    problems: list[Problem]
    counts: Counter[str]
    ids: np.ndarray = NONE  # [lines] a key of each document's id, of line files
    texts: np.ndarray = NONE


def finished_folders(roots: Sequence[Path]) -> list[Path]:
    """The folders with a manifest: each root itself, or all below it. Raises InputError if a root has none."""
    found: dict[Path, None] = {}
    for root in roots:
        below = [root] if (root / manifest.NAME).is_file() else sorted(p.parent for p in root.rglob(manifest.NAME))
        below = [path for path in below if not any(part.startswith(".") for part in path.relative_to(root).parts)]
        if not below:
            reason = f"no {manifest.NAME} in it or below" if root.exists() else "no such folder"
            raise InputError(f"{root}: {reason}; give a folder that a stage finished")
        found |= dict.fromkeys(below)
    return list(found)


def read_manifest(folder: Path) -> Manifest:
    """As `manifest.load`, but the files need not be there. Raises IntegrityError if it is not a manifest of ours."""
    path = folder / manifest.NAME
    try:
        found = Manifest(path=folder, **json.loads(path.read_bytes()))
        for listed in found.files.values():
            int(listed["bytes"]), str(listed["sha256"]), int(listed.get("records", 0))
        found.counts.items(), found.extra.items(), found.inputs.items()
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise IntegrityError(f"{path}: not a manifest of ours ({error!r})") from error
    return found


def tasks_of(found: Manifest, level: str, problems: list[Problem]) -> list[Task]:
    """One task for each file that is there; what is missing, extra or of a wrong size is added to `problems`."""
    twins: dict[str, str] = {}
    tasks: list[Task] = []
    is_records = any(name.endswith(".tfrecord") for name in found.files)
    records = checks.facts(found, problems) if is_records and level == "records" else None
    for name, listed in sorted(found.files.items()):
        path = found.path / name
        if not path.is_file():
            problems.append(Problem(path, "", "missing"))
        if name.endswith((".jsonl", ".tfrecord")) and listed["bytes"]:
            if listed["sha256"] in twins:
                problems.append(Problem(path, "", f"a duplicate: made with the content of {twins[listed['sha256']]}"))
            twins.setdefault(listed["sha256"], name)
        tasks += [Task(path, listed, twins, level, records)] * path.is_file()
    there = {str(path.relative_to(found.path)) for path in found.path.rglob("*") if path.is_file()}
    for name in sorted(there - found.files.keys() - {manifest.NAME}):
        twin = twins.get(files.sha256(found.path / name))
        what = f"extra: a copy of {twin}" if twin else f"extra: not in {manifest.NAME}"
        problems.append(Problem(found.path / name, "", what))
    return tasks


def check_file(task: Task) -> Found:
    """Hashes one file and, if asked, reads its lines or records."""
    problems: list[Problem] = []
    found = Found(problems, Counter())
    try:
        size, wanted = task.path.stat().st_size, task.listed["bytes"]
        if (digest := files.sha256(task.path)) != task.listed["sha256"]:
            how = f"cut: {size} bytes, not {wanted}" if size < wanted else f"{size} bytes, not {wanted}"
            how = "changed: its hash differs" if size == wanted else how
            twin = task.twins.get(digest)
            problems.append(Problem(task.path, "", how + (f"; it is a duplicate of {twin}" if twin else "")))
        if task.level == "records" and task.path.suffix == ".jsonl":
            read = checks.lines(task.path, problems)
            found = Found(problems, read.counts, read.ids, read.texts)
        elif task.records and task.path.suffix == ".tfrecord":
            found = Found(problems, _check_records(task, *task.records, problems))
    except OSError as error:
        problems.append(Problem(task.path, "", f"cannot be read: {error.strerror}"))
    if len(problems) >= checks.LIMIT:
        problems.append(Problem(task.path, "", f"{checks.LIMIT} problems and more: the rest was not read"))
    elif found.counts and (count := found.counts["documents"] or found.counts["records"]) != task.listed.get("records"):
        problems.append(Problem(task.path, "", f"{count} records, not {task.listed.get('records')}"))
    return found


def _check_records(task: Task, kind: str, facts: Facts, problems: list[Problem]) -> Counter[str]:
    """Walks the frames of a file, compares them with the index, and checks the content batch by batch."""
    index = tfrecord_audit.read_index(task.path)
    counts: Counter[str] = Counter(records=0)
    entries, end = [], 0
    for frame_batch in _batched(tfrecord_audit.walk(task.path, index), BATCH):
        entries += [frame.offset for frame in frame_batch]
        counts["records"] += sum(not frame.damage.startswith("cut") for frame in frame_batch)
        wrong = [(number, frame.damage) for number, frame in enumerate(frame_batch) if frame.damage]
        right = [number for number, frame in enumerate(frame_batch) if not frame.damage]
        if right:
            checked = checks.KINDS[kind].check([frame_batch[number].payload for number in right], facts)
            counts.update(checked.counts)
            wrong += [(right[row], what) for row, what in checked.wrong]
        for number, what in sorted(wrong):
            where = f"record {frame_batch[number].number} at byte {frame_batch[number].offset}"
            problems.append(Problem(task.path, where, what))
        if len(problems) >= checks.LIMIT:
            return counts
        end = frame_batch[-1].number + 1
    _check_index(task, index, np.array(entries[:end], np.uint64), problems)
    return counts


def _batched(items: Iterator[tfrecord_audit.Frame], size: int) -> Iterator[list[tfrecord_audit.Frame]]:
    while batch := list(itertools.islice(items, size)):
        yield batch


def _check_index(task: Task, index: np.ndarray, begins: np.ndarray, problems: list[Problem]) -> None:
    """Compares the index with where the records really begin [n]; whether the file is whole is known already."""
    path, wanted = tfrecord_audit.index_path(task.path), task.listed.get("records", 0) + 1
    if not path.is_file():
        return  # named as missing
    if len(index) != wanted:
        problems.append(Problem(path, "", f"{len(index)} entries, not {wanted}"))
    common = min(len(index), len(begins))
    for entry in np.flatnonzero(index[:common] != begins[:common])[: checks.LIMIT].tolist():
        what = f"says byte {index[entry]}, but record {entry} begins at byte {begins[entry]}"
        problems.append(Problem(path, f"entry {entry}", what))
    if len(index) == wanted and index[-1] != task.listed["bytes"]:
        problems.append(Problem(path, f"entry {wanted - 1}", f"says byte {index[-1]}, not the file's end"))


def judge(found: Manifest, tasks: Sequence[Task], results: Sequence[Found], problems: list[Problem]) -> None:
    """Adds to `problems` of a folder those of its files, doubled documents and wrong counts."""
    problems += [problem for result in results for problem in result.problems]
    documents = [(task.path, result) for task, result in zip(tasks, results, strict=True) if len(result.ids)]
    if documents:
        paths = [path for path, _ in documents]
        starts = np.cumsum([0, *(len(result.ids) for _, result in documents)])
        ids = np.concatenate([result.ids for _, result in documents])
        texts = np.concatenate([result.texts for _, result in documents])
        problems += _repeated_ids(ids, paths, starts)
        problems += _on_both_sides(texts, paths, starts)
    if not problems:  # else they differ, and no one learns more
        problems += _wrong_counts(found, tasks, results)


def _place(row: int, paths: Sequence[Path], starts: np.ndarray) -> tuple[Path, str]:
    file = int(np.searchsorted(starts, row, side="right")) - 1
    return paths[file], f"line {row - int(starts[file]) + 1}"


def _repeated_ids(ids: np.ndarray, paths: Sequence[Path], starts: np.ndarray) -> Iterator[Problem]:
    order = np.argsort(ids, kind="stable")
    again = np.flatnonzero(np.diff(ids[order]) == 0)
    for row, earlier in sorted(zip(order[again + 1].tolist(), order[again].tolist(), strict=True))[: checks.LIMIT]:
        path, where = _place(earlier, paths, starts)
        yield Problem(*_place(row, paths, starts), f"the id of {where} of {path.name} again")


def _on_both_sides(texts: np.ndarray, paths: Sequence[Path], starts: np.ndarray) -> Iterator[Problem]:
    """Training documents whose text is that of a held-out one."""
    split = np.repeat([path.name.split("-")[0] for path in paths], np.diff(starts))
    held_out, trained = np.flatnonzero(split == "heldout"), np.flatnonzero(split == "train")
    for row in trained[np.isin(texts[trained], texts[held_out])][: checks.LIMIT].tolist():
        twin, where = _place(int(held_out[texts[held_out] == texts[row]][0]), paths, starts)
        yield Problem(*_place(row, paths, starts), f"trained on, and held out in {where} of {twin.name}")


def _wrong_counts(found: Manifest, tasks: Sequence[Task], results: Sequence[Found]) -> Iterator[Problem]:
    """Compares what was counted with the manifest's counts of the same name: of the folder, or of each split."""
    total: Counter[str] = Counter()
    for split in (*SPLITS, "part"):
        names = [task.path.name.split("-")[0] == split for task in tasks]
        counts = sum((result.counts for result in itertools.compress(results, names)), Counter[str]())
        total += counts
        claimed = found.counts.get(split)
        yield from _differences(found.path, f"{split} ", counts, claimed if isinstance(claimed, dict) else {})
        if counts["documents"]:
            name = {"heldout": "held_out_documents"}.get(split, f"{split}_documents")
            yield from _differences(found.path, "", Counter({name: counts["documents"]}), found.counts)
    yield from _differences(found.path, "", total, found.counts)


def _differences(folder: Path, of: str, counts: Counter[str], claimed: dict[str, Any]) -> Iterator[Problem]:
    for key in counts.keys() & claimed.keys():
        if counts[key] != claimed[key]:
            yield Problem(folder / manifest.NAME, "", f"counts {claimed[key]} {of}{key}, but there are {counts[key]}")


def check_inputs(found: Manifest, others: Sequence[Manifest]) -> Iterator[Problem]:
    """Compares the inputs that stand beside a folder, or were checked with it, with those it was made from."""
    wanted: dict[str, set[str]] = {}
    for name, digest in found.inputs.items():  # "shards", or "0:shards" where two had one name
        wanted.setdefault(re.sub(r"^\d+:", "", name), set()).add(digest)
    near = [other.path for other in others if other.stage != found.stage]
    for name, digests in sorted(wanted.items()):
        here = [folder for folder in near if folder.name == name] + [folder / name for folder in near]
        candidates = [path for path in (found.path.parent / name, *here) if path.exists()]
        if candidates and not digests & {manifest.content_hash(path) for path in candidates}:
            what = f"made from another {name} than {candidates[0]} is now; run data.{found.stage} again"
            yield Problem(found.path, "", what)


def run(options: Options) -> dict[Path, list[Problem]]:
    """Checks all folders, prints what is wrong with each or that nothing is; returns the problems by folder."""
    outcome: dict[Path, list[Problem]] = {folder: [] for folder in finished_folders(options.folders)}
    manifests: dict[Path, Manifest] = {}
    tasks: dict[Path, list[Task]] = {}
    for folder, problems in outcome.items():
        try:
            manifests[folder] = read_manifest(folder)
        except IntegrityError as error:
            problems.append(Problem(folder / manifest.NAME, "", str(error).partition(": ")[2]))
        else:
            tasks[folder] = tasks_of(manifests[folder], options.level, problems)
    progress = Progress("verify", "files")
    results = workers.run(check_file, [task for several in tasks.values() for task in several], options.workers)
    for folder, problems in outcome.items():
        if found := manifests.get(folder):
            of_folder = []
            for task in tasks[folder]:
                of_folder.append(next(results))
                progress.add(1, task.path.stat().st_size)
            judge(found, tasks[folder], of_folder, problems)
            problems += check_inputs(found, list(manifests.values()))
        print("\n".join(map(str, problems)) or _right(manifests[folder], options.level), flush=True)
    return outcome


def _right(found: Manifest, level: str) -> str:
    size = sum(listed["bytes"] for listed in found.files.values())
    records = sum(listed.get("records", 0) for listed in found.files.values())
    looked = f", {records:,} records" if level == "records" and records else ""
    return f"{found.path}: right ({found.stage}: {len(found.files):,} files, {size / 1e6:,.1f} MB{looked})"


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m data.verify", description=__doc__)
    os.environ.update(NO_GPU)  # for the workers: checking needs none
    wrong = {folder: problems for folder, problems in run(options).items() if problems}
    if wrong:
        count, first = sum(map(len, wrong.values())), next(iter(wrong))
        where = str(first) if len(wrong) == 1 else f"{first} and {len(wrong) - 1} more"
        raise IntegrityError(f"{where}: {count} problems, listed above; remove what is damaged and run its stage again")


if __name__ == "__main__":
    cli.main(main)
