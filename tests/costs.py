"""What each test costs: processor seconds and the memory of its worker, as a table by test, file or folder.

    python -m tests.costs FOLDER -n 2 -m "not thorough" tests/bert   # runs pytest with these arguments, then prints
    python -m tests.costs FOLDER                                     # prints what an earlier run has left in FOLDER

Processor seconds, those of the processes that the test started and waited for included, do not depend on what else the
machine does. A fixture is counted with the first test that asks for it. The tables are sorted by cost, and end with the
sum; FOLDER/NAME.tsv has the rows of each worker.
"""

import os
import resource
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = "BERT_TEST_COSTS"  # environment variable: where workers write
SHOWN = 60  # rows of a table


def processor_seconds() -> float:
    """Return the processor time of this process and of the children that it has waited for."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Write a row for each test: its name, seconds, and the largest memory of the worker so far in MB."""
    before = processor_seconds()
    result = yield
    if FOLDER in os.environ:
        name = os.environ.get("PYTEST_XDIST_WORKER", "main")
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        with open(Path(os.environ[FOLDER], f"{name}-{os.getpid()}.tsv"), "a") as file:
            print(item.nodeid, f"{processor_seconds() - before:.2f}", f"{memory:.0f}", sep="\t", file=file)
    return result


def read(folder: Path) -> dict[str, float]:
    """Return the seconds of each test."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for path in sorted(folder.glob("*.tsv")):
        for line in path.read_text().splitlines():
            test, cost, _ = line.split("\t")
            seconds[test] += float(cost)
    return dict(seconds)


def table(title: str, costs: dict[str, float]) -> str:
    """Return the largest costs, one line each: seconds, share of all that is shown so far, name."""
    total, shown, lines = sum(costs.values()), 0.0, [f"{title}: {len(costs)}, {sum(costs.values()):,.0f} s"]
    for name, cost in sorted(costs.items(), key=lambda row: -row[1])[:SHOWN]:
        shown += cost
        lines.append(f"{cost:9.1f} {shown / total:6.1%}  {name}")
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    """Run pytest with the arguments behind FOLDER, if there are any, and print the tables of what the folder has."""
    [name, *arguments] = argv
    folder, code = Path(name), 0
    if arguments:
        folder.mkdir(parents=True, exist_ok=True)
        os.environ[FOLDER] = str(folder.resolve())
        code = int(pytest.main(["-p", "tests.costs", *arguments]))
    tests = read(folder)
    files: defaultdict[str, float] = defaultdict(float)
    folders: defaultdict[str, float] = defaultdict(float)
    for test, cost in tests.items():
        path = test.partition("::")[0]
        files[path] += cost
        folders["/".join(Path(path).parent.parts[:3])] += cost
    print(table("tests", tests), table("files", dict(files)), table("folders", dict(folders)), sep="\n\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
