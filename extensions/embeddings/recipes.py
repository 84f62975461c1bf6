"""Recipes of embeddings.

Sources of the settings: SimCSE (Gao et al. 2021, and its README: of BERT-Base, batch 64 and 3e-5 without labels, 512
and 5e-5 with; 32 tokens, temperature 0.05); training_nli_v2.py of sentence-transformers (`embed`: batch 128, 2e-5, mean
pooling, warm-up over a tenth, temperature 0.05). TSDAE (Wang et al. 2021): batch 8, a constant rate of 3e-5, [CLS], 60%
of the words deleted.
"""

import dataclasses

from bert.core.config import BatchConfig, EpochConfig, OptimizerConfig, RunConfig
from bert.recipes import AUTO, SIZES
from tasks.config import EMBED, TaskConfig, TaskData

CONSTANT = 1e-9  # power of the remaining share of updates with which the rate falls: it does not


def embed() -> TaskConfig:
    """Embeddings of your own pairs, texts with negatives, or scored pairs: .tsv, .csv, .jsonl or .parquet."""
    return _embedding(TaskData(task=EMBED, text=("anchor", "positive"), label="score"), total=128, rate=2e-5)


def simcse_unsupervised() -> TaskConfig:
    """Embeddings of your own texts without labels: SimCSE finds a text by itself, under another dropout mask."""
    data = TaskData(task=EMBED, label="score", length=32, pool="cls", projection=True)
    return _embedding(data, total=64, rate=3e-5, warmup=0.0)


def simcse_supervised() -> TaskConfig:
    """Embeddings of sentences with an entailed and a contradicting one, for example from SNLI and MNLI."""
    text = ("sent0", "sent1", "hard_neg")
    data = TaskData(task=EMBED, text=text, label="score", length=32, pool="cls", projection=True)
    return _embedding(data, total=512, rate=5e-5, epochs=3, warmup=0.0)


def tsdae() -> TaskConfig:
    """Embeddings of your own texts without labels: TSDAE writes a text from the embedding of a part of its words."""
    made = _embedding(TaskData(task=EMBED, label="score", pool="cls", loss="tsdae"), total=8, rate=3e-5, warmup=0.0)
    return dataclasses.replace(made, optimizer=dataclasses.replace(made.optimizer, decay_power=CONSTANT))


def _embedding(data: TaskData, *, total: int, rate: float, epochs: float = 1, warmup: float = 0.1) -> TaskConfig:
    return TaskConfig(
        model=SIZES["base"],
        data=data,
        length=EpochConfig(epochs=epochs, warmup=warmup, evaluations=4),
        batch=BatchConfig(total=total, per_device=0, max_per_device=64, bucket_by_length=1, fit="nearest"),
        optimizer=OptimizerConfig(name="adamw", learning_rate=rate, weight_decay=0.0 if not warmup else 0.01),
        precision=AUTO,
        run=RunConfig(log_every=50),
    )
