"""GPUs and clusters of them: arithmetic, memory, links, power, from the makers' data sheets (`gpus.csv`).

Rates of matrix products are those with float32 accumulation, which training needs, and of dense matrices. Data sheets
often show twice that: of sparse matrices, or, of GeForce, with float16 accumulation, because these cards accumulate in
float32 at half the rate. The usual machine of a GeForce card is a workstation with one card and Ethernet of 1 Gb/s.
"""

import csv
import difflib
import functools
from dataclasses import dataclass
from pathlib import Path

from bert.core.errors import UsageError

GPUS = Path(__file__).with_name("gpus.csv")
# Problems of GPUs whose figures are known, as of November 2026.
REMARKS = {
    "rtx-5090": "does not run under TensorFlow's package of pip, by public reports (compute capability 12.0 is newer "
    "than its CUDA 12.5; github.com/tensorflow/tensorflow/issues/99592); NVIDIA's container is reported to work"
}
OVERHEAD = 1.6  # power of a node per power of its GPUs: 3.5, 6.5 and 10.2 kW of DGX-1, A100, H100 are 1.46, 2.0, 1.8


@dataclass(frozen=True)
class Gpu:
    """A GPU: peaks in FLOP/s, memory in bytes, bandwidths in bytes/s (of its link in one direction), power in watts."""

    name: str
    float32: float
    tf32: float  # the same as float32 if the GPU has no tf32
    half: float
    memory: float
    bandwidth: float
    link: float
    watts: float
    relative: float  # measured rate in 16 bits, relative to an a100-sxm-80; 0: not measured
    per_node: int
    network: float  # of a usual node, bytes/s in one direction

    def peak(self, precision: str) -> float:
        """Return the peak for products in `precision`, in FLOP/s."""
        return {"float32": self.float32, "tf32": self.tf32}.get(precision, self.half)

    @property
    def has_bfloat16(self) -> bool:
        """Return whether it multiplies fast in bfloat16; GPUs before Ampere do not."""
        return not self.name.startswith(("v100", "t4"))


@dataclass(frozen=True)
class Cluster:
    """Equal nodes with equal GPUs. `network`: bytes/s of a node in one direction."""

    gpu: Gpu
    nodes: int
    per_node: int
    network: float

    @property
    def ranks(self) -> int:
        return self.nodes * self.per_node

    @property
    def watts(self) -> float:
        """Return the power under load with processors, fans and network cards; an estimate."""
        return self.ranks * self.gpu.watts * OVERHEAD


@functools.cache
def gpus() -> dict[str, Gpu]:
    """Return the known GPUs by name."""
    with GPUS.open(encoding="ascii", newline="") as stream:
        return {row["name"]: _gpu(row) for row in csv.DictReader(stream)}


def _gpu(row: dict[str, str]) -> Gpu:
    return Gpu(
        name=row["name"],
        float32=float(row["float32_tflops"]) * 1e12,
        tf32=float(row["tf32_tflops"] or row["float32_tflops"]) * 1e12,
        half=float(row["half_tflops"]) * 1e12,
        memory=float(row["memory_gb"]) * 2**30,
        bandwidth=float(row["memory_gbs"]) * 1e9,
        link=float(row["link_gbs"]) * 1e9,
        watts=float(row["watts"]),
        relative=float(row["relative"] or 0),
        per_node=int(row["per_node"]),
        network=float(row["network_gbps"]) * 1e9 / 8,
    )


def gpu(name: str) -> Gpu:
    """Return the GPU of that name. Raise UsageError if it is not known."""
    listed = gpus()
    if name not in listed:
        near = difflib.get_close_matches(name, listed, n=3, cutoff=0.4) or list(listed)
        raise UsageError(f"--gpu {name}: not known; did you mean {' or '.join(near)}?")
    return listed[name]


def cluster(name: str, nodes: int, per_node: int = 0, gigabits: float = 0.0) -> Cluster:
    """Return a cluster. per_node: GPUs of a node. gigabits: Gb/s of a node's network. 0: as in a usual node."""
    model = gpu(name)
    return Cluster(model, nodes, per_node or model.per_node, gigabits * 1e9 / 8 or model.network)
