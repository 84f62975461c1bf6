"""Embeddings of texts, trained so that the cosine of two of them says how alike the texts are.

B samples of a micro-batch, N of the whole batch, K texts of a sample, S positions, D width.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert import embedding
from bert.core.config import ModelConfig
from bert.core.errors import InputError, UsageError
from bert.heads import EMBEDDING
from bert.model.losses import Measure
from bert.model.model_shard import UNSHARDED, Parts
from bert.text.sampler import Batch
from bert.text.tokenization import Tokenizer
from extensions.embeddings import losses, whole_batch
from extensions.embeddings.denoising import DenoisingModel
from extensions.embeddings.model import EmbeddingModel
from tasks import inputs
from tasks.config import SCORED, TaskData
from tasks.examples import TextGroup
from tasks.labels import Labels, check_size
from tasks.stored import StoredKind


class Embedded(StoredKind):
    """What a run on texts whose embeddings are compared consists of. The outputs are the embeddings [B, K, D]."""

    head = EMBEDDING

    def __init__(self, data: TaskData, labels: Labels, names: tuple[str, ...]) -> None:
        """names: of the metrics. Checkpoints are compared by the first one first."""
        super().__init__(data, labels, names)
        self.sequences = max(2, len(data.text))
        self.is_scored = data.loss in SCORED
        self._factors = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, data.length)
        self.embedding = embedding.Embedding(pool=data.pool or "mean", normalize=data.normalize)

    @property
    def counts_correct(self) -> bool:
        """Whether the second text of a sample can be the nearest of all."""
        return not self.is_scored

    def model(self, config: ModelConfig, seed: int, parts: Parts = UNSHARDED) -> EmbeddingModel:
        """Return the model to train. Raise UsageError for dimensions that it does not have."""
        published = config.norm_placement == "post" and config.positions == "learned" and not config.local_window
        if self.data.loss == "tsdae" and not published:
            raise UsageError(
                "--data.loss tsdae is for models with learned positions and layer norm after each sum, as BERT; give "
                "another loss"
            )
        if wrong := [size for size in self.data.dimensions if size > config.hidden_size]:
            raise UsageError(
                f"--data.dimensions {wrong[0]}: the model's embeddings have {config.hidden_size}; lower it"
            )
        if self.data.loss == "tsdae":
            return DenoisingModel(config, seed, self.embedding.pool)
        return EmbeddingModel(config, seed, self.embedding.pool, self.data.projection, parts)

    def features(self) -> dict[str, dict[str, Any]]:
        """Return shape and type of each feature of a record."""
        shape = [self.sequences, self.data.length]
        rows: dict[str, dict[str, Any]] = {name: {"shape": shape, "dtype": "int64"} for name in inputs.NAMES}
        return rows | ({"label": {"shape": [1], "dtype": "float32"}} if self.is_scored else {})

    def encode(self, examples: Sequence[TextGroup], tokenizer: Tokenizer) -> dict[str, np.ndarray]:
        """Return the features of all examples [n, K, S]; `label` [n, 1] if they have scores.

        A single text becomes both texts of its sample. For TSDAE the first one lacks the deleted words.
        """
        texts = [text for example in examples for text in example.texts]
        arrays = self._rows(texts, tokenizer, len(examples), self.seen)
        if len(texts) == len(examples):  # each is read once more, and counted once
            first = arrays
            if self.data.loss == "tsdae":
                first = self._rows([shortened(text, self.data.deleted) for text in texts], tokenizer, len(examples))
            arrays = {name: np.concatenate([first[name], rows], axis=1) for name, rows in arrays.items()}
        if self.is_scored:
            arrays["label"] = np.array([[self._scaled(example)] for example in examples], np.float32)
        return arrays

    def _rows(
        self, texts: Sequence[str], tokenizer: Tokenizer, count: int, seen: inputs.EncodingCounts | None = None
    ) -> dict[str, np.ndarray]:
        """Return the inputs of the texts of `count` examples [count, texts of one, S]."""
        flat = inputs.pairs(tokenizer, texts, [None] * len(texts), self.data.length, seen=seen)
        return {name: rows.reshape(count, -1, self.data.length) for name, rows in flat.items()}

    def _scaled(self, example: TextGroup) -> float:
        assert example.score is not None, "it has been read"
        score = example.score / self.data.score_scale
        check_size(score, example.id)
        if self.data.loss == "cosine" and not -1 <= score <= 1:
            raise InputError(
                f"example {example.id}: the score {example.score:g} / {self.data.score_scale:g} is no cosine; give "
                "--data.score_scale, the score of equal texts, or --data.loss cosent, which needs their order only"
            )
        return score

    def weights(self, batch: Batch) -> tf.Tensor:
        """Return the weight of each sample in the loss [B]: of TSDAE, the number of tokens that are predicted."""
        if self.data.loss == "tsdae":
            return tf.cast(tf.reduce_sum(batch["input_mask"][:, 1, 1:], axis=1), tf.float32)
        return tf.ones_like(batch["input_ids"][:, 0, 0], tf.float32)

    def of_all_samples(self, batch: Batch) -> Batch:
        """Return the scores [B, 1]; for pairs without scores, numbers that are equal for equal texts [B, K, 3].

        These are the parts of a hash of a text's tokens: the sum of each token times a random factor of its place.
        """
        if self.is_scored:
            return {"label": batch["label"]}
        ids = tf.cast(batch["input_ids"] * batch["input_mask"], tf.int64)
        sums = tf.reduce_sum(ids * tf.constant(self._factors)[: tf.shape(ids)[2]], axis=2)
        parts = [tf.bitwise.bitwise_and(tf.bitwise.right_shift(sums, shift), 2**21 - 1) for shift in (0, 21, 42)]
        return {"texts": tf.cast(tf.stack(parts, axis=2), tf.float32)}  # whole numbers of 21 bits are exact

    def losses(self, outputs: tf.Tensor, features: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Return each sample's part of the loss, and whether it is right, both [N]; as `training.task` has it."""
        data = self.data
        if data.loss == "contrastive":
            return losses.contrastive(
                outputs, features["texts"], data.temperature, data.dimensions, data.both_directions
            )
        scores = features["label"][:, 0]
        if data.loss == "cosine":
            return losses.cosine(outputs, scores, data.dimensions)
        return losses.cosent(outputs, scores, data.temperature, data.dimensions)

    def measure(self, logits: tf.Tensor, batch: Batch) -> Measure:
        """Return the summed loss of a batch and the number of right answers."""
        return whole_batch.measure(self.losses, self.of_all_samples, logits, batch)


def shortened(text: str, share: float) -> str:
    """Return a text from which this share of words, at random, is deleted; at least one is kept.

    The words are what white space separates. A text always loses the same ones.
    """
    words, random = text.split(), np.random.default_rng(zlib.crc32(text.encode()))
    kept = [word for word, drawn in zip(words, random.random(len(words)), strict=True) if drawn >= share]
    return " ".join(kept) or words[random.integers(len(words))]
