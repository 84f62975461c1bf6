"""Instances made and masked while reading, from stored chunks of tokenised documents: never the same twice.

A record is a chunk: whole consecutive sentences of one document, as many as fill a sequence (`instances.chunks`).
Sample n of an epoch is chunk n, paired with its own rest or with text of another document, and masked; which, follows
from the seed and the sample's position in the run. So a chunk gives another instance in every epoch, ranks need
not agree on anything, and a resumed run makes what the uninterrupted one would have made.

Against instances stored in advance, the text is stored once and not `dupe_factor` times. What a random second
segment takes the place of is not used until another epoch, and the cuts between chunks stay where they are.
"""

from pathlib import Path

import numpy as np
import tensorflow as tf

from bert.inputs import instances, records
from bert.inputs.hashing import Uniform, mix
from bert.inputs.vocabulary import load_vocab

KIND = "documents"  # in the manifest, where stored instances have "instances"
PARTNERS = 8  # tries to find a partner of another document; a dataset of one document has none


def feature_spec(shape: instances.Shape) -> records.FeatureSpec:
    """The features of an instance, with the names of the original recipe."""
    sequence, predictions = shape.max_seq_length, shape.max_predictions_per_seq
    return {
        name: {"shape": [size], "dtype": dtype}
        for name, size, dtype in (
            ("input_ids", sequence, "int64"),
            ("input_mask", sequence, "int64"),
            ("segment_ids", sequence, "int64"),
            ("masked_lm_positions", predictions, "int64"),
            ("masked_lm_ids", predictions, "int64"),
            ("masked_lm_weights", predictions, "float32"),
            ("next_sentence_labels", 1, "int64"),
        )
    }


class DynamicMasking:
    """The instances of one split, made from its chunks; the interface of `records.Dataset`."""

    def __init__(self, stored: records.Dataset, seed: int) -> None:
        self.stored, self.seed = stored, seed
        self.manifest = stored.manifest
        self.shape = instances.Shape(**stored.manifest.extra["instances"])
        self.spec = feature_spec(self.shape)
        self._tokens = instances.Tokens.of(load_vocab(stored.manifest.path / "vocab.txt"))

    def __len__(self) -> int:
        return len(self.stored)

    def read(self, indices: np.ndarray, positions: np.ndarray) -> dict[str, tf.Tensor]:
        """The instances of chunks `indices` [n] at `positions` [n] of the run: tensors [n, ...], integers int32."""
        own, documents = self._chunks(indices)
        partner, foreign = self._partners(documents, positions)
        uniform = Uniform(self.seed, positions)
        plan = instances.draw(own, partner, foreign, self.shape, uniform)
        both = np.concatenate([own.ids, partner.ids])
        features = instances.build(both, plan, self.shape, self._tokens)
        features = instances.mask(features, self.shape, self._tokens, uniform)
        return {k: tf.constant(v, tf.int32 if v.dtype == np.int64 else tf.float32) for k, v in features.items()}

    def _partners(self, documents: np.ndarray, positions: np.ndarray) -> tuple[instances.Documents, np.ndarray]:
        """A random chunk for each, and whether it is of another document; `PARTNERS` tries may meet none."""
        chosen = np.zeros(len(positions), np.int64)
        foreign = np.zeros(len(positions), bool)
        for attempt in range(PARTNERS):
            draws = mix(positions[~foreign].astype(np.uint64), self.seed * PARTNERS + attempt)
            chosen[~foreign] = (draws % np.uint64(len(self))).astype(np.int64)
            found, theirs = self._chunks(chosen)
            foreign = (theirs != documents).any(axis=1)
            if foreign.all():
                break
        return found, foreign

    def _chunks(self, indices: np.ndarray) -> tuple[instances.Documents, np.ndarray]:
        """DynamicMasking as documents, and of each the shard and the number of its document there [n, 2]."""
        payloads = tf.constant([self.stored.payload(int(index)) for index in indices], tf.string)
        ragged = {name: tf.io.RaggedFeature(tf.int64) for name in ("ids", "sentences")}
        parsed = tf.io.parse_example(payloads, {**ragged, "document": tf.io.FixedLenFeature([1], tf.int64)})
        sentences = parsed["sentences"]
        found = instances.Documents(
            ids=parsed["ids"].flat_values.numpy(),
            sentences=np.concatenate([[0], np.cumsum(sentences.flat_values.numpy())]),
            documents=sentences.row_splits.numpy(),
        )
        return found, np.stack([self.stored.shard_of(indices), parsed["document"].numpy()[:, 0]], axis=1)


def source(folder: Path, split: str, seed: int, skip_bad: int = 0) -> records.Dataset | DynamicMasking:
    """The samples of a folder that `python -m data.tfrecords` made, of whichever kind it is."""
    stored = records.Dataset(folder, split, skip_bad)
    return DynamicMasking(stored, seed) if stored.manifest.extra.get("kind") == KIND else stored
