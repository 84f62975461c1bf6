"""Runs that are compared by what they learn: variants of a recipe, with several seeds, scored while they train."""
