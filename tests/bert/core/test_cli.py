"""Command lines: flags, positional arguments and switches from dataclasses; recipes; exit codes."""

import enum
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from bert.core import cli
from bert.core.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Inner:
    size: int = 3
    """how large"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """A command's options."""

    source: tuple[Path, ...]
    """what to read"""
    rate: float = 0.5
    """how fast, 10% a step"""
    kind: Literal["a", "b"] = "a"
    """which"""
    fast: bool = False
    """whether"""
    start: Path | None = None
    """where from"""
    inner: Inner = field(default_factory=Inner)
    """more"""


class Place(enum.Enum):
    NOWHERE = "none"


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """A command's arguments of all kinds."""

    way: cli.Positional[Literal["in", "out"]]
    """which way"""
    folders: cli.Positional[tuple[Path, ...]]
    """what to take"""
    loud: cli.Switch = False
    """say more"""
    place: Path | Place | None = None
    """where to; none: nowhere"""
    size: int | None = None
    """how large"""


def parse(*argv: str) -> Options:
    return cli.parse(Options, argv, prog="tool", description="Does it.")


def test_flags_are_the_fields() -> None:
    found = parse(
        "--source", "x", "y", "--rate", "2", "--kind", "b", "--fast", "true", "--inner.size", "7", "--start", "z"
    )
    assert found == Options(
        source=(Path("x"), Path("y")), rate=2.0, kind="b", fast=True, start=Path("z"), inner=Inner(size=7)
    )
    assert parse("--source", "x") == Options(source=(Path("x"),))
    changed = cli.override(found, ["--inner.size", "8", "--start", "none"], prog="tool", description=None)
    assert changed.inner.size == 8 and changed.start is None and changed.rate == 2.0


def test_positional_arguments_and_switches_stand_anywhere() -> None:
    def arguments(*argv: str) -> Arguments:
        return cli.parse(Arguments, argv, prog="tool", description=None)

    expected = Arguments(way="out", folders=(Path("x"), Path("y")), loud=True, size=7)
    assert arguments("out", "x", "y", "--loud", "--size", "7") == expected
    assert arguments("--loud", "--size", "7", "out", "x", "y") == expected
    for argv, message in (
        (["up", "x"], "invalid choice: 'up'"),
        (["in"], "required: FOLDERS"),
        (["in", "x", "--loud", "true"], "unknown argument 'true'"),
        (["in", "x", "--size", "."], "invalid int value"),
    ):
        with pytest.raises(UsageError, match=message):
            arguments(*argv)


@pytest.mark.parametrize(
    ("text", "place"), [([], None), (["none"], Place.NOWHERE), (["."], Path(".")), (["x"], Path("x"))]
)
def test_not_given_none_and_the_current_folder_differ(text: list[str], place: Path | Place | None) -> None:
    argv = ["in", "x", *(["--place", *text] if text else [])]
    assert cli.parse(Arguments, argv, prog="tool", description=None).place == place


def test_a_recipe_is_registered_where_it_is_defined_and_chosen_by_name() -> None:
    recipes: dict[str, Callable[[], Inner]] = {}

    @cli.registers(recipes)
    def large() -> Inner:
        return Inner(size=99)

    assert cli.choose(["large"], recipes, prog="tool", description=None) == ("large", large())
    assert cli.choose(["large", "--size", "5"], recipes, prog="tool", description=None)[1] == Inner(size=5)
    with pytest.raises(UsageError, match="did you mean large"):
        cli.choose(["larg"], recipes, prog="tool", description=None)


def test_options_beside_those_of_a_recipe_are_taken_out() -> None:
    inner, rest, text = cli.extract(Inner, ["large", "--rate", "2", "--size", "5", "--help"], prog="tool")
    assert inner == Inner(size=5) and rest == ["large", "--rate", "2", "--help"]
    assert "--size: how large (default 3)" in text


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--source", "x", "--inner.sise", "3"], "did you mean --inner.size"),
        (["--source", "x", "--inner.size", "three"], "invalid int value: 'three'"),
        (["--source", "x", "--fast", "yes"], "'yes' is not true or false"),
        (["--source", "x", "--kind", "c"], "invalid choice: 'c'"),
        ([], "required: --source"),
        (["--source", "x", "stray"], "stray"),
    ],
)
def test_mistakes_are_usage_errors(argv: list[str], message: str) -> None:
    argv = argv if argv[-1:] != ["stray"] else ["--rate", "1", "--source", "x", "--fast", "true", "stray"]
    with pytest.raises(UsageError, match=message):
        parse(*argv)


