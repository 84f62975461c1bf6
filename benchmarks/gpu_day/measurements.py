"""What is measured, the most worth first."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from bert.config import ModelConfig
from bert.recipes import SIZES

WORDS = 30_522  # entries of the published vocabulary
UPDATES = 20  # whose losses are compared between CPU and GPU
TOLERANCE = {"float32": 1e-4, "bfloat16": 2e-3}  # largest relative difference from the CPU's losses in float32
UNDROPPED = {"attention_probs_dropout_prob": 0.0}
FUSED = {"attention_probs_dropout_prob": 0.0, "fused_attention": True}
NO_DROPOUT = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
MINUTE = 60.0


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One process that measures one thing."""

    name: str
    what: str
    """for the page"""
    kind: str
    """a function of `measure`"""
    arguments: dict[str, Any] = field(default_factory=dict)
    """of that function"""
    least: float = 2 * MINUTE
    """seconds below which it is not begun"""
    limit: float = 6 * MINUTE
    """seconds after which it is ended"""
    environment: dict[str, str] = field(default_factory=dict)
    """beside that of the command"""
    prepared: bool = False
    """needs no GPU: taken while preparing"""


@dataclass(frozen=True)
class Scale:
    """The sizes of a real day, or of a try on a CPU."""

    model: ModelConfig
    """of the steps"""
    small: ModelConfig
    """of losses and bits that are compared"""
    phases: tuple[tuple[int, int, int], ...]
    """tokens, sequences and predictions of a micro-batch in phase 1 and 2"""
    windows: tuple[int, int]
    """tokens and sequences of fine-tuning"""
    losses: tuple[int, int, int]
    """tokens, sequences and predictions of the losses that are compared"""
    micro_batches: int
    """of an update"""
    seconds: float
    """of timed updates"""
    product: int
    """rows and columns of the matrices that are multiplied to see how fast products are"""
    patience: float = 1.0
    """what `least` is multiplied by"""


LARGE = replace(SIZES["large"], vocab_size=WORDS, vocab_multiple=128)
TRIED = replace(
    SIZES["tiny"], vocab_size=WORDS, hidden_size=32, num_attention_heads=2, intermediate_size=64, num_hidden_layers=1
)
FULL = Scale(
    LARGE,
    replace(SIZES["mini"], vocab_size=WORDS),
    phases=((128, 192, 20), (512, 48, 80)),
    windows=(384, 32),
    losses=(128, 16, 20),
    micro_batches=4,
    seconds=8.0,
    product=8192,
)
SMOKE = Scale(
    TRIED,
    TRIED,
    phases=((16, 3, 2), (24, 2, 4)),
    windows=(24, 2),
    losses=(16, 3, 2),
    micro_batches=2,
    seconds=0.2,
    product=256,
    patience=0.05,
)


def order(scale: Scale) -> list[Measurement]:
    """All of them. `least` and `limit` are guesses until a day has been run: compiling with autotuning is 1-3 min."""
    parts = [_first(), _phases(scale), _variants(scale), _peers(scale), _bits(), _questions(scale), _others(scale)]
    ordered = [replace(one, least=one.least * scale.patience) for part in parts for one in part]
    names = [one.name for one in ordered]
    assert len(set(names)) == len(names), "two measurements of one name"
    return ordered


def _first() -> Iterator[Measurement]:
    yield Measurement(
        name="devices", what="devices, one product, one update", kind="devices", least=MINUTE, limit=5 * MINUTE
    )
    for name, compute, device, xla in (
        ("losses_cpu", "float32", "cpu", False),
        ("losses_float32", "float32", "auto", True),
        ("losses_bfloat16", "bfloat16", "auto", True),
    ):
        yield Measurement(
            name=name,
            what=f"losses of {UPDATES} updates, {compute}",
            kind="losses",
            prepared=device == "cpu",
            arguments={"compute": compute, "device": device, "xla": xla},
            least=MINUTE,
            limit=(30 if device == "cpu" else 5) * MINUTE,
        )
    yield Measurement(
        name="pretrain",
        what="bert.pretrain --smoke, the command itself",
        kind="pretrain",
        least=MINUTE,
        limit=5 * MINUTE,
    )


