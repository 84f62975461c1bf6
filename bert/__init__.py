"""The model and its training: everything else stands on this package, and it stands on none of ours."""

__version__ = "0.1.0"
