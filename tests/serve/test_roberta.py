"""The service takes an imported RoBERTa, whose mask is <mask>."""

from pathlib import Path

import pytest

from bert.convert import __main__ as convert
from serve import models
from serve.items import Masked, RequestError
from tests.bert.convert.test_roberta import a_folder


def test_a_service_fills_the_mask_of_roberta(tmp_path: Path) -> None:
    a_folder(tmp_path / "theirs")
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "run")])
    served = models.load(tmp_path / "run", "roberta", "float32", 3)
    assert served.details["uses"] == ["fill", "embed"] and served.details["mask"] == "<mask>"
    head = served.heads["fill"]
    prepared = head.prepare(Masked(text="the <mask> the", top=2), 9)
    answer = prepared.finish(head.compute(prepared.rows))
    assert [len(choices) for choices in answer["masks"]] == [2]
    with pytest.raises(RequestError, match="no <mask> in the text"):
        head.prepare(Masked(text="the [MASK]"), 9)
