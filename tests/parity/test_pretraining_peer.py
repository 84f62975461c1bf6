"""The program that pretraining is compared with: it learns what is there to learn, and a stop changes no bit."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.laboratory import peer
from bert.core import journal, outputs
from bert.text.vocabulary import SPECIAL
from data import tfrecords
from tests.parity.test_transformers import PYTHON
from tests.training import same_bits, weights

pytestmark = pytest.mark.parity

PAIRS = [("ant", "red"), ("bee", "yellow"), ("fig", "purple"), ("lime", "green")]
FRAMES = ["the {} is {} .", "a {} , which is {} , is here .", "is the {} not {} ?"]
OTHERS = ("the", "is", "a", "which", "here", "not", ".", ",", "?")
VOCAB = [*SPECIAL, *(word for pair in PAIRS for word in pair), *OTHERS]
WORDS = """
    demo_phase1 --data.train {data} --model.num_hidden_layers 1 --model.hidden_size 24 --model.num_attention_heads 3
    --model.intermediate_size 40 --model.max_position_embeddings 31 --batch.total 12 --batch.per_device 12
    --optimizer.name adamw --optimizer.learning_rate 0.01 --optimizer.warmup_steps 10 --precision.compute float32
    --run.steps 240 --run.log_every 30 --run.evaluate_sequences 64"""


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Sentences in which a noun determines its colour."""
    random = np.random.default_rng(4)

    def document() -> str:
        sentences = [FRAMES[random.integers(3)].format(*PAIRS[random.integers(4)]) for _ in range(9)]
        return json.dumps({"id": "a", "sentences": sentences}) + "\n"

    def make(partial: Path) -> outputs.StageResult:
        for name, count in {"train-00000-of-00001": 20, "heldout-00000-of-00001": 8}.items():
            (partial / f"{name}.jsonl").write_text("".join(document() for _ in range(count)))
        return outputs.StageResult(counts={})

    return outputs.build(tmp_path / "shards", stage="shards", parameters={}, inputs=[], make=make).path


def train(words: str, shards: Path, directory: Path, *stops: int) -> None:
    for stop in stops:
        given = {"python": PYTHON, "text": shards, "words": words, "seed": 5, "directory": directory, "stop_at": stop}
        peer.main([word for name, value in given.items() for word in (f"--{name}", str(value))])


def test_transformers_learns_and_goes_on_to_the_same_bits(tmp_path: Path, shards: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    flags = {"source": shards, "vocab": tmp_path / "vocab.txt", "output": tmp_path / "data", "kind": "documents"}
    flags |= {"pairs": "none", "single_sentences": "true", "max_seq_length": 31, "masked_lm_prob": 0.3, "workers": 1}
    tfrecords.main([word for name, value in flags.items() for word in (f"--{name}", str(value))])
    words = WORDS.format(data=tmp_path / "data")
    train(words, shards, tmp_path / "whole" / "run", 240)
    train(words, shards, tmp_path / "legs" / "run", 90, 240)
    same_bits(weights(tmp_path / "whole" / "run", 240), weights(tmp_path / "legs" / "run", 240))

    whole, legs = (list(journal.intact(tmp_path / name / "run" / journal.NAME)) for name in ("whole", "legs"))
    assert [(line["step"], line["split"]) for line in legs] == [
        *((step, "train") for step in (30, 60, 90)),
        (90, "heldout"),
        *((step, "train") for step in (120, 150, 180, 210, 240)),
        (240, "heldout"),
    ]
    assert whole[-1] == legs[-1] and legs[-1]["loss"] < 0.9 * legs[3]["loss"]
    assert legs[-1]["mlm_accuracy"] > 60  # that of the most frequent word is below 20
