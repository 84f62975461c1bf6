"""A configuration file: the recipe and the flags of a command that trains, as YAML or JSON (`--config run.yaml`).

The keys are the names of the flags, nested (`batch: {total: 64}`), with dots (`batch.total: 64`), or both; those of
other programs are taken as on the command line (`bert.core.aliases`). A value has the meaning that its text has there:
1e-4 is that number, and only true and false are booleans. null is `none`. `recipe` names the recipe. Flags of the
command line come after those of the file and override them.

`config.json` of a run is such a file, of everything that the run resolved. What it only records is ignored.
"""

import contextlib
import dataclasses
import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert.core import aliases, checked_json, cli, files
from bert.core.config import RUN_SETTINGS
from bert.core.errors import UsageError

LONGEST = {".json": 1 << 20, ".yaml": 1 << 16, ".yml": 1 << 16}  # characters of a file
DEEPEST = 8  # levels of a file
NO_KEY = ": no such key"
MOST_GUESSED = 3  # unknown keys for which similar ones are named
NULL = ("~", "null", "Null", "NULL")  # of YAML
# Flags that have no effect beside another: a number of updates that is given is not derived.
DERIVED = {"length.epochs": "run.steps", "length.warmup": "optimizer.warmup_steps"}

Value = str | list[str]


@dataclasses.dataclass(frozen=True)
class File:
    """What a file holds: the recipe, and the values of flags by name, as texts."""

    path: Path
    recipe: str | None
    values: Mapping[str, Value]
    resolved: bool
    """whether a run has written it, with all values that it resolved"""


