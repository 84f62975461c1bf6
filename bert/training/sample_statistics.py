"""What a run was fed: how often it read which samples, and what they look like.

Everything follows from the order of the samples, a function of the seed. So it holds as well for a run that was stopped
and resumed, and one rank can tell it for all.
"""

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert.text.sampler import Batch, BatchSampler

MOST_COUNTED = 1 << 24  # samples, and reads of them, beyond which reads are not counted one by one
BLOCK = 1 << 16  # reads that are counted at once
LOOKED_AT = 4096  # samples, spread evenly over the run
READ_AT_ONCE = 256
BINS = 16  # of lengths
LEAST_MARGIN = 0.03  # by which a rule must beat the larger class before it is reported, and in standard errors:
STANDARD_ERRORS = 4.0
MOST_CLASSES = 20  # whose shares are reported

Figures = dict[str, float]


def figures(samples: BatchSampler, updates: int, end: int, labelled: bool) -> Figures:
    """Return statistics of the samples that updates 0..updates-1 read. end: planned number of updates of the run.

    labelled: whether the labels of the samples are learned.

    - samples, reads: number of samples, and of times that one was read.
    - different: how many samples were read at all. least, most: how often the rarest and the most frequent one were
      read.
    - tokens: mean length. full: share of sequences that fill all positions; longer texts were cut to that length.
    - masked: share of the tokens that are to be predicted.
    - label_<n>: share of class n.
    - length_rule: how often the best rule that knows only a length predicts the label. larger_class: how often the most
      frequent class is the label.
    """
    return _counted(samples, updates, end) | _seen(samples, updates * samples.batch.total, labelled)


def _counted(samples: BatchSampler, updates: int, end: int) -> Figures:
    size, total = len(samples.source), samples.batch.total
    figures: Figures = {"samples": size, "reads": updates * total}
    if max(figures.values()) > MOST_COUNTED:
        return figures
    times, step = np.zeros(size, np.int32), max(1, BLOCK // total)
    for first in range(0, updates, step):
        positions = [samples.positions(update, end) for update in range(first, min(first + step, updates))]
        np.add.at(times, samples.order(np.concatenate(positions)), 1)
    return figures | {"different": int((times > 0).sum()), "least": int(times.min()), "most": int(times.max())}


def _seen(samples: BatchSampler, reads: int, labelled: bool) -> Figures:
    positions = np.unique(np.linspace(0, reads - 1, min(LOOKED_AT, reads)).astype(np.int64))
    with tf.device("CPU:0"):
        parts = [
            _columns(samples.source.read(samples.order(at), at))
            for at in np.array_split(positions, -(-len(positions) // READ_AT_ONCE))
        ]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    figures: Figures = {}
    if "tokens" in columns:
        figures = {"tokens": float(columns["tokens"].mean()), "full": float(columns["full"].mean())}
    if "masked" in columns:
        figures["masked"] = float(columns["masked"].sum() / columns["tokens"].sum())
    if labelled and "label" in columns:
        shares = np.bincount(columns["label"]) / len(columns["label"])
        figures |= {f"label_{number}": float(share) for number, share in enumerate(shares[:MOST_CLASSES])}
        if len(columns["label"]) == len(columns.get("tokens", ())):
            figures |= _length_rule(columns)
    return figures


def _columns(batch: Batch) -> dict[str, np.ndarray]:
    """Return the properties of each sample of a batch [n]; "label" is per token if the samples have tags."""
    arrays = {name: np.asarray(value) for name, value in batch.items()}
    if "input_mask" not in arrays:  # a stream of tokens
        return {}
    mask = arrays["input_mask"].reshape(-1, arrays["input_mask"].shape[-1])  # of multiple choice, each choice is a row
    columns = {"tokens": mask.sum(axis=1), "full": mask.all(axis=1)}
    if "segment_ids" in arrays:
        columns["second"] = arrays["segment_ids"].reshape(mask.shape).sum(axis=1)
    if "masked_lm_weights" in arrays:
        columns["masked"] = arrays["masked_lm_weights"].sum(axis=1)
    label = arrays.get("label", arrays.get("next_sentence_labels"))
    if label is not None and label.dtype.kind == "i":
        columns["label"] = label[label >= 0]  # tags are -1 where none is read
    return columns


def _length_rule(columns: dict[str, np.ndarray]) -> Figures:
    """Return the score of the best rule that knows one length, on the half of the samples not used to learn it."""
    half = len(columns["label"]) // 2
    order = np.random.default_rng(0).permutation(len(columns["label"]))
    label = columns["label"][order]
    if half < BINS or len(np.unique(label)) < 2:
        return {}
    lengths = [
        columns["tokens"],
        *([columns["second"], columns["tokens"] - columns["second"]] if "second" in columns else []),
    ]
    best = max(_rule_score(length[order], label, half) for length in lengths)
    return {"length_rule": best, "larger_class": float(np.bincount(label[half:]).max() / len(label[half:]))}


def _rule_score(lengths: np.ndarray, label: np.ndarray, half: int) -> float:
    """Return how often a label is the most frequent one among samples of similar length.

    The rule is learned on the first `half` samples and scored on the others.
    """
    borders = np.unique(np.quantile(lengths[:half], np.arange(1, BINS) / BINS))
    bins = np.searchsorted(borders, lengths, side="left")
    table = np.zeros((len(borders) + 1, label.max() + 1), np.int64)
    np.add.at(table, (bins[:half], label[:half]), 1)
    return float((table.argmax(axis=1)[bins[half:]] == label[half:]).mean())


def describe(figures: Figures, names: Sequence[str] = ()) -> str:
    """Return the figures as one line for the user. names: of the classes."""
    size, reads = int(figures["samples"]), int(figures["reads"])
    parts = [f"{reads:,} reads of {size:,} samples ({reads / size:.3g} epochs)"]
    if "least" in figures:
        times = f"{figures['least']:.0f} to {figures['most']:.0f} times"
        parts.append(f"{int(figures['different']):,} different ones, {times} each")
    if "tokens" in figures:
        parts.append(f"{figures['tokens']:.4g} tokens on average, {figures['full']:.1%} fill all positions")
    if "masked" in figures:
        parts.append(f"{figures['masked']:.1%} of the tokens masked")
    shares = [value for key, value in figures.items() if key.startswith("label_")]
    if shares:
        named = [names[number] if number < len(names) else str(number) for number in range(len(shares))]
        parts.append("labels " + ", ".join(f"{name} {share:.1%}" for name, share in zip(named, shares, strict=True)))
    return "; ".join(parts)


def warnings(figures: Figures) -> list[str]:
    """Return lines for the user about what is probably a fault of the data or the program."""
    lines = []
    epochs = int(figures["reads"]) // int(figures["samples"])
    if figures.get("least", epochs) < epochs:
        lines.append(f"a sample was read {figures['least']:.0f} times in {epochs} epochs; some were left out")
    shares = [value for key, value in figures.items() if key.startswith("label_")]
    if shares and max(shares) == 1:
        lines.append("all labels are of one class: nothing is learned from them")
    if "length_rule" in figures:
        rule, larger = figures["length_rule"], figures["larger_class"]
        error = math.sqrt(0.5 / min(figures["reads"], LOOKED_AT))  # of a share of one half, on half of the samples
        if rule - larger > max(LEAST_MARGIN, STANDARD_ERRORS * error):
            lines.append(
                f"the length alone tells the label in {rule:.1%} of the samples, the larger class in {larger:.1%}: a "
                "model can learn the one instead of the other"
            )
    return lines
