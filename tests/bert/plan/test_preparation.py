"""Hours, disk and memory of data preparation."""

import pytest

from bert.plan.preparation import Preparation


def test_it_agrees_with_the_projection_for_16_cores() -> None:
    """docs/results/2026-11-data-preparation.md: 31.5 GB, 17 minutes to documents and 26 to instances, both with
    extraction of the 20 GB of Wikipedia only."""
    extraction = (31.5 - 20) * 1e9 / 16 / 2.5e6 / 60
    documents, instances = (Preparation.of(31.5e9, 16, 1, instances=kind) for kind in (False, True))
    assert documents.hours * 60 - extraction == pytest.approx(17, abs=1)
    assert instances.hours * 60 - extraction == pytest.approx(26, abs=1)


def test_each_length_of_sequences_takes_its_own_records() -> None:
    one, two = (Preparation.of(20e9, 7, phases, instances=True) for phases in (1, 2))
    assert two.hours > one.hours and two.disk - one.disk == pytest.approx(20e9 * 12.5)
