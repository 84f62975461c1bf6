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
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from bert.core import checked_json, files, object_urls, ranges
from bert.core.activations import ACTIVATIONS, POOLINGS
from bert.core.cli import MAY_CHANGE, Stored
from bert.core.errors import InputError, UsageError
from bert.core.ranges import BatchSize, NameIn, Range, Seed, Share

Size = Annotated[int, Range(1, 65_536)]
Count = Annotated[int, Range(1, 10**9)]
CountOrNone = Annotated[int, Range(0, 10**9)]
Dropout = Annotated[float, Range(0, 0.99)]
Factor = Annotated[float, Range(0, 1e6)]
MAX_POOL = 2**26  # sequences that are sorted by length at once

Decay = Annotated[float, Range(0, 0.999999)]  # in float32, numbers closer to 1 are 1


DISTANCES = ("cosine", "hidden", "attention", "relations")  # losses that compare the layers of a model and a teacher

# Fields of a model that each run chooses, whatever its weights: how it is trained and computed, and how new ones begin.
RUN_SETTINGS = frozenset(
    {
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "initializer_range",
        "position_initializer",
        "vocab_multiple",
        "recompute_activations",
        "fused_attention",
        "fused_norm",
        "fused_gelu",
    }
)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise UsageError(message)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The architecture; most fields are those of `bert_config.json` (github.com/google-research/bert)."""

    vocab_size: Annotated[int, Range(0, 10_000_000)] = 0
    """rows of the word embeddings, at least one for each entry of the vocabulary; 0 takes its number from the data"""
    hidden_size: Size = 768
    """width D of the residual stream"""
    num_hidden_layers: Annotated[int, Range(1, 1000)] = 12
    """encoder layers"""
    num_attention_heads: Size = 12
    """attention heads N; must divide hidden_size"""
    intermediate_size: Annotated[int, Range(1, 1_048_576)] = 3072
    """width F of the feed-forward layer"""
    hidden_act: Annotated[str, NameIn(ACTIVATIONS)] = "gelu"
    """activation of the feed-forward layer and of the masked-LM transform; gelu_tanh is GPT-2's approximation"""
    pooler_act: Annotated[str, NameIn(POOLINGS)] = "tanh"
    """activation of the pooled output: tanh as published, relu as in DistilBERT, gelu as in ELECTRA"""
    pooling: Literal["cls", "mean"] = "cls"
    """what heads of texts read: the state of the first token, as published, or the mean of all tokens' (ModernBERT)"""
    head_transform: bool = False
    """heads of tasks, also those of tokens, read norm(act(x W)), with hidden_act, instead of a pooled output with
    pooler_act (ModernBERT)"""
    masked_lm_head: Literal["tied", "linear"] = "tied"
    """scores of the vocabulary: of norm(act(x W)) by the word embeddings, as published (tied), or of the states
    themselves by a table of their own (linear; NeoBERT)"""
    embedding_size: Annotated[int, Range(0, 65_536)] = 0
    """width of the embeddings, which a dense layer makes that of the residual stream, as in ELECTRA; 0: hidden_size"""
    norm: Literal["layer", "rms"] = "layer"
    """layer norm, or RMSNorm (Zhang and Sennrich 2019): x / sqrt(mean of x^2) * gamma"""
    layer_norm_epsilon: Annotated[float, Range(1e-30, 1)] = 1e-12
    """added to the variance in layer norms, or to the mean square in RMSNorm"""
    norm_placement: Literal["post", "pre"] = "post"
    """layer norm after each residual sum (post, as published) or before each sub-layer (pre, as in Megatron-LM)"""
    embedding_norm: bool = False
    """with norms before the sub-layers: one of the embeddings, in place of the first attention's (ModernBERT)"""
    biases: bool = True
    """whether dense layers and layer norms of the encoder and of the masked-LM transform have biases"""
    gated: bool = False
    """feed-forward layers act(x W) * (x V), as GeGLU is with gelu (Shazeer 2020), instead of act(x W)"""
    positions: Literal["learned", "rotary"] = "learned"
    """embeddings added to those of words (as published), or queries and keys that are rotated by angles which grow with
    the position (rotary; Su et al. 2021)"""
    rotary_base: Annotated[float, Range(1, 1e9)] = 10_000.0
    """base of the geometric series of angles per token"""
    local_window: Annotated[int, Range(0, 1_048_576)] = 0
    """local attention: tokens attend to at most this many before and after them; 0: to all, in all layers"""
    global_every: Annotated[int, Range(1, 1000)] = 3
    """with local attention: the first of so many layers attends to all tokens"""
    local_rotary_base: Annotated[float, Range(1, 1e9)] = 10_000.0
    """base of the angles in layers with local attention"""
    hidden_dropout_prob: Dropout = 0.1
    """dropout on embeddings and on each sub-layer's output"""
    attention_probs_dropout_prob: Dropout = 0.1
    """dropout on attention weights"""
    max_position_embeddings: Size = 512
    """longest sequence, in tokens"""
    type_vocab_size: Annotated[int, Range(0, 65_536)] = 2
    """number of segments; 0: no segment embeddings"""
    causal: bool = False
    """each token attends to itself and those before it, to predict the next one, as in GPT-2"""
    position_initializer: Literal["normal", "sinusoidal"] = "normal"
    """initial position embeddings: normal noise, as published, or sines, with which the heads of the first layer also
    start by attending to neighbouring tokens"""
    initializer_range: Annotated[float, Range(0, 10)] = 0.02
    """standard deviation of the truncated normal that initialises kernels and embeddings"""
    vocab_multiple: Size = 1
    """compute scores for a vocabulary padded to a multiple of this, which is faster on tensor cores; weights keep their
    size"""
    recompute_activations: bool = field(default=False, metadata=MAY_CHANGE)
    """keep only each layer's input for the backward pass and compute the rest again: less memory, more time"""
    fused_attention: bool = False
    """compute attention on an NVIDIA GPU without its weights in memory: by cuDNN where nothing is dropped on them, or
    else by kernels of this project, which have not run on a GPU yet; needs precision.xla and 16 bits"""
    fused_norm: bool = False
    """compute the residual sum, its dropout and layer norm on an NVIDIA GPU by one kernel of this project forwards and
    one backwards, which have not run on a GPU yet; needs norm_placement post, precision.xla and 16 bits"""
    fused_gelu: bool = False
    """compute GELU and its gradient on an NVIDIA GPU within the products before and behind it, by kernels of this
    project, which have not run on a GPU yet; needs hidden_act gelu, not gated, precision.xla and 16 bits"""

    def __post_init__(self) -> None:
        ranges.check(self, "model.")
        width, heads = self.hidden_size, self.num_attention_heads
        _require(
            width % heads == 0, f"model.hidden_size {width} is not a multiple of model.num_attention_heads {heads}"
        )
        _require(
            self.norm_placement == "pre" or not self.embedding_norm,
            "model.embedding_norm needs model.norm_placement pre; with post the embeddings are always normalised",
        )
        _require(
            self.norm == "layer" or (self.norm_placement == "pre" and not self.biases),
            "model.norm rms needs model.norm_placement pre and model.biases false",
        )
        _require(
            self.norm_placement == "post" or not self.fused_norm, "model.fused_norm needs model.norm_placement post"
        )
        _require(
            not self.fused_gelu or (self.hidden_act == "gelu" and not self.gated),
            "model.fused_gelu needs model.hidden_act gelu and model.gated false",
        )
        if self.positions == "rotary":
            _require(
                width // heads % 2 == 0, f"model.positions rotary needs an even width of heads, not {width // heads}"
            )
            _require(self.position_initializer == "normal", "model.position_initializer needs model.positions learned")
        _require(
            not self.causal or (self.positions == "learned" and not self.local_window),
            "a causal model needs model.positions learned and model.local_window 0",
        )
        _require(
            not self.causal or self.masked_lm_head == "tied",
            "a causal model has no head for masked words; leave model.masked_lm_head out",
        )
        published = self.norm_placement == "post" and not self.causal and self.position_initializer == "normal"
        _require(
            published or self.embedding_width == width,
            f"model.embedding_size {self.embedding_size} needs model.norm_placement post, model.position_initializer "
            "normal, and a model that is not causal",
        )

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings."""
        return self.embedding_size or self.hidden_size

    def is_local(self, layer: int) -> bool:
        """Return whether the attention of layer `layer`, from 0, is local."""
        return self.local_window > 0 and layer % self.global_every != 0

    def save(self, path: Path) -> None:
        """Write `bert_config.json`."""
        files.write_json(path, dataclasses.asdict(self))

    @classmethod
    def load(cls, path: Path) -> "ModelConfig":
        """Read `bert_config.json`; ignore unknown keys, which other programs add. Raise InputError if it is not one."""
        try:
            return cls.parse(lambda: files.read_json(path), path)
        except FileNotFoundError as error:
            raise InputError(f"{path}: no such file; give the folder of a trained model") from error

    @classmethod
    def parse(cls, read: Callable[[], Any], where: object) -> "ModelConfig":
        """Do the same with what `read` returns. where: its place, for errors."""
        try:
            config: ModelConfig = checked_json.take(cls, read())
            return config
        except InputError:
            raise
        except ValueError as error:
            raise InputError(f"{where}: not a BERT configuration ({error})") from error

    def of_weights(
        self,
        run: Path,
        flagged: Collection[str] = (),
        own: Collection[str] = RUN_SETTINGS,
        layers: tuple[int, ...] = (),
    ) -> "ModelConfig":
        """Return the architecture of a trained model, as `with_architecture` has it. run: its folder.

        layers: those that are taken of it; none: all. Raise UsageError also if it does not have one of them.
        """
        trained = ModelConfig.load(run / "bert_config.json")
        if layers:
            _require(
                max(layers) < trained.num_hidden_layers,
                f"--init.layers {max(layers)}: {run} has the layers 0 to {trained.num_hidden_layers - 1}; give these",
            )
            trained = dataclasses.replace(trained, num_hidden_layers=len(layers))
        return self.with_architecture(trained, str(run), flagged, own)

    def with_architecture(
        self,
        trained: "ModelConfig",
        where: str,
        flagged: Collection[str] = (),
        own: Collection[str] = RUN_SETTINGS,
    ) -> "ModelConfig":
        """Return the architecture of a trained model, with the fields `own` of this configuration.

        where: what the trained model is called in a message. flagged: fields that the command gives. Raise
        UsageError if one of them contradicts the weights.
        """
        for name in sorted({*flagged} - RUN_SETTINGS):
            ours, theirs = getattr(self, name), getattr(trained, name)
            _require(
                ours == theirs,
                f"--model.{name} {ours} contradicts the weights of {where}, whose model.{name} is {theirs}; leave it "
                "out, or give other weights",
            )
        if trained.positions != "learned" or trained.embedding_width != trained.hidden_size:
            own = {*own} - {"position_initializer"}  # which such a model excludes
        return dataclasses.replace(trained, **{name: getattr(self, name) for name in own})


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
        _require(
            not (self.pack and self.bucket_by_length),
            "batch.pack and batch.bucket_by_length both avoid padding; give one of them",
        )
        _require(
            self.total * self.bucket_by_length <= MAX_POOL,
            f"batch.bucket_by_length {self.bucket_by_length} x batch.total {self.total} is more than {MAX_POOL} "
            "sequences to sort; give fewer",
        )

    def divided(self, world_size: int) -> "BatchConfig":
        """Return the batch with `per_device` filled in if it is 0, and with a `total` that the ranks divide.

        Raise UsageError if they do not divide it and `fit` is exact, or if there is less than a sequence for each.
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
        """Return the batch with the smallest number of micro-batches, or one less, and a `total` close to this one."""
        largest = self.per_device or self.max_per_device
        most = math.ceil(self.total / (world_size * largest))
        fewest = most if self.fit == "above" else max(1, most - 1)  # these, of the largest size, may almost hold it
        sizes = {number: min(largest, self._size(self.total / (world_size * number))) for number in (fewest, most)}
        accumulation = min(sizes, key=lambda number: abs(sizes[number] * number * world_size - self.total))
        per_device = sizes[accumulation]
        _require(
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
        """Return what `divided` changed in the batch `requested`, as a line for the user; empty if not the total."""
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
        _require(self.total % number == 0, message)


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The optimizer and the learning-rate schedule."""

    name: Literal["adam", "adamw", "stableadamw", "lamb", "nvlamb"] = "adam"
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
        _require(
            self.minimum_rate <= self.learning_rate,
            f"optimizer.minimum_rate {self.minimum_rate:g} is more than optimizer.learning_rate {self.learning_rate:g}",
        )
        _require(
            self.warmup_start <= self.first_step,
            f"optimizer.warmup_start {self.warmup_start} is after optimizer.first_step {self.first_step}",
        )
        _require(
            self.decay_steps == 0 or self.decay_steps > self.warmup_start + self.warmup_steps,
            f"optimizer.decay_steps {self.decay_steps} is within optimizer.warmup_steps {self.warmup_steps} from "
            f"optimizer.warmup_start {self.warmup_start} on",
        )
        _require(
            self.schedule == "stable" or self.decay_start == 0,
            f"optimizer.decay_start has no effect with optimizer.schedule {self.schedule}; leave it out",
        )
        _require(
            self.decay_start == 0 or self.decay_start >= self.warmup_start + self.warmup_steps,
            f"optimizer.decay_start {self.decay_start} is within optimizer.warmup_steps {self.warmup_steps} from "
            f"optimizer.warmup_start {self.warmup_start} on",
        )
        _require(
            self.decay_start > 0 or self.schedule != "stable" or (self.minimum_rate, self.decay_steps) == (0, 0),
            "optimizer.minimum_rate and optimizer.decay_steps need optimizer.decay_start: without it the learning rate "
            "of optimizer.schedule stable does not fall",
        )
        _require(
            self.name != "stableadamw" or self.clip_norm == 1,
            f"optimizer.clip_norm {self.clip_norm:g} has no effect with optimizer.name stableadamw, which limits each "
            "step instead; leave it out",
        )
        _require(
            self.schedule != "cosine" or self.decay_power == 1,
            f"optimizer.decay_power {self.decay_power:g} has no effect with optimizer.schedule cosine; leave it out",
        )

    @property
    def bytes_kept(self) -> int:
        """Return the bytes that the optimizer keeps of each parameter: two moments and, if there is one, an average."""
        return 12 if self.ema else 8


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
        _require(
            self.residual == "float32" or self.compute in ("auto", "bfloat16"),
            f"precision.residual {self.residual} needs precision.compute bfloat16, and here it is {self.compute}; "
            "leave it out",
        )

    def resolved(self, gpu: bool, bfloat16: bool = True) -> "PrecisionConfig":
        """Return the precision with `auto` and `none` resolved for the device.

        gpu: whether the device is a GPU. bfloat16: whether it multiplies fast in bfloat16. Raises UsageError if the
        residual stream cannot have its type then.
        """
        compute = self.compute
        if compute == "auto":
            compute = ("bfloat16" if bfloat16 else "float16") if gpu else "float32"
        return dataclasses.replace(self, compute=compute, xla=gpu if self.xla is None else self.xla)


@dataclass(frozen=True, kw_only=True)
class ParallelConfig:
    """How several ranks divide the work of an update; the weights after it do not depend on this beyond rounding."""

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
        """Return the largest size of a bucket, for gradients of this many bytes in all; infinity for a single bucket.

        A tenth, since most of the gradients are to travel while the backward pass computes the others.
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
        _require(factor == 0 or factor > 1, f"run.spike_factor must be 0, or more than 1, not {factor}")
        if 0 < (target := self.target_accuracy) <= 1:
            raise UsageError(
                f"run.target_accuracy {target:g}: accuracies are in percent, from 0 to 100; give {100 * target:g}"
            )

    @property
    def path(self) -> Path:
        """Return the run directory, once the default is filled in."""
        assert self.directory is not None, "call `placed` first"
        return self.directory

    def placed(self, default: Path, steps: int) -> "RunConfig":
        """Return this with the default directory and number of steps filled in where the command gives none."""
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


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """What a model that is not causal learns from masked samples."""

    name: Literal["masked_words", "replaced_tokens"] = "masked_words"
    """masked_words as in BERT; replaced_tokens as in ELECTRA: a small generator learns masked words, and the model
    learns which tokens the generator replaced; it needs data without an objective on pairs"""
    generator_width: Annotated[float, Range(0, 1, above=True)] = 0.25
    """replaced_tokens: width of the generator, its heads and its feed-forward layers, as shares of the model's"""
    generator_layers: Annotated[float, Range(0, 1, above=True)] = 1.0
    """replaced_tokens: layers of the generator, as a share of the model's"""
    detection_weight: Annotated[float, Range(0, 1e6, above=True)] = 50.0
    """replaced_tokens: factor of the loss of the detection; that of masked words has 1"""

    def __post_init__(self) -> None:
        ranges.check(self, "objective.")
        if self.name == "masked_words":
            for each in dataclasses.fields(self)[1:]:
                _require(
                    getattr(self, each.name) == each.default,
                    f"objective.{each.name} has no effect without objective.name replaced_tokens; leave it out",
                )

    def generator(self, model: ModelConfig) -> ModelConfig | None:
        """Return the architecture of the generator beside a model; None if the objective has none.

        As in google-research/electra, it has the width of the model's heads as long as it is not narrower itself.
        """
        if self.name == "masked_words":
            return None
        width = max(1, round(model.hidden_size * self.generator_width))
        heads = max(1, width * model.num_attention_heads // model.hidden_size)
        _require(
            width % heads == 0,
            f"objective.generator_width {self.generator_width:g}: a generator of width {width} cannot have {heads} "
            "heads; give another share",
        )
        return dataclasses.replace(
            model,
            embedding_size=model.embedding_width,
            hidden_size=width,
            num_attention_heads=heads,
            num_hidden_layers=max(1, round(model.num_hidden_layers * self.generator_layers)),
            intermediate_size=max(1, round(model.intermediate_size * self.generator_width)),
        )


class Weights(enum.Enum):
    """Initial weights that are not those of a run; the value is how they are named on the command line."""

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
        _require(not (self.layers and random), "init.layers are those of --init.checkpoint RUN; give one")

    @property
    def source(self) -> Path | None:
        """Return the run directory that gives the initial weights, or None if they are random."""
        return self.checkpoint if isinstance(self.checkpoint, Path) else None


@dataclass(frozen=True, kw_only=True)
class DistillConfig:
    """Distillation: what a model learns of a trained one, of its outputs (Hinton et al. 2015) and of its layers."""

    teacher: Stored[Path | None] = None
    """run directory of a teacher, whose probabilities the model learns beside the labels; none: no distillation"""
    temperature: Annotated[float, Range(0, 1000, above=True)] = 2.0
    """logits of both are divided by it before the softmax; higher ones show more of what the teacher thinks unlikely"""
    weight: Share = 0.5
    """share w of the teacher in the loss (1 - w) L + w T^2 KL, where L is the usual loss and T the temperature"""
    outputs: Factor = 1.0
    """factor of that loss; 0, in pretraining: learn the teacher's layers alone, without labels and heads"""
    cosine: Factor = 0.0
    """factor of 1 - cosine of the last hidden states and the teacher's, as in DistilBERT; 0: without"""
    hidden: Factor = 0.0
    """factor of the mean square error of the hidden states of the embeddings and of each layer, projected if their
    widths differ, as in TinyBERT; 0: without"""
    attention: Factor = 0.0
    """factor of the mean square error of the attention scores of each layer before the softmax, as in TinyBERT; 0:
    without"""
    relations: Factor = 0.0
    """factor of the divergence of the last layer's relations between queries, keys and values, as in MiniLMv2; 0:
    without"""
    layers: tuple[Annotated[int, Range(0, 999)], ...] = ()
    """hidden, attention: the teacher's layer, from 0, for each layer of the model; default: evenly spread, with the
    last one for the last"""
    relation_layer: Annotated[int, Range(0, 999)] | None = None
    """relations: layer of the teacher, from 0; none: its last one"""
    relation_heads: Annotated[int, Range(0, 65_536)] = 0
    """relations: number of heads into which queries, keys and values of both are divided; 0: as many as the teacher's
    attention has"""

    def __post_init__(self) -> None:
        ranges.check(self, "distill.")
        _require(
            self.outputs > 0 or bool(self.distances),
            "distill.outputs 0 leaves nothing to learn; give --distill.relations, hidden, attention or cosine",
        )
        of_layers = self.layers and not (self.hidden or self.attention)
        _require(not of_layers, "distill.layers has no effect without distill.hidden or attention; leave it out")
        for name, given in (("layer", self.relation_layer is not None), ("heads", self.relation_heads > 0)):
            _require(
                not given or bool(self.relations),
                f"distill.relation_{name} has no effect without distill.relations; leave it out",
            )

    @property
    def distances(self) -> dict[str, float]:
        """Return the losses of the layers, by name, with their factors."""
        return {name: getattr(self, name) for name in DISTANCES if getattr(self, name)}

    @property
    def has_soft_labels(self) -> bool:
        """Return whether the teacher's outputs are learned, for which it needs the head of the model."""
        return self.outputs > 0 and self.weight > 0

    @property
    def needs_last_states(self) -> bool:
        """Return whether all hidden states of the last layer are compared."""
        return bool(self.cosine or self.hidden)

    def teacher_layers(self, student: ModelConfig, teacher: ModelConfig) -> tuple[int, ...]:
        """Return the teacher's layer, from 0, for each layer of the student."""
        step = teacher.num_hidden_layers // student.num_hidden_layers
        return self.layers or tuple(step * (number + 1) - 1 for number in range(student.num_hidden_layers))

    def relation(self, teacher: ModelConfig) -> tuple[int, int]:
        """Return the teacher's layer, from 0, whose relations are learned, and the number of relation heads."""
        last = teacher.num_hidden_layers - 1
        layer = last if self.relation_layer is None else self.relation_layer
        return layer, self.relation_heads or teacher.num_attention_heads

    def layers_used(self, student: ModelConfig, teacher: ModelConfig) -> int:
        """Return how many of the teacher's layers are computed."""
        if self.has_soft_labels or self.cosine:
            return teacher.num_hidden_layers
        of_layers = self.teacher_layers(student, teacher) if self.hidden or self.attention else ()
        of_relations = (self.relation(teacher)[0],) if self.relations else ()
        return 1 + max((*of_layers, *of_relations), default=-1)

    def projects(self, student: ModelConfig, teacher: ModelConfig) -> bool:
        """Return whether a projection of the student's hidden states is learned."""
        return self.hidden > 0 and student.hidden_size != teacher.hidden_size

    def check_fit(self, student: ModelConfig, teacher: ModelConfig) -> None:
        """Raise UsageError if a loss of the layers cannot be computed with these two models."""
        ours, theirs = student.num_hidden_layers, teacher.num_hidden_layers
        _require(not (self.distances and teacher.causal), "is a causal model, whose layers are not compared")
        if self.hidden or self.attention:
            mapped = self.teacher_layers(student, teacher)
            _require(
                bool(self.layers) or theirs % ours == 0,
                f"its {theirs} layers are no multiple of the model's {ours}; give --distill.layers",
            )
            _require(
                len(mapped) == ours, f"distill.layers has {len(mapped)} layers, the model {ours}; give one for each"
            )
            _require(max(mapped) < theirs, f"distill.layers {max(mapped)}: it has the layers 0 to {theirs - 1}")
        _require(
            not self.cosine or student.hidden_size == teacher.hidden_size,
            f"distill.cosine needs equal widths, but the model has {student.hidden_size} and the teacher "
            f"{teacher.hidden_size}; give distill.hidden, which projects",
        )
        heads = student.num_attention_heads, teacher.num_attention_heads
        _require(
            not self.attention or heads[0] == heads[1],
            f"distill.attention needs equal heads, but the model has {heads[0]} and the teacher {heads[1]}; give "
            "distill.relations",
        )
        _require(
            not (self.attention and (student.local_window or teacher.local_window)),
            "distill.attention needs layers that attend to all tokens; give distill.relations",
        )
        if self.relations:
            layer, count = self.relation(teacher)
            _require(layer < theirs, f"distill.relation_layer {layer}: it has the layers 0 to {theirs - 1}")
            for width in (student.hidden_size, teacher.hidden_size):
                _require(
                    width % count == 0,
                    f"{count} relation heads do not divide the width {width}; give --distill.relation_heads",
                )


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The sections of every training run; a task adds its own."""

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
    distill: DistillConfig = DistillConfig()
    """soft labels"""

    def __post_init__(self) -> None:
        first, end = self.optimizer.first_step, self.optimizer.decay_steps
        start, last = self.optimizer.decay_start, end or first + self.run.steps
        _require(
            start == 0 or self.run.steps == 0 or start < last,
            f"optimizer.decay_start {start} is not before the end of the decay, update {last}; give fewer, or more "
            "run.steps",
        )
        _require(
            self.init.step == 0 or self.init.checkpoint is not Weights.RANDOM,
            f"init.step {self.init.step} needs --init.checkpoint RUN, the run that this one goes on from",
        )
        _require(
            self.init.step == 0 or self.run.steps == 0 or self.init.step < self.run.steps,
            f"init.step {self.init.step} is not before run.steps {self.run.steps}, which counts all updates",
        )
        _require(
            self.init.step == 0 or self.budget.hours == 0,
            "with budget.hours the learning rate follows the clock, so another run cannot go on from init.step",
        )
        _require(
            self.init.step == 0 or self.batch.bucket_by_length == 0,
            "batch.bucket_by_length sorts samples by the length of the run, so another run cannot go on from init.step",
        )
        _require(
            end == 0 or first + self.run.steps <= end or self.optimizer.minimum_rate > 0,
            f"run.steps {self.run.steps} after optimizer.first_step {first} are more than optimizer.decay_steps {end}, "
            "after which the learning rate is 0; give --optimizer.decay_steps 0 to end the decay with the run",
        )

    @property
    def generator(self) -> ModelConfig | None:
        """Return the architecture of the generator that is trained beside the model; None if there is none."""
        return None


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(TrainConfig):
    """A pretraining run."""

    data: DataConfig = DataConfig()
    """samples"""
    objective: ObjectiveConfig = ObjectiveConfig()
    """what is learned"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective.name == "masked_words":
            return
        published = self.model.norm_placement == "post" and self.model.position_initializer == "normal"
        _require(
            published and not self.model.causal,
            "objective.name replaced_tokens needs model.norm_placement post, model.position_initializer normal, and a "
            "model that is not causal",
        )
        # The backward pass would compute the generator again, in another program: rounding could change a sample.
        _require(
            not (self.parallel.overlap and self.precision.xla),
            "parallel.overlap with precision.xla computes a generator twice; with objective.name replaced_tokens give "
            "one of them",
        )
        self.objective.generator(self.model)

    @property
    def generator(self) -> ModelConfig | None:
        """Return the architecture of the generator that is trained beside the model; None if there is none."""
        return self.objective.generator(self.model)


@dataclass(frozen=True, kw_only=True)
class StartConfig(InitConfig):
    """The initial weights of a fine-tuning; they must be named, because random ones are rarely intended."""

    checkpoint: Stored[Path | Weights | None] = None
    """run directory whose newest checkpoint gives the encoder; none: random weights"""


@dataclass(frozen=True, kw_only=True)
class EpochConfig:
    """The length of a run, relative to its data. What follows from it is in `run` and `optimizer`."""

    epochs: Annotated[float, Range(0, 1e6, above=True)] = field(default=2.0, metadata=MAY_CHANGE)
    """passes over the training samples, if run.steps is 0"""
    warmup: Annotated[float, Range(0, 1, below=True)] = field(default=0.1, metadata=MAY_CHANGE)
    """share of the updates over which the learning rate rises, if optimizer.warmup_steps is 0"""
    evaluations: Annotated[float, Range(0, 1e6)] = field(default=0.0, metadata=MAY_CHANGE)
    """evaluations on the development set in a pass over the training samples; 0: every run.evaluate_every updates"""

    def __post_init__(self) -> None:
        ranges.check(self, "length.")


@dataclass(frozen=True, kw_only=True)
class LoraConfig:
    """Low-rank updates (Hu et al. 2021): in the encoder they alone learn, and the heads."""

    rank: Annotated[int, Range(0, 4096)] = 0
    """LoRA: add a product of two matrices of this rank to each target's kernel; in the encoder only these learn, beside
    the heads; 0: no LoRA"""
    alpha: Annotated[float, Range(0, 1e6, above=True)] = 16.0
    """the product is multiplied by alpha / rank"""
    targets: tuple[Literal["query", "key", "value", "output", "inner", "gate", "outer"], ...] = ("query", "value")
    """dense layers of each encoder layer: four of the attention, and those of the feed-forward layer"""

    def __post_init__(self) -> None:
        ranges.check(self, "lora.")


@dataclass(frozen=True, kw_only=True)
class FineTuneConfig(TrainConfig):
    """A fine-tuning run; `model` is used only if no checkpoint gives the architecture."""

    length: EpochConfig = EpochConfig()
    """length of the run"""
    lora: LoraConfig = LoraConfig()
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
    """Return a configuration as dotted names and plain values, the form that `config.json` has."""
    values: dict[str, Any] = {}
    for each in dataclasses.fields(config):
        value = getattr(config, each.name)
        if dataclasses.is_dataclass(value):
            values |= flatten(value, f"{prefix}{each.name}.")
        else:
            values[prefix + each.name] = _plain(value)
    return values


def may_change(config: Any, prefix: str = "") -> set[str]:
    """Return the names, in the form of `flatten`, of the fields that may differ when a run goes on."""
    names: set[str] = set()
    for each in dataclasses.fields(config):
        value = getattr(config, each.name)
        if dataclasses.is_dataclass(value):
            names |= may_change(value, f"{prefix}{each.name}.")
        elif each.metadata == MAY_CHANGE:
            names.add(prefix + each.name)
    return names


def defaults(cls: type, prefix: str = "") -> dict[str, Any]:
    """Return the defaults of a configuration's fields, in the form of `flatten`.

    They stand for the fields that a `config.json` lacks because they did not exist when it was written.
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
    """Return settings, in the form of `flatten`, as they are written on the command line; an empty list is left out."""
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
