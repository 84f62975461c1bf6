"""Replaced tokens as a task of the training loop."""

import tensorflow as tf

from bert.core import checked_json
from bert.core.config import ModelConfig, ObjectiveConfig, PretrainConfig
from bert.core.errors import InputError
from bert.heads import GENERATOR, REPLACED_TOKEN
from bert.model import losses
from bert.model.encoder import Mode, TokenBatch
from bert.model.model_shard import UNSHARDED, Parts
from bert.pretraining import MASKED_WORDS, PretrainingObjective, read_indices
from bert.runs import Run
from bert.text.sampler import Batch
from bert.training.loop import Data
from bert.training.objective import DETECTION, Objective
from bert.training.task import Task
from extensions.replaced_tokens.model import Masked, ReplacedTokensModel

REPLACED = Objective("rtd", losses.Detection, DETECTION, learns_labels=False)


class ReplacedTokens(Task):
    """ELECTRA's objectives: masked words of the generator ("mlm"), and the detection of its replacements ("rtd")."""

    def __init__(
        self,
        config: ModelConfig,
        generator: ModelConfig,
        seed: int,
        settings: ObjectiveConfig,
        parts: Parts = UNSHARDED,
    ) -> None:
        self.module = ReplacedTokensModel(config, generator, seed, parts)
        self.objectives = (MASKED_WORDS, REPLACED._replace(factor=settings.detection_weight))

    def weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the number of masked positions, and of tokens."""
        tokens = tf.cast(batch["input_mask"] > 0, tf.float32)
        return {"mlm": tf.reduce_sum(batch["masked_lm_weights"]), "rtd": tf.reduce_sum(tokens)}

    def measure(self, batch: Batch, mode: Mode) -> dict[str, losses.Measure | losses.Detection]:
        """Return the measures of the generator's predictions and of the detection, by the names of the objectives."""
        tokens = TokenBatch(batch["input_ids"], batch["input_mask"], batch["segment_ids"], batch.get("position_ids"))
        words, weights = (tf.reshape(batch[f"masked_lm_{name}"], [-1]) for name in ("ids", "weights"))
        measures = self.module.measure(tokens, Masked(read_indices(batch)[0], words, weights), mode)
        return dict(zip(self.names, measures, strict=True))


def task(config: PretrainConfig, data: Data, parts: Parts) -> Task:
    """Return the task of a run."""
    assert config.further is not None, "it is the objective's"
    return ReplacedTokens(config.model, config.further, config.run.seed, config.objective, parts)


def trained(run: Run) -> Task:
    """Return the task with the weights of a run.

    Raise InputError if its `config.json` does not describe the generator.
    """
    settings, prefix = run.settings.get("config"), "objective."
    try:
        fields = {key.removeprefix(prefix): value for key, value in dict(settings or {}).items()}
        objective: ObjectiveConfig = checked_json.take(ObjectiveConfig, fields)
        generator = objective.further(run.config)
    except (TypeError, ValueError) as error:
        raise InputError(f"{run.settings_path}: does not describe the generator ({error}); restore it") from error
    if generator is None:
        raise InputError(f"{run.settings_path}: has no objective.name replaced_tokens, but the run has a generator")
    made = ReplacedTokens(run.config, generator, 0, objective)
    run.load(made.module)
    return made


OBJECTIVE = PretrainingObjective(task=task, new_heads=(REPLACED_TOKEN, GENERATOR))
