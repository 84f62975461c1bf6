"""What a run is, as frozen dataclasses: the intent is stated once and the rest derived from it.

Every field is a flag of the training commands (`--batch.per_device 64`), and the resolved whole is written to
`config.json`.
"""

import dataclasses
import json
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bert.errors import InputError, UsageError
from bert.storage import files


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise UsageError(message)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The architecture; the fields are those of `bert_config.json` (github.com/google-research/bert)."""

    vocab_size: int = 0
    """entries of the vocabulary; 0 takes the data's"""
    hidden_size: int = 768
    """width D of the residual stream"""
    num_hidden_layers: int = 12
    """encoder layers"""
    num_attention_heads: int = 12
    """attention heads N; must divide hidden_size"""
    intermediate_size: int = 3072
    """width F of the feed-forward layer"""
    hidden_act: Literal["gelu"] = "gelu"
    """activation of the feed-forward layer and of the masked-LM transform"""
    norm_placement: Literal["post", "pre"] = "post"
    """layer norm after each residual sum, as published, or before each sub-layer, as in Megatron-LM"""
    hidden_dropout_prob: float = 0.1
    """dropout on embeddings and on each sub-layer's output"""
    attention_probs_dropout_prob: float = 0.1
    """dropout on attention weights"""
    max_position_embeddings: int = 512
    """longest sequence"""
    type_vocab_size: int = 2
    """segments"""
    position_initializer: Literal["normal", "sinusoidal"] = "normal"
    """what positions start from: noise, as published, or sines, with first heads that look at neighbouring tokens"""
    initializer_range: float = 0.02
    """standard deviation of the truncated normal that kernels and embeddings start from"""
    vocab_multiple: int = 1
    """scores are computed for a vocabulary rounded up to a multiple of this, as tensor cores want; weights are not"""
    recompute_activations: bool = False
    """keep no more than each layer's input for the backward pass and compute the rest again: less memory, more time"""
    fused_attention: bool = False
    """cuDNN's attention, on an NVIDIA GPU; for precision.xla and 16 bits, without dropout on attention weights"""

    def __post_init__(self) -> None:
        width, heads = self.hidden_size, self.num_attention_heads
        _require(width % heads == 0, f"model.hidden_size {width} is no multiple of model.num_attention_heads {heads}")
        _require(self.vocab_multiple > 0, f"model.vocab_multiple must be positive, not {self.vocab_multiple}")
        for rate in (self.hidden_dropout_prob, self.attention_probs_dropout_prob):
            _require(0 <= rate < 1, f"dropout probability {rate} is not in [0, 1)")
        plain = not self.fused_attention or self.attention_probs_dropout_prob == 0
        _require(plain, "model.fused_attention has no dropout; give --model.attention_probs_dropout_prob 0")

    def save(self, path: Path) -> None:
        """Writes `bert_config.json`."""
        files.write_json(path, dataclasses.asdict(self))

    @classmethod
    def load(cls, path: Path) -> "ModelConfig":
        """Reads `bert_config.json`; keys that we do not know (other programs add some) are left aside."""
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            known = {field.name for field in dataclasses.fields(cls)}
            return cls(**{key: value for key, value in fields.items() if key in known})
        except FileNotFoundError as error:
            raise InputError(f"{path}: no such file; a trained model's folder holds one") from error
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(f"{path}: not a BERT configuration ({error})") from error


@dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """How many sequences make one update, and how they are cut into micro-batches."""

    total: int
    """sequences per update, over all ranks"""
    per_device: int
    """sequences that a device holds at once; 0 divides a rank's share into equal parts of at most max_per_device"""
    max_per_device: int = 16
    """most sequences that a device holds at once where per_device is 0"""
    bucket_by_length: int = 0
    """updates whose sequences are dealt out by length and cut to the longest of their batch; 0 leaves them padded"""
    pack: bool = False
    """put the instances of a micro-batch into as few rows as hold them, each attending to itself alone (pretraining)"""

    def __post_init__(self) -> None:
        _require(self.per_device >= 0, f"batch.per_device must not be negative, but is {self.per_device}")
        _require(
            self.bucket_by_length >= 0, f"batch.bucket_by_length must not be negative, but is {self.bucket_by_length}"
        )
        _require(
            not (self.pack and self.bucket_by_length),
            "batch.pack and batch.bucket_by_length both save padding; give one of them",
        )
        _require(self.max_per_device > 0, f"batch.max_per_device must be positive, not {self.max_per_device}")

    def divided(self, world_size: int) -> "BatchConfig":
        """Return the batch with `per_device` filled in where it is 0; raise UsageError if ranks do not divide it."""
        if self.per_device:
            return self
        self._check_multiple_of(world_size, f"{world_size} ranks")
        share = self.total // world_size
        per_device = max(size for size in range(1, min(share, self.max_per_device) + 1) if share % size == 0)
        return dataclasses.replace(self, per_device=per_device)

    def accumulation(self, world_size: int) -> int:
        """Micro-batches per rank and update."""
        assert self.per_device > 0, "batch.per_device is resolved by `divided` before it is used"
        per_pass = self.per_device * world_size
        self._check_multiple_of(per_pass, f"{per_pass} (batch.per_device {self.per_device} x {world_size} ranks)")
        return self.total // per_pass

    def _check_multiple_of(self, number: int, what: str) -> None:
        below = max(1, self.total // number) * number
        message = f"batch.total {self.total} is not a multiple of {what}; the nearest are {below} and {below + number}"
        _require(self.total > 0 and self.total % number == 0, message)


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """How gradients become updates, and how the learning rate rises and falls to zero."""

    name: Literal["adam", "adamw", "lamb", "nvlamb"] = "adam"
    """adam as in the original BERT, adamw with bias correction, lamb as published, nvlamb as in NVIDIA's recipe"""
    learning_rate: float
    """peak, for the whole batch: never multiplied by the number of ranks"""
    warmup_steps: int = 0
    """updates over which the learning rate rises from zero"""
    decay_power: float = 1.0
    """the rate falls as this power of the share of updates left: 1 for Adam, 0.5 for LAMB, as published"""
    continuous: bool = False
    """the fall begins at the peak; as published, it begins with the warm-up, so that the rate jumps down after that"""
    weight_decay: float = 0.01
    """decoupled; layer-norm parameters and biases are exempt"""
    beta_1: float = 0.9
    """decay of the mean of gradients"""
    beta_2: float = 0.999
    """decay of the mean of squared gradients"""
    epsilon: float = 1e-6
    """added to the root of the second moment"""
    clip_norm: float = 1.0
    """largest global norm of the gradient, after reduction over ranks"""
    layer_decay: float = 1.0
    """a layer learns at this share of the rate of the one above it, heads at the whole rate, embeddings the slowest"""

    def __post_init__(self) -> None:
        _require(self.decay_power > 0, f"optimizer.decay_power must be positive, not {self.decay_power}")
        _require(0 < self.layer_decay <= 1, f"optimizer.layer_decay must be in (0, 1], not {self.layer_decay}")
        _require(self.clip_norm > 0, f"optimizer.clip_norm must be positive, not {self.clip_norm}")


@dataclass(frozen=True, kw_only=True)
class PrecisionConfig:
    """Arithmetic of the forward and backward pass; weights, optimizer, layer norm, softmax and losses stay float32."""

    compute: Literal["auto", "float32", "tf32", "bfloat16", "float16"] = "float32"
    """type of matrix products; tf32 is float32 with products of 10-bit mantissas; float16 has a dynamic loss scale;
    auto is float32 on a CPU, bfloat16 on a GPU that has it, else float16"""
    compress: bool = False
    """sum gradients over the ranks in float16, scaled as the losses of float16 are"""
    xla: bool | None = False
    """compile the step with XLA; none does so on a GPU (on a CPU the plain path is usually faster)"""

    def resolved(self, gpu: bool, bfloat16: bool = True) -> "PrecisionConfig":
        """Return the precision with what depends on the device filled in.

        gpu: whether the device is a GPU; bfloat16: whether it has fast products of that type.
        """
        compute = self.compute
        if compute == "auto":
            compute = ("bfloat16" if bfloat16 else "float16") if gpu else "float32"
        return dataclasses.replace(self, compute=compute, xla=gpu if self.xla is None else self.xla)


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Length, bookkeeping and place of a run."""

    directory: Path = Path()
    """where everything goes; default: in the work folder, under the recipe's name"""
    device: Literal["auto", "gpu", "cpu"] = "auto"
    """what to compute on; auto takes a GPU where there is one"""
    deterministic: bool = True
    """on a GPU, use only kernels that give the same bits each time; a CPU's always do"""
    steps: int = 0
    """updates; 0 derives them where the task has epochs"""
    seed: int = 12345
    """of initial weights, sample order and dropout"""
    log_every: int = 20
    """updates between lines of metrics"""
    save_every: int = 500
    """updates between checkpoints"""
    keep: int = 3
    """newest checkpoints kept"""
    keep_every: int = 0
    """updates whose multiples have their checkpoints kept for good; 0 none"""
    evaluate_every: int = 500
    """updates between evaluations on the held-out split; 0 never"""
    evaluate_sequences: int = 2048
    """held-out sequences per evaluation, always the same ones"""
    target_accuracy: float = 0.0
    """end the run when an evaluation gets so much of its first objective right; 0 never"""
    peak_teraflops: float = 0.0
    """TFLOP/s of a device at its best in the compute type, as its maker states it, to log the share that is used"""
    profile: int = 0
    """update from which five are profiled, for TensorBoard, with Horovod's timeline; 0 none"""
    stall_seconds: float = 600.0
    """time without an update after which all stacks are shown; after twice that, ranks that wait for another end"""
    max_skipped: int = 10
    """updates in a row that are skipped, their gradient not being finite or their loss a spike, before the run ends"""
    spike_factor: float = 3.0
    """an update is a spike when its loss is so many times the median of the last 64; 0 looks for none"""
    on_spike: Literal["warn", "skip", "rollback"] = "warn"
    """name it; leave it out too; or go back to the newest checkpoint too, and on with the samples behind the spike"""

    def __post_init__(self) -> None:
        for name in ("log_every", "save_every", "keep", "max_skipped"):
            _require(getattr(self, name) > 0, f"run.{name} must be positive, not {getattr(self, name)}")
        _require(self.steps >= 0 and self.evaluate_every >= 0, "run.steps and run.evaluate_every must not be negative")
        factor = self.spike_factor
        _require(factor == 0 or factor > 1, f"run.spike_factor must be 0, or more than 1, not {factor}")


@dataclass(frozen=True, kw_only=True)
class BudgetConfig:
    """What a run may cost."""

    hours: float = 0.0
    """end after so much time in all sittings, the learning rate following the clock; 0 follows the updates"""

    def __post_init__(self) -> None:
        _require(self.hours >= 0, f"budget.hours must not be negative, but is {self.hours}")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Where the samples come from."""

    train: Path = Path()
    """folder made by `python -m data.tfrecords`"""
    skip_bad: int = 0
    """damaged records that a rank passes over, with a warning, before it ends"""

    def __post_init__(self) -> None:
        _require(self.skip_bad >= 0, f"data.skip_bad must not be negative, but is {self.skip_bad}")


@dataclass(frozen=True, kw_only=True)
class InitConfig:
    """Where weights come from."""

    checkpoint: Path | None = None
    """run directory of an earlier phase, all of whose weights are taken; none starts from random ones"""

    @property
    def missing(self) -> bool:
        """Whether the recipe goes on from weights that the command has to name."""
        return self.checkpoint == Path()


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """A pretraining run."""

    model: ModelConfig
    """architecture"""
    data: DataConfig = DataConfig()
    """samples"""
    batch: BatchConfig
    """sizes"""
    optimizer: OptimizerConfig
    """learning"""
    precision: PrecisionConfig = PrecisionConfig()
    """arithmetic"""
    run: RunConfig = RunConfig()
    """bookkeeping"""
    budget: BudgetConfig = BudgetConfig()
    """time"""
    init: InitConfig = InitConfig()
    """starting weights"""


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted names and plain values of a configuration, as they stand in `config.json`."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            found |= flatten(value, f"{prefix}{field.name}.")
        else:
            found[prefix + field.name] = _plain(value)
    return found


def defaults(cls: type, prefix: str = "") -> dict[str, Any]:
    """What `flatten` gives for the fields of a configuration that have a default: what runs did before they existed."""
    found: dict[str, Any] = {}
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if dataclasses.is_dataclass(hints[field.name]):
            found |= defaults(hints[field.name], f"{prefix}{field.name}.")
        elif field.default is not dataclasses.MISSING:
            found[prefix + field.name] = _plain(field.default)
    return found


def _plain(value: Any) -> Any:
    return value if isinstance(value, (int, float, str)) or value is None else str(value)
