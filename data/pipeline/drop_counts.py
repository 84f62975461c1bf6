"""What a stage read, wrote and dropped, by reason, in documents and characters. The numbers add up exactly.

What a stage drops may be whole documents, with their characters, or characters alone, such as white space at which
lines were joined. Reading and writing are counted each for itself, so that a loss that nobody counted is noticed.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping

IN, OUT = "in", "out"
UNITS = ("documents", "characters")
# A cause that is not a fault seldom takes more than a tenth of a corpus: repeated documents are then mostly a source
# that was given or downloaded twice, empty or short ones a wrong --document or --text_column.
LARGE = 0.1

Report = dict[str, dict[str, int]]  # unit -> "in", "out" and the reasons -> number


class DropCounts(Counter[tuple[str, str]]):
    """Numbers by unit and outcome, of one task or of all."""

    def read(self, documents: int, characters: int) -> None:
        """Count what is read."""
        self._add(IN, documents, characters)

    def wrote(self, documents: int, characters: int) -> None:
        """Count what is written."""
        self._add(OUT, documents, characters)

    def drop(self, reason: str, documents: int, characters: int) -> None:
        """Count what is dropped for a reason. Characters alone are dropped with `documents` 0."""
        self._add(reason, documents, characters)

    def _add(self, outcome: str, documents: int, characters: int) -> None:
        self["documents", outcome] += documents
        self["characters", outcome] += characters

    def report(self) -> Report:
        """Return the numbers as JSON can hold them, without reasons for which nothing was dropped."""
        report: Report = {unit: {IN: 0, OUT: 0} for unit in UNITS}
        for (unit, outcome), number in sorted(self.items()):
            if number or outcome in (IN, OUT):
                report[unit][outcome] = number
        return report


def total(reports: Iterable[Report]) -> Report:
    """Return the sums of the reports of several tasks."""
    losses = DropCounts()
    for report in reports:
        for unit, numbers in report.items():
            losses.update({(unit, outcome): number for outcome, number in numbers.items()})
    return losses.report()


def dropped(report: Report) -> str:
    """Return what was dropped, by reason, for a line."""
    documents, characters = report["documents"], report["characters"]
    reasons = sorted({*documents, *characters} - {IN, OUT})
    said = [f"{documents.get(one, 0):,} with {characters.get(one, 0):,}: {one}" for one in reasons]
    return ", ".join(said) or "nothing"


def tell(stage: str, report: Report, causes: Mapping[str, str] | None = None) -> None:
    """Print what was read, written and dropped in one line, and each large loss of documents in another.

    causes: what a large loss for a reason mostly comes from, and what to do; other losses are not warned of.
    """
    documents, characters = report["documents"], report["characters"]
    for unit, numbers in report.items():
        other = sum(number for outcome, number in numbers.items() if outcome not in (IN, OUT))
        assert numbers[IN] == numbers[OUT] + other, f"{stage}: {unit} do not add up: {numbers}"
    print(
        f"{stage}: {documents[IN]:,} documents with {characters[IN]:,} characters read, "
        f"{documents[OUT]:,} with {characters[OUT]:,} written; dropped: {dropped(report)}",
        file=sys.stderr,
    )
    for reason, cause in (causes or {}).items():
        if (share := documents.get(reason, 0) / max(1, documents[IN])) > LARGE:
            print(f"{stage}: warning: {share:.0%} of the documents were dropped: {reason}; {cause}", file=sys.stderr)
