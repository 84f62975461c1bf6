"""A model of OpenVINO in 8 bits, by NNCF's quantisation after training, accepted only if its score is nearly as good.

The scales of activations are set on rows of a development set. The same set is scored with the model in float32 and
with that in 8 bits. If the second loses too much, the parts of the model whose quantisation changes its outputs most
are put back to float32: one of them, then two, four and so on. A part is a layer, or all that is outside of the layers.

B texts, T tokens.
"""

import contextlib
import io
import itertools
import json
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert.core import files, rows
from bert.core.errors import InputError, UsageError
from bert.core.progress import Progress
from bert.engines import onnx_graph
from bert.export.onnx_files import Exported
from bert.heads import CHOICE
from extensions.openvino.openvino_files import Narrowed, compiled

SAMPLES, COMPARED = 300, 32  # rows that scales are set on, and those that parts are compared on
SEED = 1  # of the choice of rows
OUTSIDE = "embeddings and head"
Outputs = Callable[..., list[np.ndarray]]  # ids, mask, segments [B, T] -> outputs
Row = list[np.ndarray]  # the inputs of one text without padding, in the order of the model's


def library() -> Any:
    """Return NNCF, which then sends nothing and prints errors alone. Raise InputError if it is not installed."""
    os.environ["NNCF_CI"] = "1"  # its variable for no telemetry, read at its import
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            import nncf
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} is not installed; run: pip install nncf==3.4.0") from error
    nncf.set_log_level(logging.ERROR)
    return nncf


def check(exported: Exported, scored: bool) -> None:
    """Raise UsageError if there is no score of the model, and one is asked for; InputError if NNCF is missing."""
    if scored and exported.scored is None:
        raise UsageError(
            f"{exported.run.path}: nothing scores this model; give --score false and a --calibration file of plain "
            "texts, and compare it yourself"
        )
    library()


def narrowed(exported: Exported, calibration: Path, max_loss: float | None) -> Callable[[Any], Narrowed]:
    """Return what makes a model in 8 bits of one in float32, with what model.json says of it.

    calibration: labelled data as the command that trained the run reads it, or texts, one a line. max_loss: points of
    the first score that may be lost, of 100; None: `calibration` has texts, and there is no score. Raise UsageError if
    more is lost whatever is put back.
    """

    def make(model: Any) -> Narrowed:
        if max_loss is None:
            rows = _chosen(_texts(exported, calibration))
            return quantize(exported, model, rows), {"calibrated_on": len(rows)}
        return _accepted(exported, model, calibration, max_loss)

    return make


def _accepted(exported: Exported, model: Any, calibration: Path, max_loss: float) -> Narrowed:
    seen: list[Row] = []
    before = _scores(exported, calibration, _noting(exported, _outputs(exported, model), seen))
    rows = _chosen(seen)
    name = next(iter(before))
    parts: list[str] = []  # the first to be put back comes first
    count, put_back = 0, list[str]()
    while True:
        made = quantize(exported, model, rows, put_back)
        after = _scores(exported, calibration, _outputs(exported, made))
        print(json.dumps({"float32": before, "int8": after, "put_back": put_back}), flush=True)
        if before[name] - after[name] <= max_loss:
            scores = {"float32": before, "int8": after}
            return made, {"scores": scores, "put_back": put_back, "calibrated_on": len(rows)}
        parts = parts or _by_change(exported, model, rows)
        count = max(1, 2 * count)
        if count >= len(parts):
            raise UsageError(
                f"{exported.run.path}: in 8 bits {name} is {after[name]:.2f} and not {before[name]:.2f}, also with "
                f"{len(put_back)} of {len(parts)} parts in float32; give a larger --max_loss than {max_loss:g}, or "
                "leave out --int8"
            )
        put_back = parts[:count]


