"""The model and its training: everything else stands on this package, and it stands on none of ours.

From Python, `bert.load` opens a trained model; `bert.recipe` and `bert.train` train one (bert/api.py).
"""

import importlib
from typing import TYPE_CHECKING, Any

from bert.core import cli, library_log, limits, stopping

if TYPE_CHECKING:
    from bert.api import load, recipe, train

__all__ = ["__version__", "load", "recipe", "train"]
__version__ = "2.0.0"

# The only effects of an import; what comes later would be too late.
cli.guard_imports()
limits.guard()
stopping.hold()


def __getattr__(name: str) -> Any:
    """Import the Python interface when it is first used: it needs TensorFlow, which many commands do not need."""
    if name in ("load", "recipe", "train"):
        with library_log.withheld():
            return getattr(importlib.import_module("bert.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
