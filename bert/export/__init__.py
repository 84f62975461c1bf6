"""Trained models in forms that serve without this code: `python -m bert.export --help`."""
