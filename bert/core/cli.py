"""Command lines from dataclasses, and exit codes from exceptions.

A command's options are a dataclass. Each field is a flag of the same name, and the string below the field is its help
text. Fields of nested dataclasses are dotted flags: `--batch.per_device 64`. A field may also be `Positional` or
a `Switch`.
"""

import argparse
import ast
import contextlib
import dataclasses
import difflib
import enum
import errno
import functools
import inspect
import os
import select
import signal
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

from bert.core import library_log, object_urls, progress, ranges, stopping
from bert.core.errors import ResourceError, Stopped, UsageError, UserError

T = TypeVar("T")
E = TypeVar("E")
Factory = Callable[[], T]
LONGEST_NUMBER = 60  # characters
LONGEST_LINE = 2000  # characters of an error

# What an exhausted resource is called by the system, and the remedy.
EXHAUSTED = {
    errno.ENOSPC: "make room on the disk, then repeat",
    errno.EDQUOT: "make room on the disk, then repeat",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f)",
    errno.ENOMEM: "raise the limit on memory (ulimit -v), or use fewer workers, smaller batches or a smaller model",
    errno.EMFILE: "raise the limit on open files (ulimit -n), or use fewer workers",
    errno.ENFILE: "raise the machine's limit on open files (fs.file-max)",
    errno.EAGAIN: "raise the limit on processes and threads (ulimit -u), or use fewer workers",
}
PACKAGES = ("bert", "data", "extensions", "serve", "squad", "tasks")
ENVIRONMENT = "enter the environment (. .venv/bin/activate), or make it (make setup)"
GPU_IS_FULL = "end other programs on the GPU (nvidia-smi shows them), or use smaller batches or a smaller model"

Positional = Annotated[T, "positional"]  # `runs: Positional[tuple[Path, ...]]` is a positional argument
# A positional argument that is first on the command line; `--model RUN` and `--run RUN` give it as well.
Run = Annotated[Path, "positional", "run", "store"]
Stored = Annotated[T, "store"]  # `source: Stored[Path]` may be a URL of an object store; its value is a local path
Switch = Annotated[bool, "switch"]  # `json: Switch = False` is true if --json, which takes no value, is given

# Metadata of a field that may have another value when a stopped run goes on.
MAY_CHANGE = types.MappingProxyType({"may_change": True})


@dataclasses.dataclass(frozen=True)
class Flag:
    """A command-line argument: one field in a tree of dataclasses. Its name is `path`, joined by dots."""

    path: tuple[str, ...]
    type: Any
    help: str
    default: Any
    kind: str = ""
    """"positional", "switch", or empty: a flag with a value"""
    limits: ranges.Range | None = None
    """of a number"""
    is_run: bool = False
    """whether it is a `Run`"""
    is_stored: bool = False
    """whether it is `Stored`"""

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def option(self) -> str:
        """Return the name as written on the command line. A field `import_` is the flag --import."""
        return self.name if self.kind == "positional" else f"--{self.name.removesuffix('_')}"

    @property
    def several(self) -> bool:
        """Return whether the flag takes several values."""
        return typing.get_origin(_value_type(self.type)[0]) is tuple


def parse(options: type[T], argv: Sequence[str], *, prog: str, description: str | None) -> T:
    """Parse `argv` into `options`; fields without a default are required. Raise UsageError for a mistake in `argv`."""
    flags = list(_flags(options, None))
    argv = _with_run_first(argv) if any(flag.is_run for flag in flags) else argv
    return _build(options, None, _values(flags, argv, prog, description))


def _with_run_first(argv: Sequence[str]) -> list[str]:
    """Return the arguments. If they give --model or --run, its value comes first and the flag is removed."""
    words = list(argv)
    for number, word in enumerate(words):
        flag, assigned, value = word.partition("=")
        if flag in ("--model", "--run") and (assigned or len(words) > number + 1):
            return [value or words[number + 1], *words[:number], *words[number + (1 if assigned else 2) :]]
    return words


def override(config: T, argv: Sequence[str], *, prog: str, description: str | None) -> T:
    """Return `config` with the fields that `argv` gives. Raise UsageError for a mistake in `argv`."""
    flags = list(_flags(type(config), config))
    return _build(type(config), config, _values(flags, argv, prog, description))


def flags_of(options: type) -> dict[str, Flag]:
    """Return the flags of a dataclass, by name."""
    return {flag.name: flag for flag in _flags(options, None)}


