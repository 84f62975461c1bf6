"""What rows say of names: which variables are added to which weight, and which of them learn alone."""

import numpy as np
import pytest

from bert.core import rows
from bert.model import added
from bert.model.weights import in_encoder

NAMES = ["layer_0/mlp/inner/kernel", *(f"layer_0/mlp/inner/lora_{part}" for part in ("a", "b", "scale"))]
NAMES += ["embeddings/word", "adam_m/layer_0/mlp/inner/lora_a"]


def test_terms_are_found_by_the_names_of_their_variables() -> None:
    found = added.terms(filter(in_encoder, NAMES))
    assert found == {"layer_0/mlp/inner/kernel": [(added.LOW_RANK, tuple(NAMES[1:4]))]}
    assert [name for name in NAMES if added.row_of(name) is None] == [NAMES[0], NAMES[4]]
    assert [name for name in NAMES[:5] if added.is_learnt(name)] == NAMES[1:3]
    assert [name for name in NAMES[:5] if added.tunes(name)] == NAMES[1:4]
    assert [name for name in NAMES[:5] if added.has_terms(name)] == NAMES[1:2]  # B has the columns of its kernel


@pytest.mark.parametrize("row", added.ADDED)
def test_each_row_makes_a_term(row: added.Added) -> None:
    assert callable(rows.load(row.term))
    values = [np.ones(shape, np.float32) for shape in [(5, 2), (2, 3), ()][: len(row.made_of)]]
    assert added.term(row, values).dtype == np.float32
