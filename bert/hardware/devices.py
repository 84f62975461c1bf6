"""Choose the device that this process computes on.

TensorFlow takes all GPUs and nearly all of their memory when the first tensor is made; after that the choice cannot be
changed. So each command calls `choose` (or `hide_gpus`) before it reads data or builds a model.
"""

import functools
import os
from dataclasses import dataclass
from typing import Literal

import tensorflow as tf

from bert.core import paths
from bert.core.errors import UsageError
from bert.hardware import nvidia
from bert.hardware.choices import DeviceName

# XLA flags, unless the user sets them. With excess precision XLA keeps float32 where the model rounds to 16 bits: more
# memory traffic, and other results than without XLA. cuBLASLt would be faster, but the compiler crashes on some small
# models with it (docs/decisions/0015).
GPU_FLAGS = {"xla_allow_excess_precision": "false"}
DETERMINISTIC_FLAGS = {"xla_gpu_deterministic_ops": "true"}
BFLOAT16_SINCE = (8, 0)  # compute capability of the first GPUs (Ampere) with bfloat16 matrix units


@dataclass(frozen=True, kw_only=True)
class Device:
    """One device, as its driver describes it."""

    kind: Literal["GPU", "CPU"] = "CPU"
    name: str = ""
    number: int = 0
    """index among this machine's visible GPUs"""
    count: int = 0
    """number of visible GPUs of this machine"""
    compute_capability: tuple[int, int] | None = None
    """None if unknown"""

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU."""
        return self.kind == "GPU"

    @property
    def has_bfloat16(self) -> bool:
        """Whether it has bfloat16 matrix units; older GPUs have float16 only."""
        return self.compute_capability is None or self.compute_capability >= BFLOAT16_SINCE

    @functools.cached_property
    def memory(self) -> int | None:
        """Memory in bytes, of the slice if MIG divides the card; None for a CPU, or if unknown."""
        return nvidia.gpu_memory(self.number) if self.is_gpu else None

    def describe(self) -> str:
        """Return a description of the device, for the line that a run prints at its start."""
        if not self.is_gpu:
            return f"CPU, {len(os.sched_getaffinity(0))} cores"
        parts = [f"GPU {self.number} of {self.count}", self.name or "unknown model"]
        parts += [f"{self.memory / 2**30:.0f} GiB"] if self.memory else []
        if self.compute_capability:
            parts.append("compute capability {}.{}".format(*self.compute_capability))
        return ", ".join(parts)


def choose(
    kind: DeviceName = "auto",
    *,
    flag: str = "--device",
    local_rank: int = 0,
    local_size: int = 1,
    deterministic: bool = False,
) -> Device:
    """Make the GPU of this rank the only one that TensorFlow sees, or none; return the chosen device.

    kind: auto uses a GPU if there is one. flag: the command-line flag for `kind`, for error messages. deterministic:
    make results on a GPU bit-identical between runs. Raises UsageError if `kind` is gpu and TensorFlow sees none, if
    the machine has a GPU that TensorFlow does not see, or if there are more ranks than GPUs.
    """
    # The driver caches kernels that it has compiled, by default in HOME, which is lost with a container. It reads this
    # variable when it starts, that is when the devices are listed.
    os.environ.setdefault("CUDA_CACHE_PATH", str(paths.workdir() / "cuda_cache"))
    gpus = [] if kind == "cpu" else tf.config.list_physical_devices("GPU")
    if not gpus:
        if kind != "cpu":
            _check_none_is_expected(kind, flag)
        hide_gpus()
        return Device()
    if len(gpus) < local_size and not (len(gpus) == 1 and os.environ.get("CUDA_VISIBLE_DEVICES")):
        raise UsageError(
            f"{local_size} ranks on this machine, but TensorFlow sees {len(gpus)} GPUs; start one rank per "
            f"GPU, or use {flag} cpu"
        )
    number = local_rank % len(gpus)  # a launcher may show each rank only its own GPU, as number 0
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
    """Hide the GPUs from this process, unless it uses one already: its work is for the CPU."""
    if tf.config.list_physical_devices("GPU"):
        try:
            tf.config.set_visible_devices([], "GPU")
        except RuntimeError:  # TensorFlow is initialised: the choice was made before
            return


def has_gpu() -> bool:
    """Return whether new graphs will run on a GPU; what is fast there may be slow on a CPU."""
    return bool(tf.config.get_visible_devices("GPU"))


def hidden_by_user() -> bool:
    """Return whether CUDA_VISIBLE_DEVICES hides all GPUs."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")


def _check_none_is_expected(kind: DeviceName, flag: str) -> None:
    """Raise UsageError if a GPU was requested, or if the machine has one that the user did not hide."""
    if kind == "auto" and hidden_by_user():
        return
    remedy = f"see python -m bert.doctor, run make setup DEVICE=gpu, or use {flag} cpu to compute on the CPU"
    if gpus := nvidia.gpus_in_machine():
        raise UsageError(f"this machine has {len(gpus)} GPUs ({gpus[0]}), but TensorFlow sees none; {remedy}")
    if kind == "gpu":
        raise UsageError(f"{flag} gpu: TensorFlow sees no GPU on this machine; {remedy}")


def _add_xla_flags(flags: dict[str, str]) -> None:
    """Add flags to XLA_FLAGS, which XLA reads when it first compiles, unless the user has set the same ones."""
    present = os.environ.get("XLA_FLAGS", "")
    added = [f"--{name}={value}" for name, value in flags.items() if f"--{name}" not in present]
    os.environ["XLA_FLAGS"] = " ".join([*([present] if present else []), *added])