def check(flags: Iterable[Flag], argv: Sequence[str], *, prog: str) -> None:
    """Raise UsageError if `argv` has a flag that is not in `flags`, or a wrong value. Flags may be missing."""
    _values([dataclasses.replace(flag, default=None) for flag in flags], argv, prog, None)


def registers(recipes: dict[str, Factory[T]]) -> Callable[[Factory[T]], Factory[T]]:
    """Return a decorator that adds a recipe to `recipes` under its name."""

    def register(recipe: Factory[T]) -> Factory[T]:
        recipes[recipe.__name__] = recipe
        return recipe

    return register


def choose(
    argv: Sequence[str], recipes: Mapping[str, Factory[T]], *, prog: str, description: str | None
) -> tuple[str, T]:
    """Return the name and the configuration of the recipe that the first argument names. The other arguments change it.

    Raise UsageError for a mistake in `argv`.
    """
    about = {name: recipe.__doc__ or "" for name, recipe in recipes.items()}
    name = named(argv, about, prog=prog, description=description)
    return name, override(recipes[name](), argv[1:], prog=f"{prog} {name}", description=description)


def named(
    argv: Sequence[str], about: Mapping[str, str], *, prog: str, description: str | None, what: str = "recipe"
) -> str:
    """Return the recipe that the first argument names. For --help instead, print the lines of `about` and exit.

    what: the kind of thing that the argument names, such as "command". Raise UsageError if there is no such name.
    """
    if not argv or argv[0].startswith("-"):
        if {"-h", "--help"} & set(argv):
            print(
                description, f"{what.capitalize()}s:", *(f"  {name}: {text}" for name, text in about.items()), sep="\n"
            )
            raise SystemExit(0)
        raise UsageError(f"{prog}: no {what} given; give one of {' '.join(about)}")
    if argv[0] not in about:
        near = difflib.get_close_matches(argv[0], about, n=2) or list(about)
        raise UsageError(f"{prog}: no {what} {argv[0]!r}; did you mean {' or '.join(near)}?")
    return argv[0]


def flags_in(argv: Sequence[str], section: str) -> frozenset[str]:
    """Return the fields of a section that the flags in `argv` give."""
    prefix = f"--{section}."
    return frozenset(word.removeprefix(prefix).partition("=")[0] for word in argv if word.startswith(prefix))


def changed(base: object, config: object) -> frozenset[str]:
    """Return the fields whose values in `config` differ from those in `base`."""
    names = [field.name for field in dataclasses.fields(typing.cast(Any, base))]
    return frozenset(name for name in names if getattr(config, name) != getattr(base, name))


def extract(options: type[E], argv: Sequence[str], *, prog: str) -> tuple[E, list[str], str]:
    """Parse the flags of `options` anywhere in `argv`; return them, the other arguments, and a help text.

    This is for options beside the flags of a recipe. Raise UsageError for a mistake in them.
    """
    flags = list(_flags(options, None))
    parser = _parser(flags, prog, None, add_help=False)
    values, rest = parser.parse_known_args(argv)
    lines = [f"  {flag.option}: {_help(flag)}".replace("%%", "%") for flag in flags]
    return _build(options, None, vars(values)), rest, "\n".join(["Options beside those of the recipe:", *lines])


def main(function: Callable[[list[str]], None], resumes: bool = False) -> NoReturn:
    """Run `function(sys.argv[1:])` and exit. For a user's error, print one line and exit with its code.

    While it runs, a terminal shows that the command works, even before it has anything to count. resumes: from the
    start, let signals ask the command to stop.
    """
    name = running()
    library_log.prepare(name)
    call = library_log.frame()
    try:
        with progress.Progress(name), stopping.before_the_run() if resumes else contextlib.nullcontext(), _flushed():
            exec(call, {"function": function, "argv": _checked(sys.argv[1:])})
    except ModuleNotFoundError as error:
        if not _is_of_others(error):
            library_log.end(keep=True)
            raise
        _fail(error, UsageError.exit_code)
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            _leave(128 + signal.SIGPIPE)
        code = exit_code(error)
        if code is None:
            library_log.end(keep=True)
            raise  # a defect of this program: show the traceback
        _fail(error, code)
    except KeyboardInterrupt:
        _fail(Stopped("stopped (Ctrl-C); repeat the same command"), Stopped.exit_code)
    _leave(0)


def fail(error: UserError) -> NoReturn:
    """Print the line of an error and exit with its code. This is for errors before `main` runs."""
    _fail(error, error.exit_code)