@dataclasses.dataclass(frozen=True)
class Given:
    """The arguments of a command, in this order: the recipe, the flags of the file, the flags of the command line."""

    words: list[str]
    line: list[str]
    """of these, what the command line has"""
    file: File | None = None

    def model_flags(self, words: Sequence[str]) -> frozenset[str]:
        """Return the fields of the model that the user asks for, among all that `words` give.

        The user does not ask for an architecture that a run resolved: it came from the weights that the run started
        from.
        """
        names = cli.flags_in(words, "model")
        if self.file is None or not self.file.resolved:
            return names
        resolved = cli.flags_in([f"--{key}" for key in self.file.values], "model") - RUN_SETTINGS
        return names - resolved | cli.flags_in(self.line, "model")

    def flags(self, words: Sequence[str]) -> frozenset[str]:
        """Return the names of the flags that the user asks for, among all in `words`; not those that a run resolved."""
        names = _names(words)
        return names if self.file is None or not self.file.resolved else names - {*self.file.values} | _names(self.line)

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Add the name of the file to a UsageError of the block."""
        try:
            yield
        except UsageError as error:
            if self.file is None or str(self.file.path) in str(error):
                raise
            raise UsageError(f"{error} (with the settings of {self.file.path})") from error


def given(argv: Sequence[str], options: type, *, prog: str) -> Given:
    """Return the arguments of a command; `--config FILE` in `argv` names a file with more.

    options: dataclass of the recipe. Raise UsageError for a mistake in the file, for flags in `argv` with another
    meaning here, and for a contradiction between `argv` and the file.
    """
    flags = cli.flags_of(options)
    path, rest = _path(argv, prog)
    line = aliases.translated(rest, flags)
    if path is None:
        return Given(line, line)
    file = read(path, flags)
    recipe = line[:1] if line and not line[0].startswith("-") else []
    if recipe and file.recipe not in (None, recipe[0]):
        raise UsageError(f"{path}: is for the recipe {file.recipe}, but the command names {recipe[0]}; leave one out")
    for key, value in file.values.items():
        _check_value(path, key, value, flags[aliases.PHASE.sub("", key)])
    _check_derived(file, line)
    chosen = recipe or ([file.recipe] if file.recipe else [])
    words = [word for key, value in file.values.items() for word in _words(key, value)]
    return Given([*chosen, *words, *line[len(recipe) :]], line, file)


def _path(argv: Sequence[str], prog: str) -> tuple[Path | None, list[str]]:
    """Return the file that --config names, or None, and the other arguments."""
    rest, paths = list[str](), list[str]()
    words = iter(argv)
    for word in words:
        if word == "--config":
            paths.append(next(words, ""))
        elif word.startswith("--config="):
            paths.append(word.removeprefix("--config="))
        else:
            rest.append(word)
    if len(paths) > 1:
        raise UsageError(f"{prog}: --config is given {len(paths)} times; give one file, and flags for what differs")
    if paths and (not paths[0] or paths[0].startswith("--")):
        raise UsageError(f"{prog}: --config needs a file, such as run.yaml, or config.json of a run")
    return (Path(paths[0]) if paths else None), rest


def _check_value(path: Path, key: str, value: Value, flag: cli.Flag) -> None:
    """Raise UsageError if the flag cannot have this value."""
    for part in value if isinstance(value, list) else ():
        if part.startswith("--"):
            raise UsageError(f"{path}: {key}: {part!r} begins with --, which a value in a list cannot")
    each: list[Value] = [*value] if isinstance(value, list) and not flag.several else [value]  # one for each phase
    for one in each:
        cli.check([flag], _words(flag.name, one), prog=str(path))


def _check_derived(file: File, line: Sequence[str]) -> None:
    """Raise UsageError if a flag of the command line has no effect because of a value in the file."""
    on_line = _names(line)
    for flag, other in DERIVED.items():
        if flag in on_line and other not in on_line and file.values.get(other, "0") != "0":
            raise UsageError(
                f"--{flag} has no effect beside {other} {file.values[other]} of {file.path}; give --{other} 0 as well"
            )


def _names(words: Sequence[str]) -> frozenset[str]:
    """Return the names of the flags among the words of a command."""
    return frozenset(word.removeprefix("--").partition("=")[0] for word in words if word.startswith("--"))


def _words(key: str, value: Value) -> list[str]:
    return [f"--{key}", *value] if isinstance(value, list) else [f"--{key}={value}"]


def read(path: Path, flags: Collection[str]) -> File:
    """Return the content of a file. Raise UsageError if it is no configuration, or has a key that is not in `flags`."""
    if path.suffix not in LONGEST:
        raise UsageError(f"{path}: not a configuration; give a file .yaml, .yml or .json")
    text = files.read_text(path, LONGEST[path.suffix], "give a configuration")
    content = _json(text, path) if path.suffix == ".json" else _yaml(text, path)
    if not isinstance(content, dict):
        raise UsageError(f"{path}: not a mapping; give one `flag: value` on each line")
    settings, recipe = _settings(content, path)
    resolved = settings is content.get("config")
    values: dict[str, Value] = {}
    notes, refusals, pairs = list[str](), dict[str, list[str]](), list(_flat(settings, path))
    given = {aliases.PHASE.sub("", name) for name, _ in pairs}
    for name, given_value in pairs:
        try:
            if (taken := _ours(path, name, given_value, flags, notes, given)) is None:
                continue
            key, value = taken
            if key in values:
                raise UsageError(f"{path}: {key} is given twice; leave one out")
            if value == [] and resolved:
                continue  # the default: a flag cannot give an empty list
            if value in ("", []):
                raise UsageError(f"{path}: {key}: has no value; give one, or leave it out")
        except UsageError as error:
            reason = str(error).removeprefix(f"{path}: ")
            refusals.setdefault(reason.removeprefix(name), []).append(name if reason.startswith(name) else "")
            continue
        values[key] = value
    if refusals:
        raise UsageError(f"{path}: {'. '.join(_listed(refusals))}")
    aliases.tell(notes)
    ordered = sorted(values.items(), key=lambda item: bool(aliases.PHASE.match(item[0])))  # of all phases, then of one
    return File(path, recipe, dict(ordered), resolved)


def _listed(refusals: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield each reason once, after the keys that it is about. Of many unknown keys, list only the names."""
    unknown = [name for reason, names in refusals.items() if reason.startswith(NO_KEY) for name in names]
    are_many = len(unknown) > MOST_GUESSED
    for reason, names in refusals.items():
        if not (are_many and reason.startswith(NO_KEY)):
            yield f"{', '.join(dict.fromkeys(names))}{reason}"
    if are_many:
        yield f"{', '.join(unknown)}{NO_KEY}s; the keys are the flags that --help lists"


