"""Measurements: each a program that prints what it measured, on what, beside its peers in the same run."""
