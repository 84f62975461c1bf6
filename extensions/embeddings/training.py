"""What a run that trains embeddings needs: its objective over the whole batch, and its development set.

n texts, S positions, D width.
"""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import tensorflow as tf

from bert import embedding, labels
from bert.core import paths
from bert.core.config import BatchConfig, ModelConfig
from bert.core.errors import InputError, UsageError
from bert.embedding import PLAIN, Embedding
from bert.model.encoder import Mode
from bert.model.heads import INPUTS
from bert.model.losses import Measure
from bert.model.model_shard import UNSHARDED, Parts
from bert.text import records
from bert.text.sampler import Batch
from bert.text.tokenization import Tokenizer
from bert.training import fine_tuning, loop, prediction
from bert.training.communicator import Communicator
from bert.training.distributed import on_rank_zero
from bert.training.step import Step
from bert.training.task import Execution
from extensions.embeddings import similarity
from extensions.embeddings.kind import Embedded
from extensions.embeddings.similarity import Ranked
from extensions.embeddings.whole_batch import WholeBatch
from tasks import datasets, features
from tasks.config import SCORED, TaskConfig, TaskData
from tasks.examples import Skipped
from tasks.labels import Labels
from tasks.loading import OF_THE_RUN
from tasks.preparing import CHUNK
from tasks.training import FineTuning, Prepared

SPLIT = "dev"  # of a folder in BEIR's layout


