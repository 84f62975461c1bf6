"""Checks of finished folders and their pictures."""
