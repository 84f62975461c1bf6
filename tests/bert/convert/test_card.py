"""The model card describes the run."""

import json
from pathlib import Path

from bert.convert import __main__ as convert
from bert.pretrain import PretrainingModel
from tests.bert.convert.folders import (
    SMALL,
    a_run,
)
from tests.training import sign


def test_the_card_says_what_the_run_was(tmp_path: Path) -> None:
    a_run(tmp_path / "run", SMALL, PretrainingModel(SMALL, 0))
    settings = {"data.train": "some folder/seq128", "batch.total": 24, "precision.xla": False, "run.directory": "/x"}
    about = {"config": settings, "versions": {"tensorflow": "2.21.0"}}
    (tmp_path / "run/config.json").write_text(json.dumps(about))
    sign(tmp_path / "run")
    lines = [{"step": step, "split": "heldout", "loss": 3.0 - step, "mlm_accuracy": 0.51 + step} for step in (0, 7)]
    (tmp_path / "run/metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 8, "spl')
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "theirs")])
    card = (tmp_path / "theirs/README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\npipeline_tag: fill-mask\n")
    assert "--data.train 'some folder/seq128' \\\n    --batch.total 24 \\\n    --precision.xla false\n" in card
    assert "| heldout | 7 | -4.0000 | 7.5100 |" in card and "/x" not in card