def test_help_shows_each_field_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--help")
    text = " ".join(capsys.readouterr().out.split())
    assert "how fast, 10% a step (default 0.5)" in text and "what to read (required)" in text
    assert "where from (default none)" in text and "--inner.size" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        ("errors.IntegrityError('x: cut;\\nfetch it')", 4, "error: x: cut; fetch it"),
        ("FileNotFoundError(2, 'No such file', '/x')", 3, "error: /x: No such file"),
        ("errors.InputError('x: \\x1b[2Jy \\u202e' + 'z' * 10**6 + '; end')", 3, "error: x: \\x1b[2Jy \\u202ezz"),
        ("KeyboardInterrupt", 75, "stopped (Ctrl-C); repeat the same command"),
        ("OSError(28, 'No space left on device', '/x')", 5, "error: /x: No space left on device; make room"),
        ("MemoryError()", 5, "error: MemoryError; raise the limit on memory (ulimit -v)"),
        ("OSError(24, 'Too many open files')", 5, "error: Too many open files; raise the limit on open files"),
        ("OSError(27, 'File too large', '/x')", 5, "error: /x: File too large; raise the limit on file sizes"),
        ("BlockingIOError(11, 'busy')", 5, "error: busy; raise the limit on processes and threads (ulimit -u)"),
        ('RuntimeError("can\'t start new thread")', 5, "error: can't start new thread; raise the limit on processes"),
        ("type('OutOfRangeError', (Exception,), {'__module__': 'tensorflow.x'})('x: File too large')", 5, "error: x:"),
    ],
)
def test_failures_end_in_one_line_and_their_code(raised: str, code: int, line: str) -> None:
    program = f"from bert.core import cli, errors\ndef f(argv): raise {raised}\ncli.main(f)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == code and done.stderr.startswith(line) and done.stderr.count("\n") == 1
    assert len(done.stderr) < 2100
    launched = subprocess.run([sys.executable, "-c", program], stderr=-1, text=True, env={"BERT_LAUNCH": "@x"})
    assert launched.stderr == f"{done.stderr}@x ended {code}\n"  # the launcher takes it out


@pytest.mark.parametrize(
    ("device", "remedy"), [("GPU:0", "end other programs on the GPU"), ("CPU:0", "raise the limit")]
)
def test_a_full_gpu_is_named_and_ends_with_its_code_although_tensorflow_aborts(device: str, remedy: str) -> None:
    # As seen on an H100: after a failed allocation the interpreter aborts when it frees TensorFlow's tensors.
    program = f"""
import atexit, os, sys, types
from bert.core import cli
devices = types.SimpleNamespace(get_visible_devices=lambda kind: [kind])
sys.modules["tensorflow"] = types.SimpleNamespace(config=devices)
Exhausted = type("ResourceExhaustedError", (Exception,), {{"__module__": "tensorflow.errors"}})
if "{device}" == "GPU:0": atexit.register(os.abort)
print("a line for the log")
def f(argv): raise Exhausted("no room on device:{device}")
cli.main(f)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 5 and done.stderr.startswith(f"error: no room on device:{device}; {remedy}")
    assert done.stdout == "a line for the log\n"


@pytest.mark.parametrize("lines", [1, 100_000])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("end", ["", "sys.exit(0)"])
def test_where_nobody_reads_the_output_a_command_ends_without_a_traceback(lines: int, stream: str, end: str) -> None:
    program = f"import sys\nfrom bert.core import cli\ndef f(argv):\n sys.stdin.read()\n print('line\\n' * {lines}, "
    program += f"file=sys.{stream}, flush='{stream}' == 'stderr')\n {end}\ncli.main(f)"
    other = subprocess.DEVNULL if stream == "stderr" else subprocess.PIPE
    stdout, stderr = (other, subprocess.PIPE) if stream == "stderr" else (subprocess.PIPE, other)
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=stdout, stderr=stderr)
    output = process.stderr if stream == "stderr" else process.stdout
    assert output and process.stdin
    output.close()  # as `head` does
    process.stdin.close()
    said = process.stderr.read() if process.stderr and stream == "stdout" else b""
    assert (process.wait(), said) == (141, b"")


def test_a_programming_error_keeps_its_traceback() -> None:
    program = "from bert.core import cli\ndef f(argv): return {}['x']\ncli.main(f)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1 and "KeyError" in done.stderr


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What reads a run, and texts."""

    model: cli.Run
    """run directory"""
    texts: cli.Positional[tuple[str, ...]] = ()
    """texts"""
    top: int = 5
    """how many"""


@pytest.mark.parametrize(
    "argv",
    [
        "a/b x y --top 7",
        "--model a/b x y --top 7",
        "--top 7 --model=a/b x y",
        "x y --run a/b --top 7",
        "--run=a/b x y --top=7",
    ],
)
def test_a_run_is_the_first_argument_or_a_flag(argv: str) -> None:
    found = cli.parse(Reading, argv.split(), prog="tool", description=None)
    assert found == Reading(model=Path("a/b"), texts=("x", "y"), top=7)


def test_a_run_that_is_missing_is_named() -> None:
    for argv in ([], ["--top", "7"]):
        with pytest.raises(UsageError, match="the following arguments are required: RUN; see --help"):
            cli.parse(Reading, argv, prog="tool", description=None)
