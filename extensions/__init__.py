"""What not every run needs: an objective, a family of weights, an engine, a store, each in a folder of its own.

A table of the trunk names each row of an extension as a string (bert/core/rows.py). No module of the trunk imports one.
"""
