"""Checks before the first update: a run that would fail later fails before it costs anything."""

import dataclasses
import hashlib
import math
import os
import secrets
import sys
from pathlib import Path
from typing import Any

import tensorflow as tf

from bert.core import files, manifest, outputs, rows
from bert.core.config import (
    InitConfig,
    LoraConfig,
    ModelConfig,
    ParallelConfig,
    PrecisionConfig,
    RunConfig,
    TrainConfig,
    flatten,
)
from bert.core.errors import ResourceError, UsageError, UserError
from bert.core.manifest import Manifest
from bert.model import cost
from bert.model.kernels import asked_by
from bert.training.communicator import Communicator
from bert.training.division import State

LOW_RANK_PARAMETERS = "extensions.lora.preflight:parameters"  # how many low-rank updates have, in layers from one on
CHECKPOINTS = 2  # that must fit on the disk: one is written before an older one is removed
UNDIVIDED, NO_LORA = ParallelConfig(), LoraConfig()


def before_weights(
    config: TrainConfig, comm: Communicator, lora: LoraConfig = NO_LORA, teacher: ModelConfig | None = None
) -> None:
    """Check what must hold before the weights are made. Raise UsageError or ResourceError."""
    frozen(config.init, config.model)
    lora.check(config)
    parts(config.model, config.run, comm, config.further)
    updates = rows.load(LOW_RANK_PARAMETERS)(config.model, lora, config.init.frozen_layers) if lora.rank else 0
    in_encoder = updates if lora.rank or config.init.frozen_encoder else None
    beside, kept = cost.projection_parameters(config, teacher), config.optimizer.bytes_kept
    memory(config.model, config.parallel, comm, config.further, in_encoder, teacher, kept, beside)


def before_updates(config: TrainConfig, comm: Communicator, data: Path, tokens: int) -> str | None:
    """Check what must hold before the first update; return a warning or None. Raise UsageError.

    data: folder of the data. tokens: length of a sequence.
    """
    check_folders_differ(config.run.path, data)
    kernels(config.model, config.precision, tokens)
    return settings_without_effect(config.parallel, config.model, comm.replicas.size)


def check_folders_differ(run: Path, data: Path) -> None:
    """Raise UsageError if `run` is, or would be, in the folder `data`."""
    if run.resolve().is_relative_to(data.resolve()):
        raise UsageError(
            f"{run}: is in the folder of the data, and would be removed when they are made again; choose another"
        )


def settings_without_effect(parallel: ParallelConfig, model: ModelConfig, replicas: int) -> str | None:
    """Return a line about settings of `parallel` that have no effect on this many replicas; None if there are none."""
    settings = flatten(dataclasses.replace(parallel, tensor=1))
    changed = [f"parallel.{name}" for name, value in settings.items() if value != getattr(UNDIVIDED, name)]
    if replicas == 1 and changed:
        verb, where = "have" if len(changed) > 1 else "has", "one rank" if parallel.tensor == 1 else "one replica"
        return f"{', '.join(changed)} {verb} no effect on {where}; scripts/launch.sh starts several"
    gradients = 4 * cost.parameters(model)
    if parallel.overlap and gradients <= parallel.bucket_bytes(gradients):
        return (
            f"parallel.overlap hides nothing: all {gradients / 1e6:,.1f} MB of gradients are in one bucket, which is "
            "complete when the backward pass ends; give a smaller --parallel.bucket_megabytes"
        )
    return None


def memory(
    model: ModelConfig,
    parallel: ParallelConfig,
    comm: Communicator,
    further: ModelConfig | None = None,
    in_encoder: int | None = None,
    teacher: ModelConfig | None = None,
    kept: int = cost.MOMENTS,
    beside: int = 0,
) -> None:
    """Raise ResourceError if weights, gradients and moments alone need more than the device's memory.

    Otherwise the system would kill the process while it makes the weights. further: encoder that is trained beside the
    model. in_encoder, teacher, kept, beside: as in `cost.state_bytes`.
    """
    device = comm.device.memory if comm.device.is_gpu else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if device is None:
        return
    together = 1 if comm.device.is_gpu else comm.local_size  # ranks in one memory
    learned = further, in_encoder, teacher, kept, beside
    need = together * cost.state_bytes(model, comm.replicas.size, parallel, *learned)
    if need <= device:
        return
    sharded = dataclasses.replace(parallel, shard_optimizer=True)
    remedy = "choose a smaller model, or divide it over ranks with --parallel.tensor"
    if together * cost.state_bytes(model, comm.replicas.size, sharded, *learned) <= device:
        remedy = "give --parallel.shard_optimizer true, or choose a smaller model"
    and_teacher = f", and a teacher of {cost.teacher_parameters(teacher):,}," if teacher else ""
    raise ResourceError(
        f"weights, gradients and moments of {cost.parameters(model, further):,} parameters{and_teacher} need "
        f"{need / 2**30:,.1f} GiB; there are {device / 2**30:,.1f} GiB; {remedy}"
    )


