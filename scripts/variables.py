"""The variables of the Makefile: their types, defaults and ranges. `make help` describes them.

Each value is taken as it stands; no shell reads it. An empty one counts as not set.
"""

import difflib
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from bert.core import ranges
from bert.core.errors import UsageError
from bert.core.ranges import Range
from bert.recipes import RECIPES, Recipe
from squad.recipes import RECIPES as SQUAD_RECIPES
from tasks.glue import TASKS

Count = Annotated[int, Range(1, 1_000_000)]
Length = Annotated[int, Range(8, 1_000_000)]
Share = Annotated[float, Range(0, 1, below=True)]

WHOLE_RECIPES = sorted(name for name, recipe in RECIPES.items() if not recipe.part_of)
GLUE_TASKS = [name for name, task in TASKS.items() if "train" in task.files]
# As the argument of a command, a path that begins with - would be taken for a flag.
PATHS = (
    *("wikipedia", "books", "pubmed", "text", "vocab", "bpe", "squad_train", "squad_dev", "squad_run"),
    *("glue", "race", "ner", "task_run", "model", "pretrained", "bert_workdir"),
)
OF_OTHERS = ("BERT_CONTACT", "DEVICE", "PYTHON", "VENV")  # read by what the stages start


@dataclass(frozen=True, kw_only=True)
class Variables:
    """The values, under the names in lower case. Empty, or None: not set."""

    wikipedia: str = ""
    books: str = ""
    pubmed: str = ""
    text: str = ""
    wikipedia_flags: str = ""
    books_flags: str = ""
    pubmed_flags: str = ""
    text_flags: str = ""
    language: str = ""
    vocab: str = "train"
    vocab_size: Count = 30_522
    lower_case: str = ""
    strip_accents: str = ""
    special: str = ""
    shards: Count | None = None
    dupe_factor: Count | None = None
    masked_lm_prob: Share | None = None
    records: str = ""
    pairs: str = ""
    records_flags: str = ""
    bpe: str = "train"
    bpe_size: Count = 50_257
    heldout: Share | None = None
    phase1_seq: Length = 128
    phase2_seq: Length = 512
    recipe: str = "bert_mini"
    squad_train: str = ""
    squad_dev: str = ""
    squad_recipe: str = ""
    squad_run: str = ""
    glue: str = ""
    task: str = ""
    race: str = ""
    ner: str = ""
    task_run: str = ""
    model: str = ""
    pretrained: str = ""
    np: Count = 2
    flags: str = ""
    pretrain_flags: str = ""
    squad_flags: str = ""
    task_flags: str = ""
    bert_workdir: str = "workdir"

    def __post_init__(self) -> None:
        if self.recipe not in RECIPES:
            _one_of("RECIPE", self.recipe, WHOLE_RECIPES)
        _one_of("SQUAD_RECIPE", self.squad_recipe, SQUAD_RECIPES)
        _one_of("TASK", self.task, GLUE_TASKS)
        _one_of("LOWER_CASE", self.lower_case, ("true", "false"))
        _one_of("STRIP_ACCENTS", self.strip_accents, ("true", "false"))
        _one_of("RECORDS", self.records, ("instances", "documents"))
        _one_of("PAIRS", self.pairs, ("nsp", "sop", "none"))
        for field in fields(self):
            if field.name == "special" or field.name.endswith("flags"):
                self.words(field.name)

    @property
    def work(self) -> Path:
        return Path(self.bert_workdir)

    @property
    def corpus(self) -> Path:
        return self.work / "corpus"

    @property
    def pretraining(self) -> Recipe:
        """Return the recipe: its phases, or the only one that was named."""
        return RECIPES[self.recipe]

    def words(self, name: str) -> list[str]:
        """Return the words of a variable with flags. Quotes and backslashes group, and nothing is expanded."""
        return _words(name.upper(), getattr(self, name.lower()))


def read(environment: Mapping[str, str], named: Collection[str] = ()) -> Variables:
    """Return the variables in an environment; `named` are names on make's command line, which must exist.

    Raise UsageError for a name that does not exist and for a value that is wrong.
    """
    names = [field.name.upper() for field in fields(Variables)]
    for name in named:
        if name not in (*names, *OF_OTHERS):
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
            meant = f"did you mean {near[0]}?" if near else "make help lists them;"
            raise UsageError(f"{name}: no variable of the stages; {meant} one of another program goes in front of make")
    numbers = ranges.declared(Variables)
    values: dict[str, Any] = {}
    for name in names:
        if text := environment.get(name, ""):
            field = name.lower()
            if field in numbers:
                values[field] = _number(name, text, *numbers[field])
            else:
                values[field] = str(Path.cwd() / text) if field in PATHS and text.startswith("-") else text
    return Variables(**values)


def _number(name: str, text: str, kind: type, limits: Range) -> float:
    try:
        number = kind(text)
    except ValueError:
        number = None
    if number is None or not text.isascii() or "_" in text or number not in limits:
        raise UsageError(f"{name} is {text!r}; it is {'a whole number' if kind is int else 'a number'} {limits}")
    return number


def _one_of(name: str, value: str, choices: Collection[str]) -> None:
    if value and value not in choices:
        near = difflib.get_close_matches(value, choices, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"{name} is {value!r}; {meant}it is one of: {' '.join(choices)}")


def _words(name: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{name}: {str(error).lower()}; a quote or a backslash has no end") from error
