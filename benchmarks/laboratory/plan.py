"""A plan: which runs are trained, with which flags and seeds, and how they are scored."""

import dataclasses
import re
import shlex
import tomllib
import types
import typing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from bert import recipes
from bert.core import checked_json, config, files, ranges
from bert.core.config import Count, PretrainConfig
from bert.core.errors import InputError, UsageError
from bert.core.ranges import Range, Seed
from bert.recipes import Phase

PROG = "python -m benchmarks.laboratory"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}")  # it becomes the name of a folder
OURS = ("run.directory", "run.seed", "run.stop_at")  # flags that the laboratory gives
REMEDY = "mend the plan"


@dataclass(frozen=True, kw_only=True)
class Variant:
    """How one of the compared runs differs from the plan."""

    recipe: str = ""
    """"": that of the plan"""
    flags: str = ""
    """of bert.pretrain, behind those of the plan, so that they win"""


@dataclass(frozen=True, kw_only=True)
class Score:
    """A command that scores a checkpoint."""

    command: Literal["minimal_pairs", "evaluate", "tasks"]
    """bert.minimal_pairs, bert.evaluate, or tasks.train from the checkpoint"""
    flags: str
    """of that command; those of tasks.train begin with the name of its recipe"""
    at: Literal["each", "end"] = "each"
    """at each checkpoint, or at the last one only"""

    @property
    def words(self) -> str:
        return f"{self.command} {self.flags}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The content of a plan's file."""

    title: str
    recipe: str = ""
    """of bert.pretrain, one phase"""
    flags: str = ""
    """of bert.pretrain, for all runs"""
    variants: dict[str, Variant]
    """the runs that are compared, by name; the first one is what the others are compared with"""
    seeds: tuple[Seed, ...]
    """each variant is trained with each of these"""
    first: Count = 100
    """update of the first checkpoint that is scored"""
    checkpoints: Annotated[int, Range(1, 1000)] = 8
    """how many checkpoints are scored, at equal ratios from the first to the last update"""
    scores: dict[str, Score] = field(default_factory=dict)
    """by name; the held-out loss and accuracy are always there"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if not self.variants or not self.seeds:
            raise UsageError("needs at least one variant and one seed")
        for names in (self.variants, self.scores):
            if wrong := [name for name in names if not NAME.fullmatch(name)]:
                raise UsageError(f"{wrong[0]!r} is no name; give letters, digits, dots, - and _")
        for what in (self.seeds, [name.lower() for name in self.variants], [name.lower() for name in self.scores]):
            if len(set(what)) < len(what):
                raise UsageError(f"{what} has one of them twice")

    @cached_property
    def runs(self) -> dict[str, "Run"]:
        """The variants by name. Raise UsageError if the words of one are wrong."""
        return {name: Run.of(self, name, variant) for name, variant in self.variants.items()}


@dataclass(frozen=True, kw_only=True)
class Run:
    """A variant with what follows from its words."""

    name: str
    words: tuple[str, ...]
    """of bert.pretrain: the recipe and flags"""
    phase: Phase
    marks: tuple[int, ...]
    """updates at which it is scored"""

    @property
    def config(self) -> PretrainConfig:
        return self.phase.config

    def settings(self) -> dict[str, Any]:
        """Return all settings that the weights depend on, but for the seed."""
        free = config.may_change(self.config) | {"run.seed"}
        return {key: value for key, value in config.flatten(self.config).items() if key not in free}

    @classmethod
    def of(cls, plan: Plan, name: str, variant: Variant) -> "Run":
        recipe = variant.recipe or plan.recipe
        words = (*([recipe] if recipe else []), *split(plan.flags), *split(variant.flags))
        for word in words:
            if (flag := word.removeprefix("--").partition("=")[0]) in OURS and word.startswith("--"):
                raise UsageError(f"variant {name}: --{flag} is for the laboratory to give; leave it out")
        phases = recipes.choose(words, prog=f"variant {name}", description="")
        if len(phases) > 1:
            alone = " or ".join(phase.name for phase in phases)
            raise UsageError(f"variant {name}: {words[0]} has {len(phases)} phases; give {alone}")
        (phase,) = phases
        steps = phase.config.run.steps
        if phase.config.budget.hours:
            raise UsageError(f"variant {name}: a run of --budget.hours has no updates that are known; give --run.steps")
        if steps < plan.first:
            raise UsageError(f"variant {name}: {steps} updates end before the first checkpoint, {plan.first}")
        return cls(name=name, words=words, phase=phase, marks=marks(plan.first, steps, plan.checkpoints))


def marks(first: int, steps: int, count: int) -> tuple[int, ...]:
    """Return `count` updates at equal ratios from the first to the last; fewer if some would be the same."""
    if count == 1:
        return (steps,)
    return tuple(dict.fromkeys(round(step) for step in np.geomspace(first, steps, count)))


def split(words: str) -> list[str]:
    """Return the words of a command, as a shell reads them. Raise UsageError if a quotation mark is left open."""
    try:
        return shlex.split(words)
    except ValueError as error:
        raise UsageError(f"{words!r}: {error}") from error


def read(path: Path) -> Plan:
    """Read a plan. Raise InputError or UsageError, naming the file, for a mistake in it."""
    text = files.read_text(path, 1 << 20, "give a plan")
    try:
        fields = tomllib.loads(text)
        _refuse_unknown(Plan, fields, "")
        plan: Plan = checked_json.take(Plan, fields)
        assert plan.runs  # computes them
        return plan
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not TOML ({error}); {REMEDY}") from error
    except ValueError as error:
        raise UsageError(
            f"{path}: {error}" if isinstance(error, UsageError) else f"{path}: {error}; {REMEDY}"
        ) from error


def _refuse_unknown(kind: Any, value: Any, where: str) -> None:
    """Raise UsageError for a name in a table that is no field of its dataclass."""
    if isinstance(kind, types.GenericAlias) and typing.get_origin(kind) is dict and isinstance(value, dict):
        for name, below in value.items():
            _refuse_unknown(typing.get_args(kind)[1], below, f"{where}{name}.")
    if not dataclasses.is_dataclass(kind) or not isinstance(value, dict):
        return
    hints = typing.get_type_hints(kind)
    for name, below in value.items():
        if name not in hints:
            raise UsageError(f"{where}{name}: no such entry; there are {', '.join(hints)}")
        _refuse_unknown(hints[name], below, f"{where}{name}.")
