"""Adapters, ours, for other people's programs, which stay outside: each is run by the interpreter that has them."""