def _step(name: str, what: str, phase: tuple[int, int, int], **more: Any) -> Measurement:
    """A pretraining step; `more` may hold model, precision, deterministic, and flags of XLA."""
    tokens, batch, predictions = phase
    flags = more.pop("flags", "")
    return Measurement(
        name=name,
        what=what,
        kind="step",
        environment={"XLA_FLAGS": flags} if flags else {},
        arguments={"work": "pretrain", "tokens": tokens, "batch": batch, "predictions": predictions, **more},
    )


def _phases(scale: Scale) -> Iterator[Measurement]:
    one, two = scale.phases
    yield _step("phase1", "phase 1", one)
    yield _step("phase2", "phase 2", two)
    yield _step("phase2_undropped", "phase 2, no dropout on attention", two, model=UNDROPPED)
    yield _step("phase2_fused", "the same, cuDNN's attention", two, model=FUSED)
    yield _step("phase1_undropped", "phase 1, no dropout on attention", one, model=UNDROPPED)
    yield _step("phase1_fused", "the same, cuDNN's attention", one, model=FUSED)


def _variants(scale: Scale) -> Iterator[Measurement]:
    one, two = scale.phases
    yield _step("phase1_no_dropout", "phase 1, no dropout at all", one, model=NO_DROPOUT)
    yield _step("phase2_no_dropout", "phase 2, no dropout at all", two, model=NO_DROPOUT)
    yield _step(
        "phase1_excess", "phase 1, XLA keeps float32 where it likes", one, flags="--xla_allow_excess_precision=true"
    )
    yield _step("phase1_cublaslt", "phase 1, products by cuBLASLt", one, flags="--xla_gpu_enable_cublaslt=true")
    yield _step("phase1_no_triton", "phase 1, no products by Triton", one, flags="--xla_gpu_enable_triton_gemm=false")
    yield _step("phase1_deterministic", "phase 1, deterministic kernels", one, deterministic=True)


def _peers(scale: Scale) -> Iterator[Measurement]:
    for number, (tokens, batch, predictions) in enumerate(scale.phases, 1):
        yield Measurement(
            name=f"transformers_phase{number}",
            what=f"phase {number}, transformers through torch.compile",
            kind="peer",
            arguments={"tokens": tokens, "batch": batch, "predictions": predictions},
        )


def _bits() -> Iterator[Measurement]:
    for deterministic in (True, False):
        for turn in (1, 2):
            yield Measurement(
                name=f"bits_{'fixed' if deterministic else 'free'}_{turn}",
                kind="bits",
                least=MINUTE,
                limit=4 * MINUTE,
                what=f"weights after 6 updates, deterministic {str(deterministic).lower()}, run {turn}",
                arguments={"deterministic": deterministic},
            )


def _questions(scale: Scale) -> Iterator[Measurement]:
    tokens, batch = scale.windows
    yield Measurement(
        name="finetune",
        what="fine-tuning on questions",
        kind="step",
        arguments={"work": "finetune", "tokens": tokens, "batch": batch, "predictions": 0},
    )
    for rows in (1, 8, 32):
        yield Measurement(
            name=f"answers_{rows}",
            what=f"answers, {rows} at once",
            kind="answers",
            least=MINUTE,
            limit=4 * MINUTE,
            arguments={"tokens": tokens, "batch": rows},
        )


def _others(scale: Scale) -> Iterator[Measurement]:
    one, two = scale.phases
    yield _step("phase1_float16", "phase 1, float16", one, precision={"compute": "float16"})
    yield _step("phase1_tf32", "phase 1, tf32", (one[0], -(-one[1] // 2), one[2]), precision={"compute": "tf32"})
    yield _step("phase2_recomputed", "phase 2, activations computed again", two, model={"recompute_activations": True})
    yield _step(
        "phase1_float32", "phase 1, float32", (one[0], -(-one[1] // 2), one[2]), precision={"compute": "float32"}
    )
