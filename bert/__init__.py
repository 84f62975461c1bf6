"""The model and its training: everything else stands on this package, and it stands on none of ours."""

from bert.core import cli, limits, stopping

__version__ = "1.0.0"

# The only effects of an import; what comes later would be too late.
cli.guard_imports()
limits.guard()
stopping.hold()
