"""The picture of time and cost."""

import dataclasses
from pathlib import Path

from bert.plan import hardware, picture, search
from bert.plan.forecast import Job
from bert.recipes import RECIPES


def test_it_is_a_png(tmp_path: Path) -> None:
    config = RECIPES["bert_base_phase1"]()
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, vocab_size=30_522))
    plans = search.over_nodes([("it", config, Job(128, 20))], hardware.cluster("l4", 1), numbers=(1, 3, 5))
    picture.draw(plans, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