def guard_imports() -> None:
    """If the command itself imports a package that is not installed, end it with one line instead of a traceback."""
    words = sys.orig_argv
    if "-m" in words[:-1] and words[words.index("-m") + 1].split(".")[0] in PACKAGES:
        shown = sys.excepthook

        def explain(kind: type[BaseException], error: BaseException, traceback: types.TracebackType | None) -> None:
            if isinstance(error, ModuleNotFoundError) and _is_of_others(error):
                _fail(error, UsageError.exit_code)
            shown(kind, error, traceback)

        sys.excepthook = explain


def _is_of_others(error: ModuleNotFoundError) -> bool:
    """Return whether the missing module belongs to another package than ours."""
    return (error.name or "").split(".")[0] not in PACKAGES


def running() -> str:
    """Return the name of the module that runs, as in `python -m NAME`."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name.removesuffix(".__main__") if spec else os.path.basename(sys.argv[0])


def _fail(error: BaseException, code: int) -> NoReturn:
    of_a_library = type(error.__cause__).__module__.startswith("tensorflow") and code != UserError.exit_code
    library_log.end(keep=of_a_library or code == ResourceError.exit_code)
    kind = "" if isinstance(error, Stopped) else "error: "  # what was asked for is none
    print(kind + _line(_describe(error)), file=sys.stderr, flush=True)
    _leave(code, at_once=_gpu_is_full(error))


def _line(text: str) -> str:
    """Return a text as one line of limited length, without characters that could control the terminal."""
    line = "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in " ".join(text.split())
    )
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE // 2]} ... {line[-LONGEST_LINE // 2 :]}"


def _checked(argv: list[str]) -> list[str]:
    """Return `argv`. Raise UsageError if an argument is not UTF-8: a manifest could not hold it."""
    for argument in argv:
        if not argument.isprintable() and any("\ud800" <= character <= "\udfff" for character in argument):
            raise UsageError(f"argument {argument!a}: is not UTF-8; rename the file or folder")
    return argv


def exit_code(error: BaseException) -> int | None:
    """Return the documented exit code of an exception, or None for a programming error."""
    if isinstance(error, UserError):
        return error.exit_code
    if _exhausted(error):
        return 5
    if isinstance(error, OSError) and error.filename is not None:
        return 3
    return None


def _exhausted(error: BaseException) -> int | None:
    """Return the errno of the resource that an exception says is used up; None if it is about something else.

    Such a resource is memory, files, processes or the disk.
    """
    if isinstance(error, OSError) and error.errno in EXHAUSTED:
        return error.errno
    if type(error).__module__.startswith("tensorflow"):  # which this module must not import
        named = (number for number in EXHAUSTED if os.strerror(number) in str(error))
        return next(named, errno.ENOMEM if type(error).__name__ == "ResourceExhaustedError" else None)
    if isinstance(error, MemoryError):
        return errno.ENOMEM
    if isinstance(error, ImportError) and "failed to map segment" in str(error):
        return errno.ENOMEM
    return errno.EAGAIN if isinstance(error, RuntimeError) and "start new thread" in str(error) else None


def _describe(error: BaseException) -> str:
    if isinstance(error, UserError):
        return str(error)
    what = str(error) or type(error).__name__
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is not installed for {sys.executable}; {ENVIRONMENT}"
    if isinstance(error, OSError):
        what = f"{error.filename}: {error.strerror}" if error.filename is not None else str(error.strerror or error)
    if _gpu_is_full(error):
        return f"{what}; {GPU_IS_FULL}"
    exhausted = _exhausted(error)
    return f"{what}; {EXHAUSTED[exhausted]}" if exhausted else what


def _gpu_is_full(error: BaseException) -> bool:
    """Return whether TensorFlow could not allocate memory on a GPU."""
    if type(error).__name__ != "ResourceExhaustedError" or "device:CPU" in str(error):
        return False
    tensorflow = sys.modules.get("tensorflow")
    return bool(tensorflow and tensorflow.config.get_visible_devices("GPU"))


@contextlib.contextmanager
def _flushed() -> Iterator[None]:
    """Flush standard output at the end of the block, where an error in that is still reported."""
    try:
        yield
    except SystemExit:  # of --help
        sys.stdout.flush()
        raise
    sys.stdout.flush()


def _nobody_reads() -> bool:
    """Return whether the reader of the output has ended, as in `... | head`. If so, drop later output."""
    outputs = select.poll()
    for stream in (1, 2):
        outputs.register(stream, select.POLLERR)
    broken = [stream for stream, _ in outputs.poll(0)]
    for stream in broken:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    return bool(broken)


def _leave(code: int, at_once: bool = False) -> NoReturn:
    """Exit. at_once: do not free TensorFlow's tensors; freeing them after a failed allocation aborts the process."""
    library_log.end(keep=False)
    # horovodrun exits with 1 whatever a rank's exit code was; the launcher reads the code from this line.
    if code and (mark := os.environ.get("BERT_LAUNCH")):
        print(f"{mark} ended {code}", file=sys.stderr, flush=True)
    if at_once:
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        start, colon, names = message.partition("required: ")
        if colon:  # with intermixed arguments, argparse lists the positional ones that may be left out, too
            optional = {action.metavar for action in self._actions if action.nargs in ("*", "?")}
            message = start + colon + ", ".join(name for name in names.split(", ") if name not in optional)
        raise UsageError(f"{self.prog}: {message}; see --help")


