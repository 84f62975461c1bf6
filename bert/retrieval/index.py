"""The index of texts for Python: extensions/search/index.py has it."""

from typing import Any

from bert.core.rows import Rows

PUBLIC: Rows[Any] = Rows({"Index": "extensions.search.index:Index", "Hit": "bert.api:Hit"})


def __getattr__(name: str) -> Any:
    """Return the object of this name in the extension."""
    if name in PUBLIC:
        return PUBLIC[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
