"""The device that this process computes on: chosen once, before the first tensor.

TensorFlow takes every GPU, and nearly all of its memory, when the first tensor is made; after that the choice cannot be
changed. So each command calls `choose` (or `hide_gpus`) before it reads data or builds a model.
"""

import functools
import os
from dataclasses import dataclass
from typing import Literal

import tensorflow as tf

from bert.errors import UsageError
from bert.hardware import nvidia

Kind = Literal["auto", "gpu", "cpu"]

# Set where the user has not set the same flag. With excess precision XLA keeps float32 where the model rounds to 16
# bits: more memory traffic, and other numbers than those of the plain path. cuBLASLt would gain more, but the compiler
# dies of some small models with it (docs/decisions/0019).
GPU_FLAGS = {"xla_allow_excess_precision": "false"}
DETERMINISTIC_FLAGS = {"xla_gpu_deterministic_ops": "true"}
BFLOAT16_SINCE = (8, 0)  # compute capability of the first GPUs (Ampere) with bfloat16 matrix units


@dataclass(frozen=True, kw_only=True)
class Device:
    """One device, as its driver describes it."""

    kind: Literal["GPU", "CPU"] = "CPU"
    name: str = ""
    number: int = 0
    """which of this machine's visible GPUs"""
    count: int = 0
    """visible GPUs of this machine"""
    compute_capability: tuple[int, int] | None = None
    """None if the driver does not say"""

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU."""
        return self.kind == "GPU"

    @property
    def has_bfloat16(self) -> bool:
        """Whether bfloat16 products are fast on it; older GPUs have float16 only."""
        return self.compute_capability is None or self.compute_capability >= BFLOAT16_SINCE

    @functools.cached_property
    def memory(self) -> int | None:
        """Bytes; None if the driver does not say. It takes a call of nvidia-smi, which only a rank that asks pays."""
        return nvidia.gpu_memory(self.name) if self.is_gpu else None

    def describe(self) -> str:
        """Return the device in words, for the line that a run prints at its start."""
        if not self.is_gpu:
            return f"CPU, {len(os.sched_getaffinity(0))} cores"
        facts = [f"GPU {self.number} of {self.count}", self.name or "unknown model"]
        facts += [f"{self.memory / 2**30:.0f} GiB"] if self.memory else []
        if self.compute_capability:
            facts.append("compute capability {}.{}".format(*self.compute_capability))
        return ", ".join(facts)


def choose(
    kind: Kind = "auto",
    *,
    flag: str = "--device",
    local_rank: int = 0,
    local_size: int = 1,
    deterministic: bool = False,
) -> Device:
    """Make the GPU of this rank the only one that TensorFlow sees, or none; return the chosen device.

    kind: auto takes a GPU where there is one. flag: the command's flag for it, for error messages. deterministic: on a
    GPU, the same program gives the same bits each time. Raises UsageError if a GPU is wanted and TensorFlow sees none,
    if the machine has a GPU that TensorFlow does not see, or if there are more ranks than GPUs.
    """
    gpus = [] if kind == "cpu" else tf.config.list_physical_devices("GPU")
    if not gpus:
        if kind != "cpu":
            _check_none_is_expected(kind, flag)
        hide_gpus()
        return Device()
    if len(gpus) < local_size and not (len(gpus) == 1 and os.environ.get("CUDA_VISIBLE_DEVICES")):
        raise UsageError(
            f"{local_size} ranks on this machine, but TensorFlow sees {len(gpus)} GPUs here; start one rank for each "
            f"GPU, or give {flag} cpu"
        )
    number = local_rank % len(gpus)  # a launcher may show each rank its own GPU alone, as number 0
    tf.config.set_visible_devices(gpus[number], "GPU")
    tf.config.experimental.set_memory_growth(gpus[number], True)
    _add_xla_flags(GPU_FLAGS | (DETERMINISTIC_FLAGS if deterministic else {}))
    if deterministic:
        tf.config.experimental.enable_op_determinism()
    details = tf.config.experimental.get_device_details(gpus[number])
    return Device(
        kind="GPU",
        name=details.get("device_name", ""),
        number=number,
        count=len(gpus),
        compute_capability=details.get("compute_capability"),
    )


def hide_gpus() -> None:
    """Keep this process off the GPUs, unless it uses one already: its work is for CPUs."""
    if tf.config.list_physical_devices("GPU"):
        try:
            tf.config.set_visible_devices([], "GPU")
        except RuntimeError:  # TensorFlow has begun, so the choice was made before
            return


def has_gpu() -> bool:
    """Whether graphs that are made now are for a GPU; what is fast there may be slow on a CPU."""
    return bool(tf.config.get_visible_devices("GPU"))


def hidden_by_user() -> bool:
    """Whether the environment hides all GPUs from CUDA."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")


def _check_none_is_expected(kind: Kind, flag: str) -> None:
    """Raise UsageError if the user asked for a GPU, or the machine has one that the user did not hide."""
    if kind == "auto" and hidden_by_user():
        return
    remedy = f"see python -m bert.doctor, run make setup DEVICE=gpu, or give {flag} cpu to compute on the CPU"
    if found := nvidia.gpus_in_machine():
        raise UsageError(f"this machine has {len(found)} GPUs ({found[0]}), but TensorFlow sees none; {remedy}")
    if kind == "gpu":
        raise UsageError(f"{flag} gpu: this machine has no GPU that TensorFlow sees; {remedy}")


def _add_xla_flags(flags: dict[str, str]) -> None:
    """Add XLA's flags to the environment, which XLA reads when it first compiles; the user's own win."""
    given = os.environ.get("XLA_FLAGS", "")
    added = [f"--{name}={value}" for name, value in flags.items() if f"--{name}" not in given]
    os.environ["XLA_FLAGS"] = " ".join([*([given] if given else []), *added])
