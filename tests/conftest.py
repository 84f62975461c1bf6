"""What every test may use: a quiet TensorFlow on its share of the cores, real data if there, commands as processes."""

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

ROOT = Path(__file__).resolve().parent.parent
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
LONGEST = {"test_tutorial.py", "test_soak.py"}  # begun first: at the end the other worker would wait for them
THREADS = str(max(1, len(os.sched_getaffinity(0)) // WORKERS))

# Before anything imports TensorFlow, which reads them once; commands that tests start inherit them.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", THREADS)
os.environ.setdefault("TF_NUM_INTEROP_THREADS", THREADS)
os.environ.setdefault("OMP_NUM_THREADS", THREADS)
# By default Horovod's thread looks for work a thousand times a second, or all the time: ranks share the cores here.
os.environ.setdefault("HOROVOD_CYCLE_TIME", "5")
# XLA compiles in three quarters of the time if LLVM optimizes nothing. `XLA_FLAGS= pytest ...` has it optimize.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")
# Each program of XLA is compiled once by all processes of a session. Its files are named without regard to XLA_FLAGS.
if "TF_XLA_FLAGS" not in os.environ:
    PROGRAMS = tempfile.mkdtemp(prefix="bert-programs-")
    os.environ["TF_XLA_FLAGS"] = f"--tf_xla_persistent_cache_directory={PROGRAMS}"
    atexit.register(shutil.rmtree, PROGRAMS, ignore_errors=True)

# Where a shell starts the tests under nohup or in the background, these are ignored, and would be in the commands that
# tests start; where a program starts them that blocks signals, those stay blocked.
signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)

# A busy machine is no finding. The examples are the same in every run, unless new ones are asked for
# (tests/properties/fuzz.py): a test fails for a change, and not by chance.
hypothesis.settings.register_profile("house", deadline=None, derandomize="BERT_FUZZ_EXAMPLES" not in os.environ)
hypothesis.settings.load_profile("house")
# Hypothesis also draws constants that are in the modules which happen to be imported. The examples of one test would
# depend on the tests before it, and CI would fail by chance.
assert callable(providers._get_local_constants)
providers._get_local_constants = lambda: providers._local_constants  # none

Finished = subprocess.CompletedProcess[str]
RunModule = Callable[..., Finished]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest tests."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """Set signals back after each test: a run that was asked to stop leaves them ignored, as its process would end."""
    handlers = {kind: signal.getsignal(kind) for kind in STOP_SIGNALS}
    yield
    for kind, handler in handlers.items():
        signal.signal(kind, handler)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the checkout; tests that need it are skipped where it is not."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"needs real data in {folder}, which is not there")
    return folder


@pytest.fixture
def run_module() -> RunModule:
    """`run_module("data.books", "--source", folder)` runs the command; the result has returncode, stdout and stderr."""

    def run(module: str, *arguments: object, timeout: float = 120, **environment: str) -> Finished:
        return subprocess.run(
            [sys.executable, "-m", module, *map(str, arguments)],
            cwd=ROOT,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run
