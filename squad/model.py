"""Questions as a kind of task, their model, and how it is loaded from a run directory."""

from dataclasses import fields
from pathlib import Path
from typing import get_args

import tensorflow as tf

from bert.core import checked_json, files
from bert.core.errors import InputError
from bert.hardware.choices import Compute, EngineName
from bert.heads import ANSWER_SPAN
from bert.labels import Head
from bert.model import losses
from bert.runs import Run
from bert.text.sampler import Batch
from squad.config import Windowing
from squad.languages import Language
from tasks.model import FineTuned, with_weights
from tasks.task_type import TaskType


class AnswerSpans(TaskType):
    """Questions about passages: the first and the last token of the answer. The loss is a mean over windows."""

    head, objective, metrics = ANSWER_SPAN, "span", ("f1", "exact_match")
    described = Head(kind=ANSWER_SPAN.name)

    def __init__(self, windowing: Windowing, impossible: bool, language: Language | None = None) -> None:
        """impossible: whether the model is trained on impossible questions. language: its rules score the answers."""
        self.windowing, self.impossible, self.language = windowing, impossible, language

    @property
    def length(self) -> int:
        """Tokens of a window."""
        return self.windowing.max_seq_length

    def weights(self, batch: Batch) -> tf.Tensor:
        """Return the number of windows."""
        return tf.cast(tf.shape(batch["input_ids"])[0], tf.float32)

    def measure(self, logits: tuple[tf.Tensor, tf.Tensor], batch: Batch) -> losses.Measure:
        """Return the summed loss and the number of correct answers."""
        return losses.span(*logits, batch["start_positions"][:, 0], batch["end_positions"][:, 0])

    def soft(
        self,
        logits: tuple[tf.Tensor, tf.Tensor],
        taught: tuple[tf.Tensor, tf.Tensor],
        batch: Batch,
        temperature: float,
    ) -> tf.Tensor:
        """Return the summed loss of a batch with a teacher's logits as labels: the mean of first and last token."""
        ones = tf.ones_like(batch["start_positions"][:, 0], tf.float32)
        each = [losses.soft_labels(own, of, ones, temperature) for own, of in zip(logits, taught, strict=True)]
        return (each[0] + each[1]) / 2


def load(run: Path | Run, compute: Compute = "float32", engine: EngineName = "tensorflow") -> FineTuned[AnswerSpans]:
    """Load the newest checkpoint of a `squad.train` run, or an imported model, which gets default windows.

    compute: data type of the encoder's matrix products. engine: what computes it. Raises InputError if `run` is not
    such a directory or its vocabulary has another size, IntegrityError if the checkpoint or a file beside it is
    damaged, UsageError if the engine cannot compute the model.
    """
    opened = run if isinstance(run, Run) else Run.open(run, "the run directory of python -m squad.train")
    return with_weights(opened, _trained_for(opened), compute, engine)


def _trained_for(run: Run) -> AnswerSpans:
    """Return from a run's `config.json`: windows, whether it had impossible questions, and the language of its rules.

    Runs of the first versions do not store the last two.
    """
    path, longest = run.settings_path, run.config.max_position_embeddings
    try:
        described = files.read_json(path)
        settings = described["config"]
        if (impossible := settings.get("data.impossible", False)) not in (True, False):
            raise ValueError("data.impossible is not a boolean")
        if (language := settings.get("data.language")) not in (None, *get_args(Language)):
            raise ValueError("data.language is none of MLQA's")
        if "imported" in described:  # 384 tokens with strides of 128 if possible
            length = min(Windowing.max_seq_length, longest)
            sizes = {"max_seq_length": length, "doc_stride": length // 3, "max_query_length": length // 6}
        else:
            sizes = {field.name: settings[f"windows.{field.name}"] for field in fields(Windowing)}
        windows: Windowing = checked_json.take(Windowing, sizes)
        if windows.max_seq_length > longest:
            raise ValueError("windows longer than the model's longest sequence")
        return AnswerSpans(windows, bool(impossible), language)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; give the run directory of python -m squad.train") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}: not the configuration of a squad.train run ({error}); give its run directory"
        ) from error
