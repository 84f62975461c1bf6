"""Every value of every flag of every command ends in a run or in one line that names the flag.

The commands, their flags and the sections of the configurations are found by reflection, so a new one is tested too.
"""

import contextlib
import dataclasses
import importlib
import math
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bert import commands as table
from bert import pretrain
from bert.core import cli, ranges
from bert.core.errors import IntegrityError, UsageError
from tests import training

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("bert", "squad", "tasks", "serve", "data", "extensions", "benchmarks")

NUMBERS = [
    *("0", "-1", "1", "7", "2147483648", "9223372036854775808", "18446744073709551616", "1" + 50 * "0", 6000 * "9"),
    *("nan", "inf", "-inf", "1e400", "1e-300", "1e-45", "0.5", "0.999999999", "-0.0", "1e20"),
    *("", " ", "1_000", "0x10", "\u0663", "1,5", "one", "1\n2", "-", "--"),
]
TEXTS = ["", " ", "\n", "x\ny", "-", "--", "..", "%s", "{0}", "$(id)", "none", "\u0663", "\U0001f4a9", 300_000 * "x"]

# Flags without a default, or that belong together, get these values.
WORDS = {"output": "out.jsonl", "kind": "instances", "size": "1000", "layers": "-1", "length": "64", "stop_at": "1"}
TOGETHER = {
    "bert.convert.__main__": ["import", "google", "a", "b"],
    "bert.export.__main__": ["savedmodel", "a", "b"],
    "bert.evaluate": ["a", "--text", "b"],
    "extensions.gpt.evaluate_lm": ["a", "wikitext", "b"],
    "bert.fill_mask": ["a", "--input", "b", "--output", "c"],
    "extensions.tokenizers.bpe": ["--source", "a", "--size", "1000", "--output", "b"],
    "data.vocab": ["--source", "a", "--size", "1000", "--output", "b"],
    "squad.predict": ["--model", "a", "--dataset", "b", "--output", "c"],
    "tasks.evaluate": ["--model", "a", "--input", "b"],
    "tasks.predict": ["--model", "a", "--input", "b", "--output", "c"],
    "benchmarks.task_scores": ["--checkpoint", "a", "--peer_python", "b", "--data", "c", "--output", "d"],
}


class Found(Exception):
    """Ends a command at its first call of the command line."""


def commands() -> list[str]:
    """Return the modules whose `main` is a command."""
    files = (file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py")))
    named = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files if _is_command(file)]
    own = [name for name in named if name not in ("bert.core.cli", "bert.commands")]
    return [*own, *table.EXTENSIONS.values()]


def _is_command(file: Path) -> bool:
    return "    cli.main(" in file.read_text(encoding="utf-8")


class CommandLine(typing.NamedTuple):
    """The flags of a command, how it reads them, and the arguments that it cannot do without."""

    flags: list[cli.Flag]
    parse: Callable[[list[str]], Any]
    needed: list[str]


def command_lines(command: str, monkeypatch: pytest.MonkeyPatch) -> list[CommandLine]:
    """Return the command lines that `command` reads: one of its own, or one for each kind of recipe."""
    read: list[CommandLine] = []
    extract, flags_of, parser_of = cli.extract, cli._flags, cli._parser

    def note(options: type, defaults: Any = None) -> None:
        flags = list(flags_of(options, defaults))
        parser = parser_of(flags, command, None)  # made once, because that takes longer than to use it

        def parse(argv: list[str]) -> Any:
            with monkeypatch.context() as patch:
                patch.setattr(cli, "_flags", lambda *_: flags)
                patch.setattr(cli, "_parser", lambda *_: parser)
                if defaults is None:
                    return cli.parse(options, argv, prog=command, description=None)
                return cli.override(defaults, argv, prog=command, description=None)

        read.append(CommandLine(flags, parse, needed(command, flags)))

    def record(options: type, argv: Any, **_: Any) -> typing.NoReturn:
        note(options)
        raise Found

    def record_beside(options: type, argv: Any, **words: Any) -> Any:
        note(options)
        return extract(options, [*argv, *read[-1].needed], **words)

    def record_choice(argv: Any, recipes: dict[str, Callable[[], Any]], **_: Any) -> typing.NoReturn:
        for kind, config in {type(config): config for config in (recipe() for recipe in recipes.values())}.items():
            note(kind, config)
        raise Found

    def record_override(config: Any, argv: Any, **_: Any) -> typing.NoReturn:
        note(type(config), config)
        raise Found

    module = importlib.import_module(command)
    with monkeypatch.context() as patch, pytest.raises(Found):
        patch.setattr(cli, "parse", record)
        patch.setattr(cli, "extract", record_beside)
        patch.setattr(cli, "choose", record_choice)
        patch.setattr(cli, "named", lambda argv, about, **_: next(iter(about)))
        patch.setattr(cli, "override", record_override)
        module.main([])
    return read


def needed(command: str, flags: list[cli.Flag]) -> list[str]:
    """Return arguments without which the command cannot be called."""
    if command in TOGETHER:
        return TOGETHER[command]
    required = [flag for flag in flags if flag.default is dataclasses.MISSING]
    words = [["a"] if flag.kind == "positional" else [flag.option, WORDS.get(flag.name, "a")] for flag in required]
    return [word for pair in words for word in pair]


