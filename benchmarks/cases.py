"""What benchmarks/steps.py has both sides work on: models, cases, and their batches from fixed seeds."""

import dataclasses
from pathlib import Path

import numpy as np

from bert.core.config import ModelConfig
from bert.model import cost
from bert.recipes import SIZES

WORDS = 30_522
SPECIAL = 1000  # ids below are special tokens or unused in the published vocabulary
LAP = 4  # batches in a lap of a case of many lengths
POOL = 64  # batches, sorted by length, from which a lap takes `LAP`; as `batch.bucket_by_length` of the recipes

Arrays = dict[str, np.ndarray]
MODELS = {
    "tiny": dataclasses.replace(SIZES["tiny"], vocab_size=WORDS),
    "small": ModelConfig(vocab_size=WORDS, hidden_size=384, num_hidden_layers=6, intermediate_size=1536),
    "base": dataclasses.replace(SIZES["base"], vocab_size=WORDS),
    "large": dataclasses.replace(SIZES["large"], vocab_size=WORDS),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """One kind of batch."""

    name: str
    work: str
    """pretrain, finetune or infer"""
    batch: int
    """sequences in a step"""
    tokens: int
    """longest sequence"""
    predictions: int = 0
    """places for masked words"""
    lengths: str = "full"
    """full; questions, padded; or grouped, questions in batches of like length"""
    text: str = ""
    """for the table, with the sequences of a step in place of {}"""


CASES = (
    Case("pretrain_128", "pretrain", 16, 128, 20, text="pretraining step, {} x 128 tokens"),
    Case("pretrain_512", "pretrain", 4, 512, 80, text="pretraining step, {} x 512 tokens"),
    Case("finetune_384", "finetune", 8, 384, lengths="questions", text="SQuAD step, {} x 384, padded"),
    Case("finetune_lengths", "finetune", 8, 384, lengths="grouped", text="SQuAD step, {} of like length"),
    Case("infer_1", "infer", 1, 384, text="answer logits, {} x 384"),
    Case("infer_8", "infer", 8, 384, lengths="questions", text="answer logits, {} x 384, padded"),
    Case("infer_lengths", "infer", 8, 384, lengths="grouped", text="answer logits, {} of like length"),
)
CHECKED = {"pretrain": "pretrain_128", "finetune": "finetune_384", "infer": "infer_8"}  # what values are compared on


def question_lengths(count: int, most: int) -> np.ndarray:
    """Tokens of windows as SQuAD v1.1 has them [count]: a mean of about 170, skewed to the right, at most `most`."""
    drawn = np.random.default_rng(170).lognormal(np.log(157), 0.4, count)
    return np.clip(np.round(drawn), 32, most).astype(np.int32)


def batches(case: Case, seed: int = 11) -> list[Arrays]:
    """The batches of a lap, in our names, padded to `case.tokens`."""
    random = np.random.default_rng(seed)
    if case.lengths == "grouped":
        groups = np.sort(question_lengths(POOL * case.batch, case.tokens)).reshape(POOL, case.batch)
        chosen = random.permutation(groups[POOL // LAP // 2 :: POOL // LAP])
    elif case.lengths == "questions":
        chosen = question_lengths(case.batch, case.tokens)[None]
    else:
        chosen = np.full((1, case.batch), case.tokens, np.int32)
        if case.work == "pretrain":  # one in ten is short as published, so that hardly a batch has none
            chosen[0, -1] = case.tokens // 2 + 1
    return [_batch(case, lengths, random) for lengths in chosen]


def _batch(case: Case, lengths: np.ndarray, random: np.random.Generator) -> Arrays:
    rows, places = len(lengths), np.arange(case.tokens)
    mask = (places < lengths[:, None]).astype(np.int32)
    segments = (places >= lengths[:, None] // 3).astype(np.int32) * mask
    ids = random.integers(SPECIAL, WORDS, (rows, case.tokens)).astype(np.int32) * mask
    batch = {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
    if case.work == "finetune":
        starts = random.integers(1, lengths - 8).astype(np.int32)[:, None]
        return batch | {"start_positions": starts, "end_positions": starts + 3}
    if case.work == "infer":
        return batch
    positions, labels = np.zeros((2, rows, case.predictions), np.int32)
    weights = np.zeros((rows, case.predictions), np.float32)
    for row, length in enumerate(lengths):
        count = min(case.predictions, round(0.15 * length))
        positions[row, :count] = np.sort(random.permutation(np.arange(1, length))[:count])
        labels[row, :count] = random.integers(SPECIAL, WORDS, count)
        weights[row, :count] = 1
    follows = random.integers(0, 2, (rows, 1)).astype(np.int32)
    return batch | {
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "masked_lm_weights": weights,
        "next_sentence_labels": follows,
    }


def save(case: Case, path: Path) -> None:
    """Writes the batches as one .npz, whose arrays are called NUMBER/NAME."""
    arrays = {f"{number}/{name}": value for number, batch in enumerate(batches(case)) for name, value in batch.items()}
    np.savez(path, allow_pickle=False, **arrays)


def flops(model: ModelConfig, case: Case, shapes: list[list[int]]) -> float:
    """Return the FLOPs of a lap's matrix products, padding included. shapes: as of `adapter.Contender.setup`."""
    training = sum(rows * cost.flops(model, *counts) for rows, *counts in shapes)
    return training / 3 if case.work == "infer" else training