def _parser(flags: list[Flag], prog: str, description: str | None, add_help: bool = True) -> _Parser:
    parser = _Parser(
        prog=prog,
        description=textwrap.dedent(description or "").strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        add_help=add_help,
    )
    for flag in flags:
        parser.add_argument(flag.option, **_arguments(flag))
    return parser


def _values(flags: list[Flag], argv: Sequence[str], prog: str, description: str | None) -> dict[str, Any]:
    parser = _parser(flags, prog, description)
    # A run was moved away from the other positional arguments, which may now stand behind flags.
    parse = parser.parse_known_intermixed_args if any(flag.is_run for flag in flags) else parser.parse_known_args
    values, unknown = parse(argv)
    if unknown:
        options = [flag.option for flag in flags]
        near = difflib.get_close_matches(unknown[0].split("=")[0], options, n=3, cutoff=0.5)
        remedy = f"did you mean {' or '.join(near)}?" if near else "see --help"
        raise UsageError(f"{prog}: unknown argument {unknown[0]!r}; {remedy}")
    return vars(values)


def _flags(cls: type, instance: Any, prefix: tuple[str, ...] = ()) -> Iterator[Flag]:
    hints, kinds = typing.get_type_hints(cls), typing.get_type_hints(cls, include_extras=True)
    helps, limits, tables = field_docs(cls), ranges.declared(cls), ranges.tables(cls)
    for field in dataclasses.fields(cls):
        path, hint = (*prefix, field.name), hints[field.name]
        if field.name in tables:
            hint = typing.Literal[tuple(tables[field.name])]
        marks = [mark for mark in getattr(kinds[field.name], "__metadata__", ()) if isinstance(mark, str)]
        default = getattr(instance, field.name) if instance is not None else _default(field)
        if dataclasses.is_dataclass(hint):
            yield from _flags(typing.cast(type, hint), None if default is dataclasses.MISSING else default, path)
        else:
            _, numbers = limits.get(field.name, (None, None))
            text = helps.get(field.name, "") + "; may change when a run goes on" * (field.metadata == MAY_CHANGE)
            text += f"; or a URL: {object_urls.KINDS}" * ("store" in marks)
            kind = next((mark for mark in marks if mark in ("positional", "switch")), "")
            yield Flag(path, hint, text, default, kind, numbers, "run" in marks, "store" in marks)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


@functools.cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    """Return the classes of a module, which is parsed once. inspect.getsource would parse it for each class."""
    return _classes_in(inspect.getsource(sys.modules[module]))


def _classes_in(source: str) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}


@functools.cache
def field_docs(cls: type) -> dict[str, str]:
    """Return the string literal below each field; Python does not keep it."""
    docs = field_docs(base) if dataclasses.is_dataclass(base := cls.__base__) else {}
    body = _classes(cls.__module__).get(cls.__qualname__)
    if body is None:  # it is in a function
        (body,) = _classes_in(textwrap.dedent(inspect.getsource(cls))).values()
    for field, doc in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(doc, ast.Expr):
            docs[field.target.id] = " ".join(str(ast.literal_eval(doc.value)).split())
    return docs


