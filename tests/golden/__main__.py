"""Compare what two checkouts compute, on this machine: `python -m tests.golden REVISION [NAME ...]`.

All cases of tests/golden/cases.py are run by the checkout that holds this file and by REVISION, in a temporary
worktree of it, or by a folder that is one already. Equal must be: the manifests of data, the variables of the last
checkpoint to the bit, the losses, `config.json`, what is printed, help texts and refusals. Differences are printed; the
exit code is then 1. Bits depend on the processor, so none are kept in the repository.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

from bert.core import cli
from bert.core.errors import UsageError
from tests.golden import cases, texts

ROOT = Path(__file__).resolve().parents[2]
# What depends on the time, on the machine's load and on the checkout.
TIMED = re.compile(r"\S*(?:_per_second\S*|_share|seconds)[=:]\S*|\b[\d.,]+ (?:s|ms|min)\b")
PROGRESS = re.compile(r"^\S+: [\d,]+ of [\d,]+ \w+ in ")  # printed where work takes long
TIMED_KEYS = re.compile(r"per_second|_share$|seconds|^time")
VERSIONS = ("code", "versions", "directory", "teacher")  # the last: a hash of a checkpoint, which has that of the code
READ = """
import hashlib, json, sys, tensorflow as tf
reader = tf.train.load_checkpoint(sys.argv[1])
names = sorted(reader.get_variable_to_shape_map())
print(json.dumps({name: hashlib.sha256(reader.get_tensor(name).tobytes()).hexdigest() for name in names
                  if reader.get_variable_to_dtype_map()[name] != tf.string}))
"""
Results = dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What is compared."""

    revision: cli.Positional[str]
    """a commit, or the folder of a checkout"""
    names: cli.Positional[tuple[str, ...]] = ()
    """names of cases; none: all"""

    def __post_init__(self) -> None:
        if unknown := sorted({*self.names} - {*cases.DATA, *cases.TRAININGS, *texts.TEXTS}):
            raise UsageError(f"no case {unknown[0]!r}; tests/golden/cases.py and texts.py have the names")


def main(arguments: list[str]) -> None:
    """Run the cases with both checkouts and print what differs."""
    options = cli.parse(Options, arguments, prog="python -m tests.golden", description=__doc__)
    with (
        tempfile.TemporaryDirectory() as folder,
        checkout_of(options.revision, folder) as before,
        ThreadPool(2) as pool,
    ):
        checkouts = ((before, Path(folder) / "0"), (ROOT, Path(folder) / "1"))
        found = pool.starmap(results, [(*each, options.names) for each in checkouts])
    differences = differ(found[0], found[1])
    print("\n".join(differences) if differences else f"{len(found[0])} cases, no difference")
    if differences:
        sys.exit(1)


@contextlib.contextmanager
def checkout_of(revision: str, folder: str) -> Iterator[Path]:
    """Yield a folder that is a checkout, or a temporary worktree of a commit."""
    if (Path(revision) / "bert").is_dir():
        yield Path(revision).resolve()
        return
    path, worktree = Path(folder) / "checkout", ["git", "-C", str(ROOT), "worktree"]
    added = subprocess.run([*worktree, "add", "--quiet", "--detach", str(path), revision], check=False)
    if added.returncode:
        raise UsageError(f"{revision}: neither a checkout nor a commit of this one")
    try:
        yield path
    finally:
        subprocess.run([*worktree, "remove", "--force", str(path)], check=True)


def results(checkout: Path, folder: Path, names: Sequence[str]) -> Results:
    """Return the results of the cases, by their names, computed by a checkout in an empty folder."""
    found: Results = {}
    trainings = [name for name in cases.TRAININGS if not names or name in names]
    if trainings or not names or set(names) & {*cases.DATA}:
        for name, command in cases.DATA.items():
            line = run(checkout, folder, f"{command} --output FOLDER/{name}")
            manifest = folder / name / "manifest.json"
            found[name] = {"printed": line, "manifest": _files(manifest) if manifest.is_file() else {}}
        cases.write_tables(folder)
    for name in cases.with_needed(trainings):
        found[name] = _trained(checkout, folder, name)
    for name, command in texts.TEXTS.items():  # refusals are of those data and trainings
        if not names or name in names:
            found[name] = run(checkout, folder, command)
    return found


def run(checkout: Path, folder: Path, command: str, ranks: int = 1) -> str:
    """Return the exit code and what a command prints, without seconds, rates and the folder's name."""
    words = command.replace("FOLDER", str(folder)).replace("RUNS", f"{folder}/runs").split()
    launch = [str(checkout / "scripts/launch.sh"), "-np", str(ranks), "--"] if ranks > 1 else []
    environment = {
        **os.environ,
        "BERT_WORKDIR": f"{folder}/work",
        "PYTHONPATH": "",
        "COLUMNS": "80",
        "OMP_NUM_THREADS": "1",
    }
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    finished = subprocess.run(
        [*launch, sys.executable, "-m", *words],
        cwd=checkout, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    text = finished.stdout.replace(str(folder), "FOLDER").replace(str(checkout), "CHECKOUT")
    lines = [TIMED.sub("", line).rstrip() for line in text.splitlines() if not PROGRESS.search(line)]
    return "\n".join([f"exit code {finished.returncode}", *lines])


def _trained(checkout: Path, folder: Path, name: str) -> Results:
    training, directory = cases.TRAININGS[name], folder / "runs" / name
    printed = run(checkout, folder, f"{training.command} --run.directory {directory}", training.ranks)
    if not (directory / "config.json").is_file():
        return {"printed": printed}
    config = json.loads((directory / "config.json").read_text().replace(str(folder), "FOLDER"))
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return {
        "printed": printed,
        "config.json": {key: value for key, value in config.items() if key not in VERSIONS},
        "metrics": [{key: value for key, value in row.items() if not TIMED_KEYS.search(key)} for row in rows],
        "variables": {path.name: _variables(path) for path in sorted((directory / "checkpoints").glob("step-*"))},
    }


def _variables(checkpoint: Path) -> dict[str, str]:
    """Return the hash of each variable."""
    command = [sys.executable, "-c", READ, str(checkpoint / "variables")]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def _files(manifest: Path) -> dict[str, str]:
    """Return the hash of each file of a folder of data but its manifest."""
    paths = [path for path in sorted(manifest.parent.rglob("*")) if path.is_file() and path != manifest]
    return {str(path.relative_to(manifest.parent)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def differ(before: Any, after: Any, place: str = "") -> list[str]:
    """Return a line for each place where two results differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        lines = []
        for key in sorted({*before, *after}):
            lines += differ(before.get(key), after.get(key), f"{place}/{key}")
        return lines
    if isinstance(before, str) and isinstance(after, str) and "\n" in before + after:
        return differ(dict(enumerate(before.split("\n"))), dict(enumerate(after.split("\n"))), place)
    if isinstance(before, list) and isinstance(after, list):
        return differ(dict(enumerate(before)), dict(enumerate(after)), place)
    return [] if before == after else [f"{place}: {before!r} -> {after!r}"]


if __name__ == "__main__":
    cli.main(main)