def quantize(exported: Exported, model: Any, rows: Sequence[Row], put_back: Sequence[str] = ()) -> Any:
    """Return a model in 8 bits. rows: what scales are set on. put_back: the parts that stay float32."""
    nncf = library()
    names = onnx_graph.inputs(exported.config)
    with contextlib.redirect_stdout(io.StringIO()):  # its bars
        return nncf.quantize(
            model.clone(),
            nncf.Dataset([dict(zip(names, _inputs(exported, row), strict=True)) for row in rows]),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(rows),
            ignored_scope=nncf.IgnoredScope(patterns=[_pattern(part) for part in put_back], validate=False),
        )


def _pattern(part: str) -> str:
    """Return the regular expression of the names of a part's nodes."""
    return "[^/]*$" if part == OUTSIDE else f"{part}/.*"


def _by_change(exported: Exported, model: Any, rows: Sequence[Row]) -> list[str]:
    """Return the parts of the model, first the part whose quantisation alone changes the outputs most."""
    parts = [f"layer_{number}" for number in range(exported.config.num_hidden_layers)] + [OUTSIDE]
    few = rows[:COMPARED]
    whole = compiled(model)
    expected = [whole(_inputs(exported, row)) for row in few]
    changes = {}
    with Progress("compare", "parts", len(parts)) as progress:
        for part in progress.each(parts):
            alone = compiled(quantize(exported, model, few, [other for other in parts if other != part]))
            pairs = (
                zip(alone(_inputs(exported, row)), ours, strict=True) for row, ours in zip(few, expected, strict=True)
            )
            changes[part] = float(np.mean([np.abs(found - ours).mean() for pair in pairs for found, ours in pair]))
    return sorted(parts, key=lambda part: -changes[part])


def _scores(exported: Exported, path: Path, outputs: Outputs) -> dict[str, float]:
    assert exported.scored is not None, "checked before"
    scores: dict[str, float] = rows.load(exported.scored.scores)(exported.run, path, outputs)
    return scores


def _outputs(exported: Exported, model: Any) -> Outputs:
    """Return a function of rows with padding that gives the outputs of OpenVINO's model."""
    compute, count = compiled(model), len(onnx_graph.inputs(exported.config))
    is_choice = exported.kind == CHOICE.name  # each row is the only choice of a question

    def outputs(*rows: Any) -> list[np.ndarray]:
        arrays = [np.asarray(array, np.int64) for array in rows[:count]]
        return compute([array[:, None] if is_choice else array for array in arrays])

    return outputs


def _noting(exported: Exported, outputs: Outputs, seen: list[Row]) -> Outputs:
    """Return the same function, which adds the rows that it is given to `seen`."""
    count = len(onnx_graph.inputs(exported.config))

    def noting(*rows: Any) -> list[np.ndarray]:
        arrays = [np.asarray(array, np.int32) for array in rows[:count]]
        lengths = np.asarray(rows[1]).sum(axis=1)
        seen.extend([array[place, :length] for array in arrays] for place, length in enumerate(lengths))
        return outputs(*rows)

    return noting


def _inputs(exported: Exported, row: Row) -> list[np.ndarray]:
    """Return the inputs of the model for one row."""
    axes = (None, None) if exported.kind == CHOICE.name else (None,)
    return [np.asarray(array, np.int64)[axes] for array in row]


def _chosen(rows: Sequence[Row]) -> list[Row]:
    """Return at most `SAMPLES` of the rows, at random."""
    order = np.random.default_rng(SEED).permutation(len(rows))
    return [rows[place] for place in order[:SAMPLES]]


def _texts(exported: Exported, path: Path) -> list[Row]:
    """Return the rows of a file of texts, one a line."""
    tokenizer, longest = exported.run.tokenizer, exported.config.max_position_embeddings
    with files.open_text(path) as stream:
        texts = [line.strip() for line in files.read_lines(stream, path)]
    flat, splits = tokenizer.encode([text for text in texts if text])
    if len(splits) < 2:
        raise InputError(f"{path}: has no text; give a file with a text in each line")
    count = len(onnx_graph.inputs(exported.config))
    rows = [tokenizer.row(flat[begin:end][: longest - 2]) for begin, end in itertools.pairwise(splits)]
    return [[row.ids, np.ones_like(row.ids), row.segments][:count] for row in rows]
