"""Dynamic masking: training instances are paired and masked while they are read, differently in every epoch.

A record is a chunk: consecutive whole sentences of one document that fill a sequence (`instances.chunks`). Sample n of
an epoch is chunk n, paired with its own second part or with text of another document, and masked. The choice is a
function of the seed and the sample's position in the run. So a chunk gives another instance in every epoch, ranks need
no communication, and a resumed run makes the same instances as an uninterrupted one.

Compared with instances stored in advance, the text is stored once instead of `dupe_factor` times. Text that a random
second segment replaces is not used in this epoch, and the cuts between chunks are always the same.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from bert.core import manifest
from bert.core.errors import IntegrityError
from bert.text import instances, records, tokenization, vocabulary
from bert.text.hashing import Uniform, mix

MAX_TRIES = 8  # to draw a partner from another document, with enough text; a dataset of one document has none


class DynamicMasking:
    """The instances of one split, made from its chunks; has the interface of `records.Dataset`."""

    def __init__(self, stored: records.Dataset, seed: int, mask_shares: tuple[float, ...] = ()) -> None:
        """mask_shares: as `InstanceConfig.mask_shares`; (): the shares that the records state."""
        self.stored, self.seed = stored, seed
        self.manifest = stored.manifest
        self.description = stored.description
        if self.description.instances is None:
            where = stored.manifest.path / manifest.NAME
            raise IntegrityError(f"{where}: does not say how instances are made; build the folder again")
        self.config = self.description.instances
        if mask_shares:
            self.config = dataclasses.replace(self.config, mask_shares=mask_shares)
        self.sources = stored.sources
        self.spec = instances.feature_spec(self.config)
        tokenizer = tokenization.read(vocabulary.path_in(stored.manifest.path))
        self._vocab_size = len(tokenizer.vocab)
        self._tokens = instances.Tokens.of(tokenizer)

    def __len__(self) -> int:
        return len(self.stored)

    def source_of(self, indices: np.ndarray) -> np.ndarray:
        """Return for each sample the number of its source in `sources` [n]."""
        return self.stored.source_of(indices)

    def only_label(self) -> int | None:
        """Return the label that all pairs have, if they have one."""
        return self.stored.only_label()

    def read(self, indices: np.ndarray, positions: np.ndarray) -> dict[str, tf.Tensor]:
        """Return the instances of chunks `indices` [n] at `positions` [n] of the run: tensors [n, ...], ids int32."""
        chunks, documents = self._chunks(indices)
        uniform = Uniform(self.seed, positions)
        u = uniform(6)  # [n, 6]
        divided = instances.divide(chunks, self.config, u)
        partners = self._partners(divided, documents, positions)
        plan = instances.draw(divided, partners, len(chunks.ids), self.config, u[:, 4], uniform)
        text = np.concatenate([chunks.ids, partners.ids])
        features = instances.build(text, plan, self.config, self._tokens)
        features = instances.mask(features, self.config, self._tokens, uniform)
        return {k: tf.constant(v, tf.int32 if v.dtype == np.int64 else tf.float32) for k, v in features.items()}

    def _partners(
        self, divided: instances.Division, documents: np.ndarray, positions: np.ndarray
    ) -> instances.Partners:
        """Return text of a random chunk of another document for the chunks of `documents` [n, 2] that are to have one.

        The chunk behind it is read too, if it goes on with the same document. Other chunks are drawn as long as the
        text is too short, so that such a segment does not end early.
        """
        first, last, end = np.zeros((3, len(positions)), np.int64)
        exists, ids, sentences = np.zeros(len(positions), bool), [np.zeros(0, np.int64)], [np.zeros(1, np.int64)]
        open_rows, read = np.flatnonzero(divided.takes_other), (0, 1)  # tokens and sentence ends that were read before
        for attempt in range(MAX_TRIES):
            if not len(open_rows):
                break
            draws = mix(positions[open_rows].astype(np.uint64), self.seed * MAX_TRIES + attempt)
            drawn = (draws % np.uint64(len(self))).astype(np.int64)
            behind = np.minimum(drawn + 1, len(self) - 1)
            text, owners = self._chunks(np.stack([drawn, behind], axis=1).ravel())
            owner, next_owner = owners[0::2], owners[1::2]
            goes_on = (owner == next_owner).all(axis=1) & (behind > drawn)
            here = text.documents[:-1].reshape(-1, 2)
            stop = np.where(goes_on, text.documents[2::2], text.documents[1::2])
            is_foreign = (owner != documents[open_rows]).any(axis=1)
            is_enough = text.sentences[stop] - text.sentences[here[:, 0]] >= divided.second[open_rows]
            takes = is_foreign & (is_enough | ~exists[open_rows])
            rows = open_rows[takes]
            first[rows], last[rows], end[rows] = (read[1] + at[takes] for at in (here[:, 0], here[:, 1], stop))
            exists[rows] = True
            ids.append(text.ids)
            sentences.append(read[0] + text.sentences)
            read = (read[0] + len(text.ids), read[1] + len(text.sentences))
            open_rows = open_rows[~(is_foreign & is_enough)]
        return instances.Partners(
            ids=np.concatenate(ids),
            sentences=np.concatenate(sentences),
            first=first,
            last=last,
            end=end,
            exists=exists,
        )

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
