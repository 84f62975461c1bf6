"""The settings of Horovod and NCCL that the launchers take as flags, and the environment that every rank gets."""

import os
import re
from collections import namedtuple
from collections.abc import Iterable
from pathlib import Path

SCRIPTS = Path(__file__).absolute().parents[1]  # not resolved: the other hosts have the folder under the name used here

SHOWN = re.compile("(OMP_NUM|TF_CPP|TF_NUM|HOROVOD|NCCL)_")  # by --dry-run
# Variables that mpirun passes to other hosts by name; the others keep that host's values. Variables of object stores
# are passed if they are no secrets, such as a region.
PASSED_ON = re.compile("(BERT|HOROVOD|NCCL|OMP|TF|XLA|AWS|AZURE|GOOGLE)_|(LD_LIBRARY_PATH|PATH|PYTHONPATH|VENV)$")
# Variables that horovodrun, mpirun and the ranks on this host get besides. horovodrun writes its whole environment on
# the command line of each rank, where every user of the machine can read it.
KEPT = re.compile(
    "(CUDA|NVIDIA|GLIBC|MALLOC|KMP|MKL|UCX|FI|LC|XDG|OMPI|OPAL|ORTE|PMI|PMIX|PRTE|SLURM|PBS|SGE|LSB)_"
    "|(HOME|USER|LOGNAME|SHELL|TERM|LANG|TZ|TMPDIR|LD_PRELOAD|PYTHON[A-Z]+|SSH_AUTH_SOCK|KRB5CCNAME|JOB_ID|PE_HOSTFILE)$"
)
NEVER = re.compile("BERT_CONTACT$|.*(TOKEN|SECRET|PASSW|CREDENTIAL|KEY|JWT)", re.IGNORECASE)

# Flag, variable, kind of value, help. Kinds: 1 is a switch; TEXT is set as it is; N is a whole number; MS a number; MIB
# a whole number of MiB, which is set in bytes. docs/launch.md says when to use which.
TABLE = """\
  --fusion-mb               HOROVOD_FUSION_THRESHOLD=MIB      gradients in one collective (128; 0: each alone)
  --cycle-ms                HOROVOD_CYCLE_TIME=MS             how long Horovod waits for more of them (1)
  --cache-capacity          HOROVOD_CACHE_CAPACITY=N          tensors whose negotiation is cached (1024; 0: none)
  --hierarchical-allreduce  HOROVOD_HIERARCHICAL_ALLREDUCE=1  reduce within each node, then between nodes
  --hierarchical-allgather  HOROVOD_HIERARCHICAL_ALLGATHER=1  the same for allgather
  --torus-allreduce         HOROVOD_TORUS_ALLREDUCE=1         hierarchical, with NCCL between nodes too
  --autotune                HOROVOD_AUTOTUNE=1                try values of the above while training
  --autotune-log            HOROVOD_AUTOTUNE_LOG=TEXT         file for the values tried
  --nccl-streams            HOROVOD_NUM_NCCL_STREAMS=N        collectives in flight on a GPU (1)
  --gloo-timeout            HOROVOD_GLOO_TIMEOUT_SECONDS=N    seconds that Gloo waits for ranks (30; 4 for each of many)
  --start-timeout           HOROVOD_START_TIMEOUT=N           seconds that horovodrun waits for all hosts (30)
  --horovod-log             HOROVOD_LOG_LEVEL=TEXT            trace, debug, info, warning, error or fatal
  --nccl-debug              NCCL_DEBUG=TEXT                   VERSION, WARN, INFO or TRACE
  --nccl-ifname             NCCL_SOCKET_IFNAME=TEXT           network interfaces, as eth0 or ^docker0,lo
  --nccl-ib-hca             NCCL_IB_HCA=TEXT                  InfiniBand adapters, as mlx5_0,mlx5_1
  --nccl-ib-disable         NCCL_IB_DISABLE=1                 TCP even where there is InfiniBand
  --nccl-p2p-disable        NCCL_P2P_DISABLE=1                no direct copies between GPUs
  --nccl-gdr-level          NCCL_NET_GDR_LEVEL=TEXT           LOC, PIX, PXB, PHB or SYS: distance for GPUDirect RDMA
  --nccl-algo               NCCL_ALGO=TEXT                    Ring, Tree, CollnetChain, NVLS ...
  --nccl-proto              NCCL_PROTO=TEXT                   LL, LL128, Simple
  --nccl-min-channels       NCCL_MIN_NCHANNELS=N              minimum number of parallel channels
  --nccl-max-channels       NCCL_MAX_NCHANNELS=N              maximum number of parallel channels
"""

