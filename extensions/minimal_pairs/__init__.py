"""Minimal pairs: how often a language model prefers the grammatical one of two sentences that differ in one thing."""
