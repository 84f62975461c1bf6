"""Tables whose rows are named as strings, "package.module:name": a row is imported when it is asked for.

So a command imports what it uses, and the trunk names what is in `extensions` without importing it.
"""

import importlib
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def load(path: str) -> Any:
    """Return the object that "package.module:name" names."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


class Rows(Mapping[str, T], Generic[T]):
    """A table of rows by name. Listing the names imports nothing; a row is imported when it is read."""

    def __init__(self, paths: Mapping[str, str]) -> None:
        """paths: "package.module:name" of each row, by the row's name."""
        self.paths = dict(paths)

    def __getitem__(self, name: str) -> T:
        row: T = load(self.paths[name])
        return row

    def __contains__(self, name: object) -> bool:
        return name in self.paths

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)