class EmbeddingTraining(FineTuning):
    """The training of embeddings, whose loss depends on all samples of an update."""

    def __init__(self, kind: Embedded, config: ModelConfig, seed: int, parts: Parts = UNSHARDED) -> None:
        super().__init__(kind, config, seed, parts)
        self.embedded = kind

    def whole_batch(self, execution: Execution, comm: Communicator, seed: int) -> WholeBatch:
        """Return what computes the outputs of all samples of an update."""
        return WholeBatch(self, execution, comm, seed)

    def of_all_samples(self, batch: Batch) -> Batch:
        """Return what `losses` needs of a batch beside its outputs, by name [B, ...], float32."""
        return self.embedded.of_all_samples(batch)

    def outputs(self, batch: Batch, mode: Mode) -> tf.Tensor:
        """Return what the loss compares, the embeddings after the projection if there is one [B, K, D]."""
        return self.module.projected(batch, mode)

    def losses(self, outputs: tf.Tensor, features: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Return each sample's part of the loss, and its right answers, both [N]."""
        return self.embedded.losses(outputs, features)

    def measure(self, batch: Batch, mode: Mode) -> dict[str, Measure]:
        """Return the summed loss and the number of right answers."""
        return {self.kind.objective: self.kind.measure(self.outputs(batch, mode), batch)}


class Denoising(FineTuning):
    """TSDAE: the mean loss over the tokens of all texts."""

    def measure(self, batch: Batch, mode: Mode) -> dict[str, Measure]:
        """Return the summed loss and the number of right tokens."""
        return {self.kind.objective: self.module.denoise(batch, mode)}


class Texts:
    """Texts in memory, each a sample of one text, as `prediction.predict` reads them."""

    def __init__(self, texts: Sequence[str], tokenizer: Tokenizer, length: int) -> None:
        """length: tokens to which longer texts are cut."""
        self.tokenizer, self.length = tokenizer, length
        self._ids, self._splits = tokenizer.encode(texts)
        self.spec = {name: {"shape": [1, length], "dtype": "int64"} for name in INPUTS}

    def __len__(self) -> int:
        return len(self._splits) - 1

    def sizes(self, indices: np.ndarray) -> np.ndarray:
        """Return the numbers of tokens [n]."""
        tokens: np.ndarray = np.minimum(np.diff(self._splits)[indices], self._room)
        return tokens

    @property
    def _room(self) -> int:
        return self.length - self.tokenizer.special_tokens(paired=False)

    def read(self, indices: np.ndarray) -> Batch:
        """Return ids, mask and segments [n, 1, S]."""
        shape = (len(indices), 1, self.length)
        ids, mask = np.full(shape, self.tokenizer.pad_id, np.int32), np.zeros(shape, np.int32)
        for row, number in enumerate(indices):
            begin, end = self._splits[number : number + 2]
            line = self.tokenizer.row(self._ids[begin:end][: self._room]).ids
            ids[row, 0, : len(line)], mask[row, 0, : len(line)] = line, 1
        return dict(zip(INPUTS, map(tf.constant, (ids, mask, np.zeros_like(ids))), strict=True))


class Development:
    """The scores of the embeddings of a development set."""

    def __init__(self, ranked: Ranked, tokenizer: Tokenizer, length: int, batch: BatchConfig) -> None:
        """length: tokens of a text, as the trained model will read it."""
        self.ranked, self.tokenizer, self.length, self.batch = ranked, tokenizer, length, batch
        self.measure = ranked.names[0]

    def scores(self, step: Step, alive: Callable[[], None]) -> loop.Measures:
        """Return all scores; all ranks call it."""

        def encode(texts: Sequence[str], prompt: str | None = None) -> np.ndarray:
            samples = Texts(texts, self.tokenizer, self.length)
            (embeddings,) = prediction.predict(step, samples, self.batch, alive).values()
            return embeddings[:, 0]

        return dict(self.ranked.scores(encode).values)


def development(data: TaskData) -> Ranked | None:
    """Return the development set that the settings name, if there is one. Raise InputError if it is not there."""
    if data.dev is None:
        return None
    if not data.dev.exists():
        raise InputError(f"{data.dev}: no such file or folder; give scored pairs, or a folder of BEIR or of STS sets")
    text = data.text if data.loss in SCORED else data.dev_text
    return similarity.of(data.dev, SPLIT, text, data.label, Skipped(data.strict))


def _left(before: Embedding) -> str:
    """Return which settings of an import's embeddings a trained run does not keep; empty if there are none."""
    prompts = ", ".join(f"prompt {name}" for name, text in before.prompts.items() if text)
    cut = f"dimensions {before.dimensions}" if before.dimensions else ""
    by = f"similarity {before.similarity}" if before.similarity != PLAIN.similarity else ""
    return ", ".join(filter(None, (prompts, cut, by)))


def negatives(config: TaskConfig, folder: Path) -> str:
    """Return a warning if an update has more samples than the records, so that it repeats some; "" if not.

    Raise UsageError if an update is one sample without negatives. Raise InputError if no sample of the records in
    `folder` has another text that it can be confused with.
    """
    samples, total, path = records.Dataset(folder, "train"), config.batch.total, datasets.sources(config.data)["train"]
    own = len(config.data.text) > 2  # negatives of each sample
    if total == 1 and not own:
        raise UsageError("--batch.total 1: a text is found among those of the other samples of an update; raise it")
    first, differ = samples.read(np.arange(1))["input_ids"], np.zeros(2, bool)
    for begin in range(0, 0 if own else len(samples), CHUNK):
        rows = samples.read(np.arange(begin, min(begin + CHUNK, len(samples))))["input_ids"]
        differ |= np.any(rows != first, axis=(0, 2))
        if differ.all():
            break
    if not own and not differ.all():
        which = "second" if differ[0] else "first"
        raise InputError(
            f"{path}: all {len(samples):,} samples have the same {which} text, so there is no other to tell it from; "
            "check the names of its columns"
        )
    if len(samples) >= total:
        return ""
    return (
        f"{path}: {len(samples):,} samples, and an update has --batch.total {total}: it has some of them several "
        "times, and a copy is nothing to tell a text from; lower it"
    )


def prepare(config: TaskConfig, tokenizer: Tokenizer, vocab: Path, comm: Communicator) -> Prepared[TaskConfig]:
    """Write the records of texts; as `training.fine_tune` has it."""
    start, data = config.init.source, config.data
    if data.loss == "tsdae" and (config.parallel.overlap or config.parallel.tensor > 1 or data.projection):
        raise UsageError(
            "--data.loss tsdae uses each layer twice, and has no projection; leave out --parallel.overlap, "
            "--parallel.tensor and --data.projection"
        )
    before = embedding.of(labels.settings(start), start / "config.json") if start else None
    data = dataclasses.replace(data, pool=data.pool or cast(Any, before.pool if before else "mean"))
    ranked = development(data)
    stored = dataclasses.replace(data, dev=None)
    folder = on_rank_zero(lambda: features.build(stored, tokenizer, vocab, paths.workdir()), comm)
    if data.loss == "contrastive" and (few := on_rank_zero(lambda: negatives(config, folder), comm)):
        loop.print_on_first_rank(f"warning: {few}", comm)
    names = ranked.names if ranked else similarity.METRICS
    kind = Embedded(data, Labels(regression=True), names)
    assert data.pool, "it was chosen"
    made = Embedding(pool=data.pool, normalize=data.normalize, length=before.length if before else None)
    if before and (left := _left(before)):
        print(f"note: {start}: not used in training, and not in the new run: {left}", file=sys.stderr)
    _, model = fine_tuning.sources(config, (), vocab)
    length = min(made.length or model.max_position_embeddings, model.max_position_embeddings)
    settings: dict[str, Any] = {
        name: value for name, value in dataclasses.asdict(data).items() if name not in OF_THE_RUN
    }
    return Prepared(
        config=dataclasses.replace(config, data=data),
        kind=kind,
        data=records.Dataset(folder, "train"),
        development=(lambda batch: Development(ranked, tokenizer, length, batch)) if ranked else None,
        entries={"inputs": settings} | made.entries(),
        task=Denoising if data.loss == "tsdae" else EmbeddingTraining,
        predict="bert.encode",
    )