Setting = namedtuple("Setting", "variable kind")
SETTINGS = {flag: Setting(*rest.split("=")) for flag, rest, *_ in map(str.split, TABLE.splitlines())}


def set_variable(flag: str, value: str) -> None:
    """Set the variable of a flag. Raise ValueError with the reason if the value does not fit its kind."""
    variable, kind = SETTINGS[flag]
    if kind == "MS" and not re.fullmatch(r"[0-9]+(\.[0-9]+)?", value):
        raise ValueError(f"{flag} needs a number, not '{value}'")
    if kind in ("N", "MIB") and not re.fullmatch("[0-9]{1,9}", value):
        raise ValueError(f"{flag} needs a whole number, not '{value}'")
    os.environ[variable] = str(int(value) << 20) if kind == "MIB" else value


def venv() -> Path:
    """Return the folder of the virtual environment."""
    return Path(os.environ.get("VENV") or SCRIPTS.parent / ".venv").absolute()


def use_venv() -> None:
    """Put the virtual environment in front of PATH, except for containers, which have their own."""
    binaries = str(venv() / "bin")
    path = os.environ.get("PATH", os.defpath)
    usable = not os.environ.get("CONTAINER") and os.access(f"{binaries}/python", os.X_OK)
    if usable and path.split(":")[0] != binaries:
        os.environ["PATH"] = f"{binaries}:{path}"


def prepare_environment() -> None:
    """Use the virtual environment, and set TensorFlow's defaults."""
    use_venv()
    set_defaults(TF_CPP_MIN_LOG_LEVEL="2", GLIBC_TUNABLES="glibc.malloc.hugetlb=1")  # docs/decisions/0013


def set_defaults(**variables: str) -> None:
    """Set each of the variables that is empty or not set."""
    for name, value in variables.items():
        os.environ[name] = os.environ.get(name) or value


def passed_on() -> set[str]:
    """Return the names of the variables that ranks on other hosts get too."""
    return {name for name in os.environ if PASSED_ON.match(name) and not NEVER.match(name)}


def without_secrets(extra: Iterable[str]) -> dict[str, str]:
    """Return the environment of the command that starts the ranks: what is known to be needed, and `extra`."""
    kept = {name for name in os.environ if KEPT.match(name) and not NEVER.match(name)}
    return {name: os.environ[name] for name in sorted({*passed_on(), *kept, *extra})}


def limit_threads(cores: int) -> None:
    """Have the process use that many threads, unless the environment says otherwise."""
    set_defaults(OMP_NUM_THREADS=str(cores))
    threads = os.environ["OMP_NUM_THREADS"]
    set_defaults(TF_NUM_INTRAOP_THREADS=threads, TF_NUM_INTEROP_THREADS=threads)


def cores_per_rank(ranks: int) -> int:
    """Return the share of one of `ranks` ranks in the cores that this process may use, at least 1."""
    return max(1, len(os.sched_getaffinity(0)) // ranks)


def first_set(*names: str, default: str) -> str:
    """Return the value of the first of the variables that is set: launchers name a rank's place differently."""
    return next((os.environ[name] for name in names if os.environ.get(name)), default)


def tasks_per_node(text: str) -> list[int]:
    """Return the tasks of each node from what SLURM writes, such as 8(x3),4 for three nodes of 8 and one of 4."""
    parts = re.findall(r"([0-9]+)(?:\(x([0-9]+)\))?", text)
    return [int(tasks) for tasks, nodes in parts for _ in range(int(nodes or 1))]
