"""Replaced-token detection: a generator fills masked words, and the model finds those that it got wrong."""
