"""Weights as `save_pretrained` of the TensorFlow classes of transformers wrote them until version 4: tf_model.h5.

A tensor lies at GROUP/MODEL/..., such as bert/tf_bert_model/bert/encoder/layer_._0/attention/self/query/kernel:0. Here
it gets the name and the orientation that it has in a file of safetensors: bert.encoder.layer.0.attention.self.query.
weight [outputs, inputs]. A bias of GPT-2 is a row there, [1, outputs].
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import h5py
import numpy as np

from bert.core.errors import InputError

NAME = "tf_model.h5"
LAST = {"kernel": "weight", "embeddings": "weight", "gamma": "weight", "beta": "bias"}
DTYPES = {np.dtype("float32"): "F32", np.dtype("float16"): "F16"}


class Slice(NamedTuple):
    """What is known of a tensor before it is read."""

    shape: tuple[int, ...]
    dtype: str

    def get_shape(self) -> tuple[int, ...]:
        """Return the shape."""
        return self.shape

    def get_dtype(self) -> str:
        """Return the type, as safetensors calls it."""
        return self.dtype


class File:
    """An open file, which is asked as one of safetensors is."""

    def __init__(self, path: Path) -> None:
        """Raise OSError if it is no file of HDF5, InputError if it has something else than plain tensors."""
        self.path = path
        self._file = h5py.File(path, "r")
        self._tensors: dict[str, Any] = {}
        try:
            self._file.visititems(self._add)  # links are not followed
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def _add(self, place: str, dataset: Any) -> None:
        if not isinstance(dataset, h5py.Dataset):
            return
        if dataset.external or dataset.is_virtual:
            raise InputError(f"{self.path}: {place!a} is kept in another file; write {NAME} again")
        if dataset.id.get_storage_size() < dataset.nbytes:  # compressed, or without values: kilobytes of 40 GB
            raise InputError(f"{self.path}: {place!a} has fewer bytes than its shape says; write {NAME} again")
        name = name_of(place)
        first = self._tensors.setdefault(name, dataset)
        # The head of masked words has the embeddings among its own weights, so that they are there twice.
        if first is not dataset and (first.shape != dataset.shape or not np.array_equal(first[()], dataset[()])):
            raise InputError(f"{self.path}: {place!a} is there twice, with other values; write {NAME} again")

    def keys(self) -> Iterator[str]:
        """Return the names of all tensors."""
        return iter(self._tensors)

    def get_slice(self, name: str) -> Slice:
        """Return shape and type of a tensor."""
        dataset = self._tensors[name]
        shape = dataset.shape[::-1] if _is_transposed(dataset) else dataset.shape
        return Slice(tuple(shape[1:] if _is_row(dataset) else shape), DTYPES.get(dataset.dtype, str(dataset.dtype)))

    def get_tensor(self, name: str) -> np.ndarray:
        """Return a tensor."""
        dataset = self._tensors[name]
        value: np.ndarray = dataset[()]
        return value.T if _is_transposed(dataset) else value[0] if _is_row(dataset) else value


def _is_transposed(dataset: Any) -> bool:
    return dataset.ndim == 2 and _last(dataset) == "kernel"


def _is_row(dataset: Any) -> bool:
    return dataset.ndim == 2 and len(dataset) == 1 and _last(dataset) == "bias"


def _last(dataset: Any) -> str:
    name: str = dataset.name.split("/")[-1].split(":")[0]
    return name


def name_of(place: str) -> str:
    """Return the name that a tensor has in a file of safetensors; place: its path in the file."""
    path = re.sub(r"/[^/]*___", "/", "/" + place.split(":")[0].replace("_._", "/"))
    parts = [part for part in path.split("/") if part][2:]  # without the group and the model
    return ".".join([*parts[:-1], LAST.get(parts[-1], parts[-1])] if parts else [place])
