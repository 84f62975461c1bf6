"""The model and its training: everything else stands on this package, and it stands on none of ours."""

from bert.core import limits

__version__ = "1.0.0"

limits.guard()  # the only effect of an import: no later place is before the import of TensorFlow
