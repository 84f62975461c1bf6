"""Invented samples for pretraining, in a folder as data.tfrecords would make it."""

from pathlib import Path

import numpy as np

from benchmarks import cases
from bert.core import outputs
from bert.text import frames, tf_example, vocabulary
from bert.text.vocabulary import SPECIAL

HELDOUT = 32  # sequences


def write(folder: Path, sequences: int, tokens: int, predictions: int) -> None:
    """Write this many full sequences to train on; a folder that has them is left as it is."""
    case = cases.Case("", "pretrain", sequences + HELDOUT, tokens, predictions)
    parameters = {"invented": [sequences, tokens, predictions]}
    outputs.build(
        folder, stage="tfrecords", parameters=parameters, inputs=[], make=lambda partial: _make(partial, case)
    )


def _make(partial: Path, case: cases.Case) -> outputs.StageResult:
    (arrays,) = cases.batches(case)
    parts = {"train-00000.tfrecord": slice(HELDOUT, None), "heldout-00000.tfrecord": slice(HELDOUT)}
    counts = {}
    for name, part in parts.items():
        encoded = list(tf_example.encode_batch({key: values[part] for key, values in arrays.items()}))
        with frames.RecordWriter(partial / name) as writer:
            for record in encoded:
                writer.write(record)
        counts[name] = len(encoded)
    words = [*SPECIAL, *(f"w{number}" for number in range(cases.WORDS - len(SPECIAL)))]
    (partial / vocabulary.NAME).write_text("\n".join(words) + "\n", encoding="utf-8")
    spec = {
        key: {"shape": [values.shape[1]], "dtype": "float32" if values.dtype == np.float32 else "int64"}
        for key, values in arrays.items()
    }
    return outputs.StageResult(counts={}, records=counts, extra={"features": spec, "vocab_size": cases.WORDS})
