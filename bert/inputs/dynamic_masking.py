"""Dynamic masking: training instances are paired and masked while they are read, differently in every epoch.

A record is a chunk: consecutive whole sentences of one document that fill a sequence (`instances.chunks`). Sample n of
an epoch is chunk n, paired with its own second part or with text of another document, and masked. The choice is a
function of the seed and the sample's position in the run. So a chunk gives another instance in every epoch, ranks need
no communication, and a resumed run makes the same instances as an uninterrupted one.

Compared with instances stored in advance, the text is stored once instead of `dupe_factor` times. Text that a random
second segment replaces is not used in this epoch, and the cuts between chunks are always the same.
"""

import dataclasses
from pathlib import Path

import numpy as np
import tensorflow as tf

from bert.errors import IntegrityError
from bert.inputs import instances, records
from bert.inputs.hashing import Uniform, mix
from bert.inputs.vocabulary import load_vocab
from bert.storage import manifest

KIND = "documents"  # in the manifest; stored instances have "instances"
MAX_TRIES = 8  # to draw a partner from another document; a dataset of one document has none


def feature_spec(config: instances.InstanceConfig) -> records.FeatureSpec:
    """Return the features of an instance, named as by google-research/bert."""
    sequence, predictions = config.max_seq_length, config.max_predictions_per_seq
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
    """The instances of one split, made from its chunks; has the interface of `records.Dataset`."""

    def __init__(self, stored: records.Dataset, seed: int) -> None:
        self.stored, self.seed = stored, seed
        self.manifest = stored.manifest
        self.description = stored.description
        if self.description.instances is None:
            where = stored.manifest.path / manifest.NAME
            raise IntegrityError(f"{where}: does not say how instances are made; build the folder again")
        self.config = self.description.instances
        self.sources, self.source_of, self.only_label = stored.sources, stored.source_of, stored.only_label
        if self.config.pairs == "nsp" and self.only_label() == 0:  # one document: no other one to pair it with
            self.config = dataclasses.replace(self.config, pairs="none")
        self.spec = feature_spec(self.config)
        vocab = load_vocab(stored.manifest.path / "vocab.txt")
        self._vocab_size, self._tokens = len(vocab), instances.Tokens.from_vocab(vocab)

    def __len__(self) -> int:
        return len(self.stored)

    def read(self, indices: np.ndarray, positions: np.ndarray) -> dict[str, tf.Tensor]:
        """Return the instances of chunks `indices` [n] at `positions` [n] of the run: tensors [n, ...], ids int32."""
        chunks, documents = self._chunks(indices)
        partners, foreign = self._partners(documents, positions)
        uniform = Uniform(self.seed, positions)
        plan = instances.draw(chunks, partners, foreign, self.config, uniform)
        text = np.concatenate([chunks.ids, partners.ids])
        features = instances.build(text, plan, self.config, self._tokens)
        features = instances.mask(features, self.config, self._tokens, uniform)
        return {k: tf.constant(v, tf.int32 if v.dtype == np.int64 else tf.float32) for k, v in features.items()}

    def _partners(self, documents: np.ndarray, positions: np.ndarray) -> tuple[instances.Documents, np.ndarray]:
        """Return a random chunk for each of `documents` [n, 2], and whether it is from another document."""
        chosen = np.zeros(len(positions), np.int64)
        foreign = np.zeros(len(positions), bool)
        for attempt in range(MAX_TRIES):
            draws = mix(positions[~foreign].astype(np.uint64), self.seed * MAX_TRIES + attempt)
            chosen[~foreign] = (draws % np.uint64(len(self))).astype(np.int64)
            partners, partner_documents = self._chunks(chosen)
            foreign = (partner_documents != documents).any(axis=1)
            if foreign.all():
                break
        return partners, foreign

    def _chunks(self, indices: np.ndarray) -> tuple[instances.Documents, np.ndarray]:
        """Return chunks as documents, and the shard and document number of each [n, 2]."""
        ragged = {name: tf.io.RaggedFeature(tf.int64) for name in ("ids", "sentences")}
        spec = {**ragged, "document": tf.io.FixedLenFeature([1], tf.int64)}
        parsed = self.stored.parse(indices, lambda payloads: tf.io.parse_example(payloads, spec))
        ids, sentences = parsed["ids"], parsed["sentences"]
        chunks = instances.Documents(
            ids=ids.flat_values.numpy(),
            sentences=np.concatenate([[0], np.cumsum(sentences.flat_values.numpy())]),
            documents=sentences.row_splits.numpy(),
        )
        self._check(chunks, ids.row_splits.numpy(), indices)
        return chunks, np.stack([self.stored.shard_of(indices), parsed["document"].numpy()[:, 0]], axis=1)

    def _check(self, chunks: instances.Documents, splits: np.ndarray, indices: np.ndarray) -> None:
        """Raise IntegrityError for a chunk whose sentences are not its ids, or with an id outside the vocabulary."""
        lengths = np.diff(chunks.sentences)
        impossible = (lengths < 1) | (lengths > len(chunks.ids))
        wrong = (chunks.sentences[chunks.documents] != splits)[1:] | (np.diff(splits) == 0)
        wrong[np.searchsorted(chunks.documents, np.flatnonzero(impossible), side="right") - 1] = True
        outside = (chunks.ids < 0) | (chunks.ids >= self._vocab_size)
        wrong[np.searchsorted(splits, np.flatnonzero(outside), side="right") - 1] = True
        if wrong.any():
            place = self.stored.place(int(indices[wrong.argmax()]))
            raise IntegrityError(f"{place} is no chunk of tokens; build it again")


def source(folder: Path, split: str, seed: int, skip_bad: int = 0) -> records.Dataset | DynamicMasking:
    """Return the samples in a folder of `python -m data.tfrecords`, whether it has instances or documents."""
    stored = records.Dataset(folder, split, skip_bad)
    return DynamicMasking(stored, seed) if stored.description.kind == KIND else stored
