"""The test files that reach what has changed, by imports and by the names in their texts.

    python -m tests.affected REVISION              # prints them
    python -m tests.affected REVISION pytest -n 2  # runs a command with them behind it
    make test CHANGED=origin/main                  # runs their fast tests

A test reaches the modules that it imports, those that these import, and so on; the conftest.py whose fixtures it asks
for; and what its texts name: a module ("bert.pretrain"), or a file of the repository ("scripts/launch.sh"). The tests
of an extension reach all of it. A row of an extension that the trunk names as a string is not followed: every test
would reach every extension. So these are the tests to begin with; all run before a change is merged.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODULE = re.compile(r"\b[a-z_]\w*(?:\.\w+)+")
ROW = re.compile(r"(?!extensions\.)([\w.]+):\w+")  # that a table names as a string
FORWARD = "Forward to "  # docstring of a module that forwards its name to a file
FILE = re.compile(r"[\w.-]+(?:/[\w.-]+)*/[\w.-]*\w|\b(?:Makefile|Dockerfile|[\w-]+\.(?:md|toml|txt))\b")
ALWAYS = ("tests/test_house.py", "tests/test_trunk.py")  # they read the whole tree


def module_of(path: str) -> str:
    """Return the name under which a file is imported."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def run_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree apart from what only a type checker reads."""
    for node in ast.iter_child_nodes(tree):
        checked = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        if not checked:
            yield node
            yield from run_nodes(node)


class Tree:
    """The files of a repository, and what each names."""

    def __init__(self, root: Path, files: Iterable[str]) -> None:
        """files: paths of the repository's files."""
        self.root, self.files = root, set(files)
        self.modules = {module_of(path): path for path in self.files if path.endswith(".py")}
        self.tests = sorted(path for path in self.files if re.search(r"(^|/)test_\w+\.py$", path))
        self._named: dict[str, set[str]] = {}

    def _module(self, name: str) -> Iterator[str]:
        """Yield the file of the longest module that a dotted name begins with, and the packages around it."""
        parts = name.split(".")
        names = [".".join(parts[: end + 1]) for end in range(len(parts))]
        yield from (self.modules[name] for name in names if name in self.modules)

    def _imported(self, path: str, tree: ast.Module) -> Iterator[str]:
        for node in run_nodes(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and (row := ROW.fullmatch(node.value)):
                yield from self._module(row[1])
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    yield from self._module(alias.name)
            elif isinstance(node, ast.ImportFrom):
                package = path.split("/")[: -node.level] if node.level else []
                base = ".".join([*package, *(node.module or "").split(".")]).strip(".")
                for alias in node.names:
                    yield from self._module(f"{base}.{alias.name}")

    def _in_texts(self, tree: ast.Module) -> Iterator[str]:
        statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings among them
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements:
                yield from self._in_text(node.value)

    def _in_text(self, text: str) -> Iterator[str]:
        for name in MODULE.findall(text):
            yield from self._module(name)
            yield from self._module(f"{name}.__main__")
        yield from self.files.intersection(FILE.findall(text))

    def _fixtures(self, path: str, tree: ast.Module) -> Iterator[str]:
        """Yield the files conftest.py above a test that define a fixture which it asks for."""
        asked = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        for folder in Path(path).parents:
            if (conftest := str(folder / "conftest.py")) in self.files and conftest != path:
                defined = ast.parse((self.root / conftest).read_text(encoding="utf-8")).body
                functions = {node.name for node in defined if isinstance(node, ast.FunctionDef)}
                again = {alias.name for node in defined if isinstance(node, ast.ImportFrom) for alias in node.names}
                if asked & (functions | again):
                    yield conftest

    def named(self, path: str) -> set[str]:
        """Return the files that a file names: by import, and those of the tests by their texts too."""
        if path not in self._named:
            found = set[str]()
            if path.endswith(".py"):
                tree = ast.parse((self.root / path).read_text(encoding="utf-8"))
                found.update(self._imported(path, tree))
                if (docstring := ast.get_docstring(tree) or "").startswith(FORWARD):
                    found.update(self._in_text(docstring))
                if path.startswith("tests/"):
                    found.update(self._in_texts(tree))
                    folder = path.removeprefix("tests/").rpartition("/")[0] + "/"
                    if folder.startswith("extensions/") and folder != "extensions/":
                        found.update(name for name in self.files if name.startswith(folder))
                    found.update(self._fixtures(path, tree))
            self._named[path] = found - {path}
        return self._named[path]

    def reached(self, path: str) -> set[str]:
        """Return the files that a file reaches, itself included."""
        found, waiting = {path}, [path]
        while waiting:
            new = self.named(waiting.pop()) - found
            found |= new
            waiting += new
        return found

    def affected(self, changed: Iterable[str]) -> list[str]:
        """Return the test files that reach one of the changed files, and those that read the whole tree."""
        changes = set(changed)
        return [test for test in self.tests if test in ALWAYS or changes & self.reached(test)]


def git(*arguments: str) -> list[str]:
    """Return the lines of what git prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()


def main(revision: str, command: list[str]) -> None:
    """Print the test files that reach what differs from a revision, or run the command with them behind it.

    Files that git does not know yet, and does not ignore, are changed ones.
    """
    new = git("ls-files", "--others", "--exclude-standard")
    tree = Tree(ROOT, [path for path in [*git("ls-files"), *new] if (ROOT / path).is_file()])
    changed = [*git("diff", "--name-only", revision), *new]
    affected = tree.affected(changed)
    print(f"{len(affected)} of {len(tree.tests)} test files reach {len(changed)} changed files", file=sys.stderr)
    if command:
        os.execvp(command[0], [*command, *affected])
    print(*affected, sep="\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
