"""What seqeval makes of random tags: prints the digests that test_entities.py compares with.

    python -m venv /tmp/seqeval
    /tmp/seqeval/bin/pip install setuptools==80.9.0 setuptools-scm==8.3.1 wheel scikit-learn==1.9.1
    /tmp/seqeval/bin/pip install --no-build-isolation seqeval==1.2.2
    /tmp/seqeval/bin/python tests/tasks/seqeval_oracle.py

seqeval is not installed with the rest: its last release is of 2020, and its source does not build with the current
setuptools-scm that it asks for. So the test has digests of what it found in 10,000 cases of each kind (2026-11-24,
Python 3.11), and computes the same without it. This file imports nothing of ours.
"""

import hashlib
import random
from collections.abc import Callable, Iterable

CASES = 10_000
KINDS = {"IOB": "BI", "BIOES": "BIES"}
TYPES = ("PER", "LOC", "B", "x-ray")
Sentences = list[list[str]]
Found = list[tuple[str, int, int]]  # type, first word, last word


def cases(kind: str) -> Iterable[tuple[Sentences, Sentences]]:
    """Gold and predicted tags of one to four sentences; any tag follows any other."""
    source = random.Random(f"seqeval {kind}")
    tags = [f"{letter}-{name}" for letter in KINDS[kind] for name in TYPES]

    def pick(share: float) -> str:
        return "O" if source.random() < share else tags[int(source.random() * len(tags))]

    for case in range(CASES):
        outside, kept = source.random(), source.random()
        gold = [[pick(outside) for _ in range(1 + int(source.random() * 11))] for _ in range(1 + case % 4)]
        yield gold, [[tag if source.random() < kept else pick(outside) for tag in sentence] for sentence in gold]


def digest(
    kind: str,
    find: Callable[[list[str]], Found],
    score: Callable[[Sentences, Sentences], tuple[float, float, float, float]],
) -> str:
    """Hash the entities of all cases, and their precision, recall, F1 and accuracy."""
    hashed = hashlib.sha256()
    for gold, predicted in cases(kind):
        numbers = " ".join(f"{number:.9f}" for number in score(gold, predicted))
        hashed.update(f"{[find(tags) for tags in gold]} {numbers}\n".encode())
    return hashed.hexdigest()[:32]


def main() -> None:
    from seqeval.metrics import sequence_labeling as metrics

    def score(gold: Sentences, predicted: Sentences) -> tuple[float, float, float, float]:
        precision, recall, f1, _ = metrics.precision_recall_fscore_support(
            gold, predicted, average="micro", zero_division=0
        )
        return precision, recall, f1, metrics.accuracy_score(gold, predicted)

    for kind in KINDS:
        print(kind, digest(kind, metrics.get_entities, score))


if __name__ == "__main__":
    main()