def _arguments(flag: Flag) -> dict[str, Any]:
    """Return the arguments of `ArgumentParser.add_argument`, apart from the names."""
    arguments: dict[str, Any] = {"help": _help(flag)}
    if flag.kind != "positional":
        arguments["dest"] = flag.name
    if flag.kind == "switch":
        return arguments | {"action": "store_true"}
    required = flag.default is dataclasses.MISSING
    hint, words = _value_type(flag.type)
    several = typing.get_origin(hint) is tuple
    if several:
        hint = typing.get_args(hint)[0]
    if flag.kind == "positional":
        arguments["nargs"] = ("+" if required else "*") if several else (None if required else "?")
    else:
        arguments["required"] = required
        arguments["nargs"] = "+" if several else None
    if typing.get_origin(hint) is typing.Literal:
        arguments["choices"] = (*typing.get_args(hint), *words.values())
        hint = str
    kind = _stored_path if hint is Path and flag.is_stored else CONVERTERS.get(hint, hint)
    arguments["type"] = _or_word(kind, words) if words else kind
    choices = [choice for choice in arguments.get("choices", ()) if choice is not None]
    word = "run" if flag.is_run else flag.name if flag.kind == "positional" else hint.__name__
    arguments["metavar"] = "{" + ",".join([*choices, *words]) + "}" if choices else word.upper()
    return arguments


def _value_type(hint: Any) -> tuple[Any, dict[str, Any]]:
    """Return the type of a flag's value, and the words that stand for other values.

    `none` stands for None if the type is `X | None`. For `X | E` with an enumeration E, each value of E stands for its
    member and takes precedence.
    """
    if typing.get_origin(hint) not in (types.UnionType, typing.Union):
        return hint, {}
    words: dict[str, Any] = {}
    plain = []
    for option in typing.get_args(hint):
        if option is types.NoneType:
            words = {"none": None} | words
        elif isinstance(option, type) and issubclass(option, enum.Enum):
            words |= {member.value: member for member in option}
        else:
            plain.append(option)
    assert len(plain) == 1, f"{hint}: a flag has one type beside enumerations and None"
    return plain[0], words


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is not true or false")
    return text == "true"


_boolean.__name__ = "bool"  # argparse names the type in its message


def _path(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("is empty; give a path, or . for the current folder")
    if object_urls.is_url(text):
        raise argparse.ArgumentTypeError(f"{text}: is a URL, which this argument does not take; give a local path")
    return Path(text)


def _stored_path(text: str) -> Path:
    if not object_urls.is_url(text):
        return _path(text)
    try:
        return object_urls.local(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _number(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a converter of plain digits to int or float. Python also reads 1_000 and the digits of other scripts."""

    def convert(text: str) -> Any:
        if not text.isascii() or "_" in text or len(text) > LONGEST_NUMBER:
            raise argparse.ArgumentTypeError(f"invalid {kind.__name__} value: {text[:LONGEST_NUMBER]!r}")
        return kind(text)

    convert.__name__ = kind.__name__  # argparse names the type in its message
    return convert


CONVERTERS: dict[Any, Callable[[str], Any]] = {bool: _boolean, Path: _path, int: _number(int), float: _number(float)}


def _or_word(kind: Callable[[str], Any], words: dict[str, Any]) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        return words[text] if text in words else kind(text)

    convert.__name__ = kind.__name__  # argparse names the type in its message
    return convert


def _help(flag: Flag) -> str:
    if flag.kind == "switch":
        return flag.help.replace("%", "%%")
    if flag.default is dataclasses.MISSING:
        default = "required"
    elif flag.default is None and _value_type(flag.type)[1].get("none") is not None:  # `none` means something else
        default = "no default"
    else:
        default = f"default {_show(flag.default)}"
    if flag.limits:
        default += f"; {flag.limits}"
    return f"{flag.help} ({default})".replace("%", "%%").strip()


def _show(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, enum.Enum):
        return str(value.value)
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def _build(cls: type[T], base: T | None, values: dict[str, Any], prefix: str = "") -> T:
    changes: dict[str, Any] = {}
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(typing.cast(Any, cls)):
        name = prefix + field.name
        if dataclasses.is_dataclass(hints[field.name]):
            current = getattr(base, field.name) if base is not None else _default(field)
            below = None if current is dataclasses.MISSING else current
            changes[field.name] = _build(typing.cast(type, hints[field.name]), below, values, name + ".")
        elif name in values:
            value = values[name]
            if value == []:  # argparse removes the value of `--flag=--`
                raise UsageError(f"--{name}: needs a value; see --help")
            changes[field.name] = tuple(value) if isinstance(value, list) else value
    try:
        if base is None:
            return cls(**changes)
        return dataclasses.replace(typing.cast(Any, base), **changes)
    except UserError:
        raise
    except ValueError as error:
        raise UsageError(str(error)) from error