def _ours(
    path: Path, key: str, value: Value, flags: Collection[str], notes: list[str], given: Collection[str]
) -> tuple[str, Value] | None:
    """Return flag and value of a key, which may be another program's name; keep the phase in front of the flag.

    Return None if the value of another program's name changes nothing. notes: append notes about the key. given: all
    keys. Raise UsageError if there is no such flag.
    """
    name, names = aliases.PHASE.sub("", key), aliases.table(flags)
    if name in flags:
        return key, value
    text = value if isinstance(value, str) else " ".join(value)
    if name.endswith("steps") and text.endswith(".0"):  # 100.0, since a share is possible there as well
        value = text = text.removesuffix(".0")
    if (ours := aliases.by_value(name, text, names)) is None:
        near = difflib.get_close_matches(name, flags, 2, 0.5)
        remedy = f"did you mean {' or '.join(near)}?" if near else "the keys are the flags that --help lists"
        raise UsageError(f"{path}: {key}{NO_KEY}; {remedy}")
    if aliases.changes_nothing(name, text, given):
        notes.append(aliases.unchanged(f"{path}: {key}", text))
        return None
    if isinstance(ours, aliases.Refused):
        raise UsageError(f"{path}: {key} {ours}")
    target = key.removesuffix(name) + ours.partition("=")[0]
    if isinstance(ours, aliases.Set):
        value = aliases.switched(f"{path}: {key}", text, ours)
    notes += aliases.note(f"{path}: {key}", target, name, ours)
    return target, value


def _settings(content: dict[str, Any], path: Path) -> tuple[dict[str, Any], str | None]:
    """Return the settings and the recipe. A run's config.json also has other records; leave them out."""
    recipe = content.get("recipe")
    recipe = None if recipe == "none" else recipe
    if not (recipe is None or isinstance(recipe, str)):
        raise UsageError(f"{path}: recipe: not a name; give one recipe")
    if "config" in content and "versions" in content:
        if "imported" in content or not isinstance(content["config"], dict):
            raise UsageError(f"{path}: the record of an import, which has no settings; give config.json of a run")
        return content["config"], recipe.removesuffix(" --smoke") if recipe else None
    return ({key: value for key, value in content.items() if key != "recipe"}, recipe) if recipe else (content, None)


def _flat(content: Mapping[str, Any], path: Path, prefix: str = "") -> Iterator[tuple[str, Value]]:
    """Yield each key, with dots, and its value."""
    for name, value in content.items():
        key = prefix + name
        if isinstance(value, dict):
            yield from _flat(value, path, f"{key}.")
        elif isinstance(value, list) and not all(isinstance(part, str) for part in value):
            raise UsageError(f"{path}: {key}: a list holds values only, no other list or mapping")
        else:
            yield key, value


def _json(text: str, path: Path) -> Any:
    """Return the value of a JSON text; numbers, booleans and null become texts."""
    try:
        return _texts(checked_json.parse(text.encode()))
    except ValueError as error:
        raise UsageError(f"{path}: not JSON ({error})") from error
    except RecursionError as error:
        raise UsageError(f"{path}: nested too deeply") from error


def _texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _texts(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_texts(part) for part in value]
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    return value if isinstance(value, str) else repr(value)


def _yaml(text: str, path: Path) -> Any:
    """Return the value of a YAML text; all scalars stay texts, as written."""
    import yaml  # here: most commands read no such file

    try:
        depth = 0
        for event in yaml.parse(text, Loader=yaml.BaseLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise UsageError(f"{path}: line {event.start_mark.line + 1}: nested too deeply")
            if isinstance(event, yaml.AliasEvent):
                raise UsageError(f"{path}: line {event.start_mark.line + 1}: *{event.anchor}: write the value itself")
        root = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
        raise UsageError(f"{path}: {line}not YAML ({problem})") from error
    return None if root is None else _value(root, path)


def _value(node: Any, path: Path) -> Any:
    """Return the value of a YAML node. Refuse tags and keep scalars as texts, so that no object is constructed."""
    where = f"{path}: line {node.start_mark.line + 1}"
    if not node.tag.startswith("tag:yaml.org,2002:") or node.tag.rpartition(":")[2] not in ("str", "seq", "map"):
        raise UsageError(f"{where}: a tag ({node.tag.removeprefix('tag:yaml.org,2002:')}); write the value alone")
    if node.id == "scalar":
        return "none" if node.style is None and node.value in NULL else node.value
    if node.id == "sequence":
        return [_value(part, path) for part in node.value]
    found: dict[str, Any] = {}
    for key, value in node.value:
        if key.id != "scalar":
            raise UsageError(f"{where}: a key is not a name")
        if key.value in found:
            raise UsageError(f"{path}: line {key.start_mark.line + 1}: {key.value} is given twice; leave one out")
        found[key.value] = _value(value, path)
    return found
