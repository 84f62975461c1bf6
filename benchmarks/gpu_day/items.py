"""The list: every item is a command over the benchmarks and the trainer, the most important first."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import invented
from benchmarks.contender import ROOT

MINUTE = 60.0
MICRO_BATCHES = 4  # of an update
UNDROPPED = ("--model.attention_probs_dropout_prob", "0")
FUSED = (*UNDROPPED, "--model.fused_attention", "true")
FLASH = ("--model.fused_attention", "true")  # with dropout: kernels of bert/model/flash.py
NARROW = (*FLASH, "--precision.residual", "bfloat16")
NORM = ("--model.fused_norm", "true")  # kernels of bert/model/fused_norm.py
GELU = ("--model.fused_gelu", "true")  # and of fused_gelu.py
NO_DROPOUT = (*UNDROPPED, "--model.hidden_dropout_prob", "0")
CUBLASLT = "--xla_gpu_enable_cublaslt=true"
FREE = ("--run.deterministic", "false")
# Deterministic kernels, of which XLA chooses the fastest by timing them; its own flag for bits chooses without timing.
TUNED = "--xla_gpu_exclude_nondeterministic_ops=true"


@dataclass(frozen=True, kw_only=True)
class Item:
    """One command, which is one process. Its files are in a folder of its name."""

    name: str
    what: str
    """for the page"""
    words: tuple[str, ...]
    """the module and its arguments"""
    least: float = 2.5 * MINUTE
    """seconds that must be left to start it; BERT-Large took 2 to 2.5 minutes on an H100"""
    limit: float = 6 * MINUTE
    """seconds after which it is ended; BERT-Large compiles for 1.5 minutes"""
    xla_flags: str = ""
    prepared: bool = False
    """needs no GPU, and runs in `prepare`"""
    like: str = ""
    """the item whose losses or weights it must have"""
    tolerance: float | None = None
    """largest relative difference of the losses; None: the bits of all weights are compared"""
    required: bool = True
    """a difference is an error, not only a result"""

    @property
    def is_run(self) -> bool:
        """Whether it is a run of bert.pretrain."""
        return self.words[0] == "bert.pretrain"


@dataclass(frozen=True)
class Phase:
    """The micro-batches of a phase of pretraining."""

    tokens: int
    sequences: int
    predictions: int


@dataclass(frozen=True)
class Day:
    """The list for one output folder; `rehearse`: with tiny models, on a CPU."""

    output: Path
    rehearse: bool = False

    @property
    def phases(self) -> tuple[Phase, Phase]:
        """Phases 1 and 2 of BERT-Large as they fit on 80 GB."""
        return (Phase(16, 3, 2), Phase(24, 2, 4)) if self.rehearse else (Phase(128, 192, 20), Phase(512, 48, 80))

    @property
    def updates(self) -> int:
        """Updates of a run, of which the first two are not timed."""
        return 4 if self.rehearse else 16

    def items(self) -> list[Item]:
        """Return all items in their order."""
        return [*self._first(), *self._steps(), *self._beside_transformers(), *self._bits(), *self._others()]

    def _first(self) -> Iterator[Item]:
        yield Item(name="doctor", what="the machine", words=("bert.doctor",), least=MINUTE / 2, limit=2 * MINUTE)
        for name, compute, xla, tolerance, own, more in (
            ("losses_cpu", "float32", False, None, (), ""),
            ("losses_float32", "float32", True, 1e-4, (), ""),
            ("losses_bfloat16", "bfloat16", True, 2e-3, (), ""),
            ("losses_flash", "bfloat16", True, 2e-3, FLASH, ", fused attention with dropout"),
            ("losses_kernels", "bfloat16", True, 2e-3, (*FLASH, *NORM, *GELU), ", the same, fused layer norm and GELU"),
        ):
            device = ("--run.device", "cpu") if tolerance is None else ()
            flags = ("--run.steps", "20", "--optimizer.warmup_steps", "0", "--optimizer.learning_rate", "1e-4", *device)
            yield self._small(
                name,
                f"losses of 20 updates, {compute}{more}",
                *own,
                *(*flags, "--precision.compute", compute, "--precision.xla", str(xla).lower()),
                prepared=tolerance is None,
                like="losses_cpu" if tolerance else "",
                tolerance=tolerance,
                limit=30 * MINUTE if tolerance is None else 5 * MINUTE,
            )

    def _steps(self) -> Iterator[Item]:
        yield self._step("phase2_flash", "phase 2, fused attention with dropout", 2, *FLASH)
        yield self._step("phase2_fused", "phase 2, cuDNN's attention, no dropout on attention", 2, *FUSED)
        for each in ("16", "8"):  # one micro-batch is a program of its own, two are a loop
            flags = ("--run.steps", "6", "--batch.per_device", each, "--precision.compute", "bfloat16", *FUSED)
            name, what = f"fused_small_{each}", f"a small model with cuDNN's attention, micro-batches of {each}"
            yield self._small(name, what, *flags, "--precision.xla", "true")
        yield self._step("phase1", "phase 1", 1)
        yield self._step("phase2", "phase 2", 2)
        yield self._step("phase1_flash", "phase 1, fused attention with dropout", 1, *FLASH)
        what = "phase 1, fused attention with dropout, 16-bit residual stream"
        yield self._step("phase1_residual", what, 1, *NARROW)
        yield self._step("phase1_norm", f"{what}, fused layer norm", 1, *NARROW, *NORM)
        yield self._step("phase1_gelu", f"{what}, fused layer norm and GELU", 1, *NARROW, *NORM, *GELU)
        yield self._step("phase1_residual_cublaslt", f"{what}, products by cuBLASLt", 1, *NARROW, xla_flags=CUBLASLT)
        yield self._step("phase1_fused", "phase 1, cuDNN's attention, no dropout on attention", 1, *FUSED)
        yield self._step("phase1_no_dropout", "phase 1, no dropout at all", 1, *NO_DROPOUT)
        excess = "--xla_allow_excess_precision=true"
        yield self._step("phase1_excess", "phase 1, XLA keeps float32 where it likes", 1, xla_flags=excess)
        yield self._step("phase1_tuned", "phase 1, kernels chosen by timing", 1, *FREE, xla_flags=TUNED)

    def _beside_transformers(self) -> Iterator[Item]:
        for phase, case, sequences in ((1, "pretrain_128", "64"), (2, "pretrain_512", "16")):
            peer = ("--peers", "gathered_compile", "--peer_python", _peer_python())
            yield self._bench(
                f"transformers_phase{phase}",
                f"a step of phase {phase} beside transformers",
                *("--work", case, "--sequences", "2" if self.rehearse else sequences, *peer),
            )

    def _bits(self) -> Iterator[Item]:
        for kind, deterministic in (("fixed", "true"), ("free", "false")):
            for turn in (1, 2):
                yield self._small(
                    f"bits_{kind}_{turn}",
                    f"weights after 6 updates, deterministic {deterministic}, run {turn}",
                    *("--run.steps", "6", "--run.deterministic", deterministic, "--batch.per_device", "8"),
                    *("--precision.compute", "bfloat16", "--precision.xla", "true"),
                    like=f"bits_{kind}_1" if turn == 2 else "",
                    required=kind == "fixed",
                )

    def _others(self) -> Iterator[Item]:
        yield self._bench("finetune", "fine-tuning on questions", "--alone", "--work", "finetune_384")
        yield self._bench("answers", "answers", "--alone", "--work", "infer_1", "infer_8")
        yield self._step("phase1_float16", "phase 1, float16", 1, "--precision.compute", "float16")
        recomputed = ("--model.recompute_activations", "true")
        yield self._step("phase2_recomputed", "phase 2, activations computed again", 2, *recomputed)

    def _run(self, name: str, what: str, phase: int, recipe: str, *flags: str, **more: Any) -> Item:
        small = ("--smoke",) if self.rehearse else ()
        places = ("--data.train", str(self.data(phase)), "--run.directory", str(self.output / name / "run"))
        every = ("--run.log_every", "1", "--run.evaluate_every", "0")
        return self._item(
            name=name, what=what, words=("bert.pretrain", recipe, *small, *places, *every, *flags), **more
        )

    def _step(self, name: str, what: str, phase: int, *flags: str, **more: Any) -> Item:
        """Return a run of BERT-Large."""
        sequences = self.phases[phase - 1].sequences
        batch = ("--batch.per_device", str(sequences), "--batch.total", str(sequences * MICRO_BATCHES))
        run = ("--run.steps", str(self.updates), "--init.checkpoint", "none", *batch)
        precision = () if "--precision.compute" in flags else ("--precision.compute", "bfloat16")
        words = (*run, *precision, "--precision.xla", "true", *flags)
        return self._run(name, what, phase, f"bert_large_phase{phase}", *words, **more)

    def _small(self, name: str, what: str, *flags: str, **more: Any) -> Item:
        """Return a run of a small model on the samples of phase 1."""
        batch = () if "--batch.per_device" in flags else ("--batch.per_device", "16")
        words = ("--batch.total", "16", *batch, *flags)
        return self._run(name, what, 1, "bert_mini_phase1", *words, **({"least": MINUTE, "limit": 4 * MINUTE} | more))

    def _bench(self, name: str, what: str, *flags: str) -> Item:
        sizes = ("--device", "gpu", "--models", "large", "--seconds", "5")
        tiny = ("--device", "cpu", "--models", "tiny", "--seconds", "0.1", "--repeats", "1")
        settings = ("--compute", "bfloat16", "--output", str(self.output / name), *(tiny if self.rehearse else sizes))
        return self._item(name=name, what=what, words=("benchmarks.steps", *settings, *flags), limit=8 * MINUTE)

    def _item(self, **fields: Any) -> Item:
        least = fields.pop("least", Item.least)
        return Item(least=least / 20 if self.rehearse else least, **fields)

    def data(self, phase: int) -> Path:
        """Return the folder of the samples of a phase."""
        return self.output / "data" / f"phase{phase}"

    def write_data(self) -> None:
        """Write invented samples as data.tfrecords would, as many as the longest run reads; what is there is left."""
        for number, phase in enumerate(self.phases, 1):
            count = max(20 * 16, self.updates * MICRO_BATCHES * phase.sequences)
            invented.write(self.data(number), count, phase.tokens, phase.predictions)


def _peer_python() -> str:
    return os.environ.get("PEER_PYTHON") or str(ROOT / ".venv-parity/bin/python")