def frozen(init: InitConfig, model: ModelConfig) -> None:
    """Raise UsageError if more layers are to be frozen than there are, or if frozen weights would be random."""
    if init.frozen_layers > model.num_hidden_layers:
        raise UsageError(
            f"init.frozen_layers {init.frozen_layers} is more than the {model.num_hidden_layers} layers of the model"
        )
    if init.frozen_layers and init.frozen_encoder:
        raise UsageError("init.frozen_encoder freezes all layers; leave out --init.frozen_layers")
    if (name := _what_freezes(init)) and init.source is None:
        raise UsageError(f"{name} needs --init.checkpoint RUN: random weights would never learn")


def _what_freezes(init: InitConfig) -> str:
    return "init.frozen_encoder" if init.frozen_encoder else "init.frozen_layers" if init.frozen_layers else ""


def parts(model: ModelConfig, run: RunConfig, comm: Communicator, further: ModelConfig | None = None) -> None:
    """Raise UsageError if the model cannot be divided among the ranks of a group.

    further: encoder that is trained beside the model. Warn on stderr, once, if the parts of one model are on several
    hosts: each layer then waits for the network.
    """
    count, common = comm.parts.count, 0
    for name, each in (("model.", model), ("the generator's ", further)):
        if each is None:
            continue
        heads, inner = each.num_attention_heads, each.intermediate_size
        common = math.gcd(common, heads, inner)
        if common % count:
            possible = ", ".join(str(number) for number in range(1, common + 1) if common % number == 0)
            widths = ", or another --objective.generator_width" if each is further else ""
            raise UsageError(
                f"--parallel.tensor {count} does not divide both {name}num_attention_heads {heads} and "
                f"{name}intermediate_size {inner}; give one of {possible}{widths}"
            )
    if model.vocab_size < count:
        raise UsageError(f"--parallel.tensor {count} is more than the {model.vocab_size} entries of the vocabulary")
    if count > 1 and comm.device.is_gpu and not run.deterministic:
        raise UsageError(
            "--parallel.tensor needs --run.deterministic true: what is not divided must stay equal on all parts"
        )
    if comm.local_size % count and comm.rank == 0:
        print(
            f"warning: {comm.local_size} ranks on this host are no multiple of --parallel.tensor {count}: the parts of "
            "a model are on several hosts, and every layer waits for the network",
            file=sys.stderr,
        )


def kernels(model: ModelConfig, precision: PrecisionConfig, tokens: int) -> None:
    """Raise UsageError if the model asks for a kernel that does not run here, or that gives wrong results.

    tokens: length of the run's sequences.
    """
    for kernel in asked_by(model):
        kernel.check(model, precision, tokens)


def same_on_all_ranks(settings: dict[str, Any], data: Manifest, state: State, run: Path, comm: Communicator) -> None:
    """Raise UsageError if this rank's settings, data, code or versions differ from rank 0's.

    The other ranks then raise UserError. Raise ResourceError if the disk is too small for the checkpoints. settings:
    the flattened configuration, without fields that may differ between ranks.
    """
    mine = {**settings, **outputs.versions(), "data": manifest.content_hash(data.path), "code": code()}
    theirs = comm.broadcast_object(mine)
    differing = sorted(key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key))
    num_differing = int(comm.all_reduce([tf.constant(float(bool(differing)))])[0])
    if differing:
        listed = ", ".join(f"{key} is {mine.get(key)}, on rank 0 {theirs.get(key)}" for key in differing)
        raise UsageError(f"rank {comm.rank}: {listed}; give all ranks the same command, code and data")
    if num_differing:
        raise UserError(
            f"rank {comm.rank}: {num_differing} of {comm.size} ranks differ from rank 0; see their messages"
        )
    need = CHECKPOINTS * sum(variable.dtype.size * variable.shape.num_elements() for variable in state.values())
    free = comm.broadcast_object(files.free_bytes(run))
    if free < need:
        raise ResourceError(
            f"{run}: {CHECKPOINTS} checkpoints need {need:,} bytes, {free:,} are free; make room or give another "
            "--run.directory"
        )


def code(root: Path = Path(__file__).parents[2]) -> str:
    """Return a hash of the Python files that a training run may use."""
    digest = hashlib.sha256()
    packages = ("bert", "squad", "tasks", "extensions")
    for path in sorted(path for package in packages for path in (root / package).rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\n{files.sha256(path)}\n".encode())
    return digest.hexdigest()[:12]


def shared(run: Path, comm: Communicator) -> None:
    """Raise UsageError on all ranks unless all of them see rank 0's files in the folder `run`.

    Ranks with pieces of the variables write them there.
    """
    probe = run / f".seen-{comm.broadcast_object(secrets.token_hex(8))}"
    try:
        if comm.rank == 0:
            probe.touch()
        comm.broadcast_object(None)  # the file is there
        missing = comm.size - int(comm.all_reduce([tf.constant(float(probe.exists()))])[0])
    finally:
        if comm.rank == 0:
            probe.unlink(missing_ok=True)
    if missing:
        raise UsageError(
            f"{run}: {missing} of {comm.size} ranks do not see the files that rank 0 writes there; with "
            "--parallel.shard_optimizer or --parallel.tensor each rank writes pieces of a checkpoint: give a "
            "--run.directory that all ranks share"
        )