def hostile(flag: cli.Flag) -> list[str]:
    numbers = flag.limits and [str(end) for end in (flag.limits.low, flag.limits.high)]
    return [*NUMBERS, *TEXTS, *(numbers or [])]


@pytest.mark.slow
@pytest.mark.parametrize("command", commands())
def test_a_flag_takes_a_value_or_says_in_one_line_what_it_needs(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for line in command_lines(command, monkeypatch):
        for flag in line.flags:
            for value in hostile(flag) if flag.kind != "positional" else ():
                try:
                    line.parse([*line.needed, f"{flag.option}={value}"])
                except (UsageError, OSError) as error:  # a name can be too long for the file system
                    said = str(error)
                    assert cli.exit_code(error) in (2, 3)
                    assert flag.name.rstrip("_") in said or isinstance(error, OSError), (flag, value[:60], said[:300])
                    assert len(said) < 1000 or not flag.limits, said[:300]


@pytest.mark.slow
@pytest.mark.parametrize("command", commands())
def test_every_number_has_a_range_that_is_enforced(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for line in command_lines(command, monkeypatch):
        for flag in line.flags:
            kind, _ = cli._value_type(flag.type)
            kind = typing.get_args(kind)[0] if typing.get_origin(kind) is tuple else kind
            if kind not in (int, float):
                continue
            assert flag.limits is not None, f"{command} {flag.option}: declare its range, as bert/core/ranges.py says"
            for value in ("nan", *_outside(kind, flag.limits)):
                with pytest.raises(UsageError, match=flag.name):
                    line.parse([*line.needed, f"{flag.option}={value}"])


def _outside(kind: type, limits: ranges.Range) -> list[str]:
    if kind is int:
        return [str(int(limits.low) - 1), str(int(limits.high) + 1), "18446744073709551616"]
    low = limits.low if limits.above else math.nextafter(limits.low, -math.inf)
    high = limits.high if limits.below else math.nextafter(limits.high, math.inf)
    return [repr(end) for end, finite in ((low, limits.low), (high, limits.high)) if math.isfinite(finite)]


SMALL = """
    --model.hidden_size 20 --model.num_attention_heads 5 --model.intermediate_size 28 --model.num_hidden_layers 1
    --model.max_position_embeddings 17 --batch.total 6 --batch.per_device 3 --run.steps 2 --run.log_every 1
    --run.save_every 1 --run.evaluate_every 1
"""
LOWEST = """
    --model.hidden_size 1 --model.num_attention_heads 1 --model.intermediate_size 1 --model.initializer_range 0
    --model.hidden_dropout_prob 0 --model.attention_probs_dropout_prob 0 --optimizer.learning_rate 0
    --optimizer.beta_1 0 --optimizer.epsilon 1e-30 --optimizer.clip_norm 1e-12 --optimizer.beta_2 0
    --optimizer.weight_decay 0 --optimizer.warmup_steps 0 --optimizer.layer_decay 1e-300 --optimizer.decay_power
    1e-300 --run.seed 0 --run.keep 1 --run.stall_seconds 0.1 --run.evaluate_sequences 1 --run.max_skipped 1
    --run.spike_factor 0
"""
HIGHEST = """
    --model.hidden_dropout_prob 0.99 --model.attention_probs_dropout_prob 0.99 --model.initializer_range 10
    --model.type_vocab_size 65536 --model.vocab_multiple 65536 --optimizer.name adamw --optimizer.learning_rate 100
    --optimizer.epsilon 1 --optimizer.clip_norm 1e12 --optimizer.beta_1 0.999999 --optimizer.beta_2 0.999999
    --optimizer.warmup_steps 1000000000 --optimizer.weight_decay 10 --optimizer.layer_decay 1
    --optimizer.decay_power 100 --run.seed 2147483647 --run.keep 1000000000 --run.keep_every 1000000000
    --run.stall_seconds 1e6 --run.evaluate_sequences 1000000000 --run.max_skipped 1000000000 --run.spike_factor 1e6
    --run.profile 1000000000 --run.peak_teraflops 1e6 --run.target_accuracy 100 --budget.hours 1e5 --data.skip_bad
    1000000000 --batch.max_per_device 65536
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags", [pytest.param(LOWEST, id="lowest"), pytest.param(HIGHEST, id="highest", marks=pytest.mark.thorough)]
)
def test_a_run_with_the_values_at_the_ends_of_all_ranges_trains(flags: str, tmp_path: Path) -> None:
    folders = ["--data.train", str(training.write_dataset(tmp_path / "data")), "--run.directory", str(tmp_path / "run")]
    high = flags == HIGHEST  # weights and factors of dropout so large that no gradient is finite, which is an error
    with pytest.raises(IntegrityError, match="nothing was learned") if high else contextlib.nullcontext():
        pretrain.main(["demo_phase1", *folders, *SMALL.split(), *flags.split()])
    losses = training.losses(tmp_path / "run").values()
    assert len(losses) == 4 - high and all(map(math.isfinite, losses))
