"""Every family of weights is there under its name, with what reads and writes its tokenizers."""

import pytest

from bert.convert.families import ENCODERS, FAMILIES, Family, TokenizerFiles


@pytest.mark.parametrize("name", FAMILIES)
def test_every_row_is_a_family_of_its_name(name: str) -> None:
    family = FAMILIES[name]
    assert isinstance(family, Family) and family.model_type == name
    assert family.kinds and all(isinstance(stored, TokenizerFiles) for stored in family.tokenizers.values())
    assert (family.read_config is None) == (family.config_fields is None)
    assert name in ENCODERS or not family.tasks
