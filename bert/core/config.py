"""The configuration of a run, as frozen dataclasses: state the intent once, derive the rest.

Every field is a flag of the training commands (`--batch.per_device 64`). The string below a field is its help text. The
resolved configuration is written to `config.json`. A field that is None was not given. The weights do not depend on a
field that is marked MAY_CHANGE, so a run may go on with another value of it.
"""

import dataclasses
import enum
import math
import shlex
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from bert.core import object_urls, ranges, rows
from bert.core.cli import MAY_CHANGE, Stored
from bert.core.errors import UsageError, require
from bert.core.model_config import KERNEL_SETTINGS as KERNEL_SETTINGS
from bert.core.model_config import RUN_SETTINGS as RUN_SETTINGS
from bert.core.model_config import ModelConfig as ModelConfig
from bert.core.model_config import Size as Size
from bert.core.ranges import BatchSize, NameIn, Range, Seed, Share

Count = Annotated[int, Range(1, 10**9)]
CountOrNone = Annotated[int, Range(0, 10**9)]
MAX_POOL = 2**26  # sequences that are sorted by length at once

Decay = Annotated[float, Range(0, 0.999999)]  # in float32, numbers closer to 1 are 1

# Sections of options: their extensions have them. Nothing but a type checker imports an extension by a statement.
if TYPE_CHECKING:
    from extensions.distillation.config import DistillConfig as DistillConfig
    from extensions.lora.config import LoraConfig as LoraConfig
    from extensions.replaced_tokens.config import ObjectiveConfig as ObjectiveConfig
else:
    DistillConfig = rows.load("extensions.distillation.config:DistillConfig")
    LoraConfig = rows.load("extensions.lora.config:LoraConfig")
    ObjectiveConfig = rows.load("extensions.replaced_tokens.config:ObjectiveConfig")


@dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """How many sequences make one update, and how they are divided into micro-batches."""

    total: Annotated[int, Range(1, 10_000_000)]
    """sequences per update, over all ranks"""
    per_device: Annotated[int, Range(0, 65_536)] = field(metadata=MAY_CHANGE)
    """sequences per micro-batch; 0 divides a rank's share into equal micro-batches of at most max_per_device"""
    max_per_device: BatchSize = field(default=16, metadata=MAY_CHANGE)
    """largest micro-batch if per_device is 0"""
    fit: Literal["exact", "nearest", "below", "above"] = field(default="exact", metadata=MAY_CHANGE)
    """what to do with a total that the ranks cannot divide: end with an error, or take the nearest total, or the
    nearest one below or above, in micro-batches of at most per_device; learning rate and updates stay as they are"""
    bucket_by_length: Annotated[int, Range(0, 100_000)] = 0
    """number of updates, within an epoch, whose sequences are sorted by length among their micro-batches, each of which
    is then trimmed to its longest sequence; 0 keeps the padding"""
    pack: bool = False
    """pack the instances of a micro-batch into the fewest rows; each attends to itself only (pretraining)"""

    def __post_init__(self) -> None:
        ranges.check(self, "batch.")
        require(
            not (self.pack and self.bucket_by_length),
            "batch.pack and batch.bucket_by_length both avoid padding; give one of them",
        )
        require(
            self.total * self.bucket_by_length <= MAX_POOL,
            f"batch.bucket_by_length {self.bucket_by_length} x batch.total {self.total} is more than {MAX_POOL} "
            "sequences to sort; give fewer",
        )

    def divided(self, world_size: int) -> "BatchConfig":
        """Return the batch with `per_device` filled in if it is 0, and with a `total` that the ranks divide.

        Raise UsageError if they do not divide it and `fit` is exact, or if a rank would have less than one sequence.
        """
        if self.fit != "exact" and self.total % (world_size * max(1, self.per_device)):
            return self._fitted(world_size)
        if self.per_device:
            return self
        self._check_multiple_of(world_size, f"{world_size} ranks")
        share = self.total // world_size
        per_device = max(size for size in range(1, min(share, self.max_per_device) + 1) if share % size == 0)
        return dataclasses.replace(self, per_device=per_device)

    def _fitted(self, world_size: int) -> "BatchConfig":
        """Return the batch with a `total` close to this one's, in as many micro-batches as it needs, or one fewer."""
        largest = self.per_device or self.max_per_device
        most = math.ceil(self.total / (world_size * largest))
        fewest = most if self.fit == "above" else max(1, most - 1)  # these, of the largest size, may almost hold it
        sizes = {number: min(largest, self._size(self.total / (world_size * number))) for number in (fewest, most)}
        accumulation = min(sizes, key=lambda number: abs(sizes[number] * number * world_size - self.total))
        per_device = sizes[accumulation]
        require(
            per_device > 0,
            f"batch.total {self.total} is less than a sequence for each of {world_size} ranks; give --batch.fit above",
        )
        return dataclasses.replace(self, total=per_device * world_size * accumulation, per_device=per_device)

    def _size(self, exact: float) -> int:
        return {"nearest": max(1, round(exact)), "below": math.floor(exact), "above": math.ceil(exact)}[self.fit]

    def accumulation(self, world_size: int) -> int:
        """Return the number of micro-batches per rank and update. Raise UsageError if they do not divide the batch."""
        assert self.per_device > 0, "call `divided` first"
        per_pass = self.per_device * world_size
        self._check_multiple_of(per_pass, f"{per_pass} (batch.per_device {self.per_device} x {world_size} ranks)")
        return self.total // per_pass

    def change(self, requested: "BatchConfig") -> str:
        """Return a line about how `divided` changed the total of the batch `requested`; "" if it did not."""
        if self.total == requested.total:
            return ""
        change = f"{self.total / requested.total - 1:+.1%}"
        return (
            f"batch: {self.total:,} sequences per update instead of {requested.total:,} ({change}), "
            f"in micro-batches of {self.per_device:,}; learning rate and updates are unchanged"
        )

    def _check_multiple_of(self, number: int, what: str) -> None:
        below = max(1, self.total // number) * number
        message = (
            f"batch.total {self.total} is not a multiple of {what}; the nearest are {below} and {below + number}; "
            "--batch.fit nearest chooses one"
        )
        require(self.total % number == 0, message)


@dataclass(frozen=True, kw_only=True)
class OptimizerKind:
    """What settings, plans and checkpoints need from an optimizer; none of them computes an update."""

    rule: str
    """the `bert.training.optimizer.UpdateRule` that computes its updates; as in `bert.core.rows`"""
    slots: tuple[str, ...] = ("adam_m", "adam_v")
    """the variables that it keeps of a weight, each of the weight's shape: first parts of their names"""
    largest_norm: float = math.inf
    """norm to which it clips gradients at most"""
    instead: str = ""
    """what it does instead of clipping gradients; empty: it clips them"""


OPTIMIZERS = {
    "adam": OptimizerKind(rule="bert.training.update_rules:Adam"),
    "adamw": OptimizerKind(rule="bert.training.update_rules:AdamW"),
    "stableadamw": OptimizerKind(rule="bert.training.update_rules:StableAdamW", instead="limits each step"),
    "lamb": OptimizerKind(rule="bert.training.update_rules:Lamb"),
    "nvlamb": OptimizerKind(rule="bert.training.update_rules:NvLamb", largest_norm=1.0),
}


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The optimizer and the learning-rate schedule."""

    name: Annotated[str, NameIn(OPTIMIZERS)] = "adam"
    """adam as in the original BERT; adamw with bias correction; stableadamw, as in ModernBERT, with a limit for the
    step of every variable instead of clipped gradients; lamb with a trust ratio for every variable; nvlamb with one for
    those that decay only, as in the code of LAMB's authors, NVIDIA's PyTorch recipe and MLPerf's reference"""
    learning_rate: Annotated[float, Range(0, 100)]
    """peak learning rate, for the whole batch: never multiplied by the number of ranks"""
    first_step: CountOrNone = 0
    """updates of earlier phases: the learning rate goes on from there, in one schedule over all phases"""
    warmup_steps: CountOrNone = 0
    """updates over which the learning rate rises from zero"""
    warmup_start: Annotated[int, Range(-(10**9), 10**9)] = 0
    """update of the schedule at which the learning rate starts to rise; if negative, it has risen before the first"""
    schedule: Literal["polynomial", "cosine", "stable"] = "polynomial"
    """how the learning rate falls: polynomial, as published for BERT; along half a cosine after the warm-up, as for
    GPT-2 in Megatron-LM; or not before decay_start (stable; warm-up-stable-decay), as for ModernBERT"""
    decay_start: CountOrNone = 0
    """stable: update of the schedule from which the learning rate falls; 0: it stays at its peak"""
    decay_steps: CountOrNone = 0
    """update of the schedule at which the learning rate reaches minimum_rate; 0: the last one of the run"""
    minimum_rate: Annotated[float, Range(0, 100)] = 0.0
    """learning rate after the decay"""
    decay_power: Annotated[float, Range(0, 100, above=True)] = 1.0
    """polynomial: the rate falls with this power of the remaining share of updates: 1 for Adam, 0.5 for LAMB, as
    published. stable: it falls by this power of the share of the decay that is over: 1 is a line, 0.5 falls fast first,
    as 1 - sqrt of ModernBERT"""
    continuous: bool = False
    """start the decay at the peak, after the warm-up; as published, it counts from the first update, so that the rate
    jumps down at the end of the warm-up"""
    weight_decay: Annotated[float, Range(0, 10)] = 0.01
    """decoupled weight decay; layer-norm parameters and biases are exempt"""
    beta_1: Decay = 0.9
    """decay rate of the first moment"""
    beta_2: Decay = 0.999
    """decay rate of the second moment"""
    epsilon: Annotated[float, Range(1e-30, 1)] = 1e-6
    """added to the root of the second moment"""
    clip_norm: Annotated[float, Range(1e-12, 1e12)] = 1.0
    """largest global gradient norm, after the reduction over ranks; nvlamb has 1 at most; stableadamw does not clip"""
    layer_decay: Annotated[float, Range(0, 1, above=True)] = 1.0
    """layer-wise decay: a layer learns at this share of the rate of the layer above it; heads have the full rate"""
    ema: Annotated[float, Range(0, 0.9999)] = 0.0  # closer to 1, float32 would lose too much of the small shares
    """also keep a moving average of the weights, with this decay in an update; bert.average --ema true makes a model of
    it; 0: none"""

    def __post_init__(self) -> None:
        ranges.check(self, "optimizer.")
        require(
            self.minimum_rate <= self.learning_rate,
            f"optimizer.minimum_rate {self.minimum_rate:g} is more than optimizer.learning_rate {self.learning_rate:g}",
        )
        require(
            self.warmup_start <= self.first_step,
            f"optimizer.warmup_start {self.warmup_start} is after optimizer.first_step {self.first_step}",
        )
        require(
            self.decay_steps == 0 or self.decay_steps > self.warmup_start + self.warmup_steps,
            f"optimizer.decay_steps {self.decay_steps} is within optimizer.warmup_steps {self.warmup_steps} from "
            f"optimizer.warmup_start {self.warmup_start} on",
        )
        require(
            self.schedule == "stable" or self.decay_start == 0,
            f"optimizer.decay_start has no effect with optimizer.schedule {self.schedule}; leave it out",
        )
        require(
            self.decay_start == 0 or self.decay_start >= self.warmup_start + self.warmup_steps,
            f"optimizer.decay_start {self.decay_start} is within optimizer.warmup_steps {self.warmup_steps} from "
            f"optimizer.warmup_start {self.warmup_start} on",
        )
        require(
            self.decay_start > 0 or self.schedule != "stable" or (self.minimum_rate, self.decay_steps) == (0, 0),
            "optimizer.minimum_rate and optimizer.decay_steps need optimizer.decay_start: without it the learning rate "
            "of optimizer.schedule stable does not fall",
        )
        require(
            not self.kind.instead or self.clip_norm == 1,
            f"optimizer.clip_norm {self.clip_norm:g} has no effect with optimizer.name {self.name}, which "
            f"{self.kind.instead} instead; leave it out",
        )
        require(
            self.schedule != "cosine" or self.decay_power == 1,
            f"optimizer.decay_power {self.decay_power:g} has no effect with optimizer.schedule cosine; leave it out",
        )

    @property
    def kind(self) -> OptimizerKind:
        """Return the optimizer's row in the table."""
        return OPTIMIZERS[self.name]

    @property
    def bytes_kept(self) -> int:
        """Return how many bytes the optimizer keeps for each parameter: its slots and, if there is one, its average."""
        return 4 * (len(self.kind.slots) + bool(self.ema))


@dataclass(frozen=True, kw_only=True)
class PrecisionConfig:
    """Precision of the forward and backward pass; weights, optimizer, softmax and losses stay float32."""

    compute: Literal["auto", "float32", "tf32", "bfloat16", "float16"] = "float32"
    """type of matrix products; tf32 is float32 with 10-bit mantissas in products; float16 has a dynamic loss scale;
    auto is float32 on a CPU, bfloat16 on a GPU that supports it, otherwise float16"""
    residual: Literal["float32", "bfloat16"] = "float32"
    """type in memory of the residual stream, of layer norms' results and of their gradients; what is computed is
    float32; bfloat16 needs compute bfloat16"""
    compress: bool = False
    """sum gradients over the ranks in float16, with dynamic loss scale"""
    xla: bool | None = False
    """compile the step with XLA; none: on a GPU only (on a CPU it is usually slower)"""

    def __post_init__(self) -> None:
        require(
            self.residual == "float32" or self.compute in ("auto", "bfloat16"),
            f"precision.residual {self.residual} needs precision.compute bfloat16, and here it is {self.compute}; "
            "leave it out",
        )

    def resolved(self, gpu: bool, bfloat16: bool = True) -> "PrecisionConfig":
        """Return the precision with `auto` and `none` resolved for the device.

        gpu: whether the device is a GPU. bfloat16: whether it multiplies fast in bfloat16. Raise UsageError if the
        resolved precision does not allow the type of the residual stream.
        """
        compute = self.compute
        if compute == "auto":
            compute = ("bfloat16" if bfloat16 else "float16") if gpu else "float32"
        return dataclasses.replace(self, compute=compute, xla=gpu if self.xla is None else self.xla)


@dataclass(frozen=True, kw_only=True)
class ParallelConfig:
    """How several ranks divide the work of an update. The weights do not depend on this, up to rounding."""

    overlap: bool = field(default=False, metadata=MAY_CHANGE)
    """send gradients in buckets while the backward pass of the last micro-batch still computes the others"""
    bucket_megabytes: Annotated[float, Range(0, 1e6)] = field(default=0.0, metadata=MAY_CHANGE)
    """size of a bucket, as float32; 0: all gradients in one bucket, or a tenth of them, at least 1 and at most 25, with
    overlap or shard_optimizer"""
    shard_optimizer: bool = field(default=False, metadata=MAY_CHANGE)
    """divide the optimizer's moments and its update over the ranks (ZeRO stage 1): less memory, the same result"""
    tensor: Annotated[int, Range(1, 1024)] = field(default=1, metadata=MAY_CHANGE)
    """ranks that hold one model together, each a part of every layer (Megatron-LM); for models too large for one"""

    def __post_init__(self) -> None:
        ranges.check(self, "parallel.")

    def bucket_bytes(self, gradients: float) -> float:
        """Return the maximum size of a bucket; infinity for a single bucket. gradients: bytes of all gradients.

        The default is a tenth of them, so that most gradients are sent while the backward pass computes the others.
        """
        if self.bucket_megabytes:
            return self.bucket_megabytes * 1e6
        return min(max(gradients / 10, 1e6), 25e6) if self.overlap or self.shard_optimizer else math.inf


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Length, logging, checkpoints and directory of a run."""

    directory: Stored[Path | None] = field(default=None, metadata=MAY_CHANGE)
    """run directory; default: in the work folder, named after the recipe"""
    device: Literal["auto", "gpu", "cpu"] = field(default="auto", metadata=MAY_CHANGE)
    """device to compute on; auto takes a GPU if there is one"""
    communicator: Literal["horovod", "tensorflow"] = field(default="horovod", metadata=MAY_CHANGE)
    """what sums over several ranks: Horovod, or TensorFlow's own collectives, which need nothing to be built"""
    deterministic: bool = field(default=True, metadata=MAY_CHANGE)
    """on a GPU, use only kernels that always give the same bits; those of a CPU always do"""
    steps: CountOrNone = 0
    """updates; 0 derives them from the epochs, if the task has epochs; may grow when a run goes on"""
    stop_at: CountOrNone = field(default=0, metadata=MAY_CHANGE)
    """stop after this update, evaluated and saved, as if asked to by a signal; the learning rate is that of run.steps;
    0: go on to run.steps"""
    seed: Seed = 12345
    """seed of initial weights, sample order and dropout"""
    log_every: Count = field(default=20, metadata=MAY_CHANGE)
    """updates between lines of metrics"""
    save_every: Count = field(default=500, metadata=MAY_CHANGE)
    """updates between checkpoints"""
    keep: Count = field(default=3, metadata=MAY_CHANGE)
    """number of newest checkpoints to keep"""
    keep_every: CountOrNone = field(default=0, metadata=MAY_CHANGE)
    """also keep the checkpoints of all multiples of this number of updates, a multiple of save_every; 0: none"""
    evaluate_every: CountOrNone = field(default=500, metadata=MAY_CHANGE)
    """updates between evaluations on the held-out split; 0: never"""
    evaluate_sequences: Count = field(default=2048, metadata=MAY_CHANGE)
    """held-out sequences per evaluation, spread over all of them and always the same ones"""
    patience: CountOrNone = field(default=0, metadata=MAY_CHANGE)
    """end the run after this many evaluations on a development set without improvement; 0: never"""
    target_accuracy: Annotated[float, Range(0, 100)] = field(default=0.0, metadata=MAY_CHANGE)
    """end the run when an evaluation reaches this accuracy, in percent, in its first objective; 0: never"""
    peak_teraflops: Annotated[float, Range(0, 1e6)] = field(default=0.0, metadata=MAY_CHANGE)
    """peak TFLOP/s of a device in the compute type, from its data sheet, to log the utilisation; 0: unknown"""
    profile: CountOrNone = field(default=0, metadata=MAY_CHANGE)
    """first of five updates to profile, for TensorBoard, with Horovod's timeline; 0: none"""
    stall_seconds: Annotated[float, Range(0.1, 1e6)] = field(default=600.0, metadata=MAY_CHANGE)
    """time without an update after which all stacks are printed; ranks that wait for another end after twice that"""
    max_skipped: Count = field(default=10, metadata=MAY_CHANGE)
    """end the run after this many skipped updates in a row (gradient not finite, or spike), or this many rollbacks to
    one checkpoint"""
    spike_factor: Annotated[float, Range(0, 1e6)] = field(default=3.0, metadata=MAY_CHANGE)
    """a loss of more than this many times the median of the last 64 is a spike; 0 detects none"""
    on_spike: Literal["warn", "skip", "rollback"] = field(default="warn", metadata=MAY_CHANGE)
    """print a warning; also skip the update; or also return to the newest checkpoint and go on with the samples that
    follow the spike"""

    def __post_init__(self) -> None:
        ranges.check(self, "run.")
        factor = self.spike_factor
        require(factor == 0 or factor > 1, f"run.spike_factor must be 0, or more than 1, not {factor}")
        if 0 < (target := self.target_accuracy) <= 1:
            raise UsageError(
                f"run.target_accuracy {target:g}: accuracies are in percent, from 0 to 100; give {100 * target:g}"
            )

    @property
    def path(self) -> Path:
        """Return the run directory. Call `placed` first, which fills in the default."""
        assert self.directory is not None, "call `placed` first"
        return self.directory

    def placed(self, default: Path, steps: int) -> "RunConfig":
        """Return this configuration; fill in directory and number of steps if the command gives none."""
        directory = default if self.directory is None else self.directory
        return dataclasses.replace(self, directory=directory, steps=self.steps or steps)


@dataclass(frozen=True, kw_only=True)
class BudgetConfig:
    """Limits on the cost of a run."""

    hours: Annotated[float, Range(0, 1e5)] = 0.0
    """total wall-clock budget across restarts, in hours; the learning rate then follows the clock; 0: no limit"""

    def __post_init__(self) -> None:
        ranges.check(self, "budget.")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The samples."""

    train: Stored[Path | None] = None
    """folder made by `python -m data.tfrecords` or, for a causal model, by `python -m data.tokens`"""
    length: Annotated[int, Range(0, 65_536)] = 0
    """tokens of a sequence of a causal model; 0: model.max_position_embeddings. For other models the data have it"""
    mask_shares: tuple[Share, ...] = ()
    """for documents: of the selected tokens, the shares that become [MASK], a random token, or stay as they are; they
    add up to 1. Without it: as data.tfrecords was told, or 0.8 0.1 0.1"""
    skip_bad: CountOrNone = field(default=0, metadata=MAY_CHANGE)
    """number of damaged records that a rank skips, with a warning, before it ends"""

    def __post_init__(self) -> None:
        ranges.check(self, "data.")
        if self.mask_shares:
            ranges.check_mask_shares(self.mask_shares, "data.mask_shares")


class Weights(enum.Enum):
    """Initial weights that do not come from a run. The value is their name on the command line."""

    RANDOM = "none"


@dataclass(frozen=True, kw_only=True)
class InitConfig:
    """The initial weights."""

    checkpoint: Stored[Path | Weights | None] = Weights.RANDOM
    """run directory of an earlier phase to take all weights from; none: random weights"""
    step: CountOrNone = 0
    """update of that run after which this one goes on as that one would have: with its optimizer, samples and update
    numbers; only the learning rate after it may be another. 0: a new run from its weights"""
    layers: tuple[Annotated[int, Range(0, 999)], ...] = ()
    """layers to take from the checkpoint, from 0, as all layers of a smaller model, such as 0 2 4; default: all"""
    frozen_layers: CountOrNone = 0
    """number of layers that keep their initial weights, and so do the embeddings; 0: all weights learn"""
    frozen_encoder: bool = False
    """keep the initial weights of the whole encoder: only the heads learn"""

    def __post_init__(self) -> None:
        ranges.check(self, "init.")
        random = self.checkpoint is Weights.RANDOM
        require(not (self.layers and random), "init.layers are those of --init.checkpoint RUN; give one")

    @property
    def source(self) -> Path | None:
        """Return the run directory of the initial weights, or None if they are random."""
        return self.checkpoint if isinstance(self.checkpoint, Path) else None


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The sections of every training run; a task adds more."""

    model: ModelConfig
    """architecture"""
    batch: BatchConfig
    """sizes"""
    optimizer: OptimizerConfig
    """learning"""
    precision: PrecisionConfig = PrecisionConfig()
    """arithmetic"""
    parallel: ParallelConfig = ParallelConfig()
    """division over ranks"""
    run: RunConfig = RunConfig()
    """bookkeeping"""
    budget: BudgetConfig = BudgetConfig()
    """time"""
    init: InitConfig = InitConfig()
    """initial weights"""
    distill: DistillConfig = field(default=DistillConfig())
    """soft labels"""

    def __post_init__(self) -> None:
        first, end = self.optimizer.first_step, self.optimizer.decay_steps
        start, last = self.optimizer.decay_start, end or first + self.run.steps
        require(
            start == 0 or self.run.steps == 0 or start < last,
            f"optimizer.decay_start {start} is not before the end of the decay, update {last}; give fewer, or more "
            "run.steps",
        )
        require(
            self.init.step == 0 or self.init.checkpoint is not Weights.RANDOM,
            f"init.step {self.init.step} needs --init.checkpoint RUN, the run that this one goes on from",
        )
        require(
            self.init.step == 0 or self.run.steps == 0 or self.init.step < self.run.steps,
            f"init.step {self.init.step} is not before run.steps {self.run.steps}, which counts all updates",
        )
        require(
            self.init.step == 0 or self.budget.hours == 0,
            "with budget.hours the learning rate follows the clock, so another run cannot go on from init.step",
        )
        require(
            self.init.step == 0 or self.batch.bucket_by_length == 0,
            "batch.bucket_by_length sorts samples by the length of the run, so another run cannot go on from init.step",
        )
        require(
            end == 0 or first + self.run.steps <= end or self.optimizer.minimum_rate > 0,
            f"run.steps {self.run.steps} after optimizer.first_step {first} are more than optimizer.decay_steps {end}, "
            "after which the learning rate is 0; give --optimizer.decay_steps 0 to end the decay with the run",
        )

    @property
    def further(self) -> ModelConfig | None:
        """Return the architecture of a further encoder that is trained beside the model; None if there is none."""
        return None


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(TrainConfig):
    """A pretraining run."""

    data: DataConfig = DataConfig()
    """samples"""
    objective: ObjectiveConfig = field(default=ObjectiveConfig())
    """what is learned"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.objective.check(self)

    @property
    def further(self) -> ModelConfig | None:
        """Return the architecture of a further encoder that is trained beside the model; None if there is none."""
        return self.objective.further(self.model)


@dataclass(frozen=True, kw_only=True)
class StartConfig(InitConfig):
    """The initial weights of fine-tuning. The command must name them, because random ones are rarely intended."""

    checkpoint: Stored[Path | Weights | None] = None
    """run directory whose newest checkpoint gives the encoder; none: random weights"""


@dataclass(frozen=True, kw_only=True)
class EpochConfig:
    """The length of a run, relative to its data. `run` and `optimizer` get what follows from it."""

    epochs: Annotated[float, Range(0, 1e6, above=True)] = field(default=2.0, metadata=MAY_CHANGE)
    """passes over the training samples, if run.steps is 0"""
    warmup: Annotated[float, Range(0, 1, below=True)] = field(default=0.1, metadata=MAY_CHANGE)
    """share of the updates over which the learning rate rises, if optimizer.warmup_steps is 0"""
    evaluations: Annotated[float, Range(0, 1e6)] = field(default=0.0, metadata=MAY_CHANGE)
    """evaluations on the development set in a pass over the training samples; 0: every run.evaluate_every updates"""

    def __post_init__(self) -> None:
        ranges.check(self, "length.")


@dataclass(frozen=True, kw_only=True)
class FineTuneConfig(TrainConfig):
    """A fine-tuning run. `model` is used only if no checkpoint gives the architecture."""

    length: EpochConfig = EpochConfig()
    """length of the run"""
    lora: LoraConfig = field(default=LoraConfig())
    """low-rank updates"""
    init: StartConfig = StartConfig()
    """initial weights"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.distill.distances and not self.distill.teacher:
            raise UsageError(f"distill.{next(iter(self.distill.distances))} needs --distill.teacher RUN; give one")
        if self.init.step:
            raise UsageError("init.step is for pretraining only; leave it out")
        if self.batch.pack:
            raise UsageError("batch.pack is for pretraining only; give batch.bucket_by_length to avoid padding")


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    """Return a configuration as a dictionary of plain values by dotted names, as in `config.json`."""
    values: dict[str, Any] = {}
    for each in dataclasses.fields(config):
        value = getattr(config, each.name)
        if dataclasses.is_dataclass(value):
            values |= flatten(value, f"{prefix}{each.name}.")
        else:
            values[prefix + each.name] = _plain(value)
    return values


def may_change(config: Any, prefix: str = "") -> set[str]:
    """Return the dotted names of the fields that may differ when a run goes on."""
    names: set[str] = set()
    for each in dataclasses.fields(config):
        value = getattr(config, each.name)
        if dataclasses.is_dataclass(value):
            names |= may_change(value, f"{prefix}{each.name}.")
        elif each.metadata == MAY_CHANGE:
            names.add(prefix + each.name)
    return names


def defaults(cls: type, prefix: str = "") -> dict[str, Any]:
    """Return the defaults of a configuration's fields, by dotted names.

    They fill in the fields that an old `config.json` lacks, because they did not exist when it was written.
    """
    values: dict[str, Any] = {}
    hints = typing.get_type_hints(cls)
    for each in dataclasses.fields(cls):
        if dataclasses.is_dataclass(hints[each.name]):
            values |= defaults(hints[each.name], f"{prefix}{each.name}.")
        elif each.default is not dataclasses.MISSING:
            values[prefix + each.name] = _plain(each.default)
    return values


def as_flags(values: dict[str, Any]) -> list[str]:
    """Return settings, by dotted names, as command-line flags; leave out empty lists."""
    return [f"{shlex.quote(f'--{name}')} {_words(value)}" for name, value in values.items() if value != []]


def _words(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_words, value))
    return str(value).lower() if isinstance(value, bool) or value is None else shlex.quote(str(value))


def _plain(value: Any) -> Any:
    if value is None or value is Weights.RANDOM:
        return None
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Path) and (url := object_urls.url_of(value)):
        return url  # the path of its local copy is another one on other machines
    return value if isinstance(value, (int, float, str)) else str(value)
