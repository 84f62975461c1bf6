"""Limits on a process (`ulimit`, batch systems): refuse one that is too small for TensorFlow, and explain the others.

Without enough address space, TensorFlow aborts or crashes, at its import or at any time after it. No handler can report
that, so the limit is checked when TensorFlow is about to be imported. Commands that do not need it are not affected.
"""

import importlib.abc
import importlib.util
import resource
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from bert.core import cli, library_log
from bert.core.errors import ResourceError

# A run of a tiny model on two cores reserves 2.8 GiB (most of it is never used); with 2.5 GiB it aborts.
ADDRESS_SPACE = 3 * 2**30  # bytes
OPEN_FILES = 64  # with ten, TensorFlow aborts because it cannot open the source of random numbers
LAYER = "horovod.tensorflow.sync_batch_norm"  # Horovod's one module that needs Keras at its import


class _Guard(importlib.abc.MetaPathFinder):
    """Before TensorFlow is imported, check the limits and open the log of a command.

    At its end, the import of TensorFlow imports Keras, if there is one; this takes a third of the time. In a command,
    hide Keras from it. Also load Horovod without its layer, which would import Keras. `tf.keras` imports Keras when it
    is used.
    """

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        if name == "keras.src" and library_log.path() and _is_being_imported("tensorflow"):
            raise ModuleNotFoundError("Keras is not imported with TensorFlow", name=name)
        if name == LAYER and library_log.path():
            return importlib.util.spec_from_loader(name, _WithoutLayer())
        if name != "tensorflow":
            return None
        space, files = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_NOFILE))
        if space != resource.RLIM_INFINITY and space < ADDRESS_SPACE:
            cli.fail(
                ResourceError(
                    f"the limit on address space is {space / 2**30:.2g} GiB; TensorFlow needs {ADDRESS_SPACE >> 30} "
                    "GiB at least, and more on many cores; raise it (ulimit -v), or limit the memory by a control group"
                )
            )
        if files != resource.RLIM_INFINITY and files < OPEN_FILES:
            cli.fail(
                ResourceError(f"the limit on open files is {files}; raise it to {OPEN_FILES} at least (ulimit -n)")
            )
        library_log.begin()
        return None


class _WithoutLayer(importlib.abc.Loader):
    """Loads the module of Horovod's layer without the layer."""

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["SyncBatchNormalization"] = None


def _is_being_imported(name: str) -> bool:
    return bool(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False))


def guard() -> None:
    """Install the check once, before all other finders."""
    if not any(isinstance(finder, _Guard) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Guard())
