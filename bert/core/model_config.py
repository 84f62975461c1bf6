"""The architecture of a model: its fields, what they exclude, and how it is read and written."""

import dataclasses
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from bert.core import checked_json, files, ranges
from bert.core.activations import ACTIVATIONS, POOLINGS
from bert.core.cli import MAY_CHANGE
from bert.core.errors import InputError, require
from bert.core.ranges import NameIn, Range

Size = Annotated[int, Range(1, 65_536)]
Dropout = Annotated[float, Range(0, 0.99)]
Scope = TypeVar("Scope")  # of a layer's attention, in whatever computes it

# For each part of a layer the kernels that can compute it, by the field that asks for one. A new one has both here.
KERNELS = {
    "attention": {"fused_attention": "extensions.kernels.attention:KERNEL"},
    "norm": {"fused_norm": "extensions.kernels.fused_norm:KERNEL"},
    "feed_forward": {"fused_gelu": "extensions.kernels.fused_gelu:KERNEL"},
}
KERNEL_SETTINGS = frozenset(name for of_part in KERNELS.values() for name in of_part)
# Fields of a model that each run chooses, whatever its weights: how it is trained and computed, and how new ones begin.
RUN_SETTINGS = frozenset(
    {
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "initializer_range",
        "position_initializer",
        "vocab_multiple",
        "recompute_activations",
        *KERNEL_SETTINGS,
    }
)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The architecture; most fields have the names of `bert_config.json` (github.com/google-research/bert)."""

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
        require(width % heads == 0, f"model.hidden_size {width} is not a multiple of model.num_attention_heads {heads}")
        require(
            self.norm_placement == "pre" or not self.embedding_norm,
            "model.embedding_norm needs model.norm_placement pre; with post the embeddings are always normalised",
        )
        require(
            self.norm == "layer" or (self.norm_placement == "pre" and not self.biases),
            "model.norm rms needs model.norm_placement pre and model.biases false",
        )
        asked = {part: self.kernel_of(part) for part in KERNELS}
        require(
            not asked["norm"] or self.norm_placement == "post",
            f"model.{asked['norm']} needs model.norm_placement post",
        )
        require(
            not asked["feed_forward"] or (self.hidden_act == "gelu" and not self.gated),
            f"model.{asked['feed_forward']} needs model.hidden_act gelu and model.gated false",
        )
        if self.positions == "rotary":
            require(
                width // heads % 2 == 0, f"model.positions rotary needs an even width of heads, not {width // heads}"
            )
            require(self.position_initializer == "normal", "model.position_initializer needs model.positions learned")
        require(
            not self.causal or (self.positions == "learned" and not self.local_window),
            "a causal model needs model.positions learned and model.local_window 0",
        )
        require(
            not self.causal or self.masked_lm_head == "tied",
            "a causal model has no head for masked words; leave model.masked_lm_head out",
        )
        published = self.norm_placement == "post" and not self.causal and self.position_initializer == "normal"
        require(
            published or self.embedding_width == width,
            f"model.embedding_size {self.embedding_size} needs model.norm_placement post, model.position_initializer "
            "normal, and a model that is not causal",
        )

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings."""
        return self.embedding_size or self.hidden_size

    def kernel_of(self, part: str) -> str | None:
        """Return the field that asks for a kernel for this part; None if none does. Raise UsageError if two do."""
        asked = [name for name in KERNELS[part] if getattr(self, name)]
        require(len(asked) < 2, f"model.{' and model.'.join(asked)} exclude each other; give one of them")
        return asked[0] if asked else None

    def of_layers(self, scope: Callable[[bool, float | None], Scope]) -> list[Scope]:
        """Return scope(whether the attention is local, rotary base or None) for each layer."""
        local = [self.local_window > 0 and layer % self.global_every != 0 for layer in range(self.num_hidden_layers)]
        bases = {False: self.rotary_base, True: self.local_rotary_base}
        made = {one: scope(one, bases[one] if self.positions == "rotary" else None) for one in set(local)}
        return [made[one] for one in local]

    def refuse_causal(self, run: Path, why: str) -> None:
        """Raise InputError if the model is causal. why: end of the message, such as that a command takes none."""
        if self.causal:
            raise InputError(f"{run}: a causal model{why}")

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
        """Do the same as `load` with the value that `read` returns. where: its place, for errors."""
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
        """Return the architecture of the trained model in the folder `run`, as `with_architecture` does.

        layers: the layers to take from it; (): all. Raise UsageError also if it lacks one of them.
        """
        trained = ModelConfig.load(run / "bert_config.json")
        if layers:
            require(
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
        """Return the architecture of a trained model, but with this configuration's values of the fields `own`.

        where: name of the trained model in messages. flagged: fields that the command gives. Raise UsageError if one of
        them contradicts the weights.
        """
        for name in sorted({*flagged} - RUN_SETTINGS):
            ours, theirs = getattr(self, name), getattr(trained, name)
            require(
                ours == theirs,
                f"--model.{name} {ours} contradicts the weights of {where}, whose model.{name} is {theirs}; leave it "
                "out, or give other weights",
            )
        if trained.positions != "learned" or trained.embedding_width != trained.hidden_size:
            own = {*own} - {"position_initializer"}  # which such a model excludes
        return dataclasses.replace(trained, **{name: getattr(self, name) for name in own})
