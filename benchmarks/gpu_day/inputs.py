"""What the measurements read: a small dataset of invented samples, and each other's results."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from bert.inputs import tf_example
from bert.inputs.vocabulary import SPECIAL
from bert.storage import outputs

WORDS, TOKENS, PREDICTIONS = 997, 32, 5
SHARDS = {"train-00000": 480, "heldout-00000": 32}  # samples


def read(path: Path) -> dict[str, Any]:
    """A JSON file."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _sample(random: np.random.Generator) -> dict[str, np.ndarray]:
    """One sample, whose masked words are those before them."""
    used = int(random.integers(TOKENS // 2, TOKENS + 1))
    places = np.arange(TOKENS)
    ids = np.where(places < used, random.integers(len(SPECIAL), WORDS, TOKENS), 0)
    positions = np.sort(random.permutation(np.arange(1, used))[:PREDICTIONS])
    return {
        "input_ids": ids,
        "input_mask": (places < used).astype(np.int64),
        "segment_ids": ((places > used // 2) & (places < used)).astype(np.int64),
        "masked_lm_positions": positions,
        "masked_lm_ids": ids[positions - 1],
        "masked_lm_weights": np.ones(PREDICTIONS, np.float32),
        "next_sentence_labels": random.integers(0, 2, 1),
    }


def records_folder(folder: Path) -> Path:
    """A dataset as data.tfrecords would make it; what is there already is left."""
    from bert.inputs import records

    def make(partial: Path) -> outputs.StageResult:
        random, counts = np.random.default_rng(3), {}
        for name, size in SHARDS.items():
            with records.RecordWriter(partial / f"{name}.tfrecord") as writer:
                for _ in range(size):
                    writer.write(tf_example.encode(_sample(random)))
            counts[f"{name}.tfrecord"] = size
        words = [*SPECIAL, *(f"w{number}" for number in range(WORDS - len(SPECIAL)))]
        (partial / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
        spec = {
            name: {"shape": list(value.shape), "dtype": "float32" if value.dtype == np.float32 else "int64"}
            for name, value in _sample(random).items()
        }
        return outputs.StageResult(counts={}, records=counts, extra={"features": spec, "vocab_size": WORDS})

    outputs.build(folder, stage="tfrecords", parameters={"gpu_day": 1}, inputs=[], make=make)
    return folder
