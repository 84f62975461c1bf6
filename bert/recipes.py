"""Named pretraining runs: a recipe is a value, a name with the phases that it trains one after the other.

The recipes stand in families, each in a module of its own that `FAMILIES` names (bert/published_recipes.py has those of
the papers). A new recipe is a call of `recipe` there.

Most recipes choose the precision for the device (`AUTO`): 16 bits with XLA on a GPU, float32 on a CPU.
"""

import functools
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bert.core import cli, config_file, rows, unused_flags
from bert.core.config import (
    BatchConfig,
    InitConfig,
    ModelConfig,
    PrecisionConfig,
    PretrainConfig,
)
from bert.core.errors import UsageError

MASKED = 0.15  # share of the tokens that are predicted
SHORT, LONG = 128, 512  # tokens of a sequence in the published phases
NO_FIELDS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One run of a recipe."""

    name: str
    """of the phase, which also names its run directory"""
    config: PretrainConfig
    length: int = 0
    """tokens of a sequence of its data (--max_seq_length of data.tfrecords); 0: data.length, or the model's longest"""
    predicted: int = 0
    """tokens that are predicted in a sequence (--max_predictions_per_seq of data.tfrecords); 0: as it does itself"""
    after: str = ""
    """name of the phase whose weights it starts from"""
    flagged: frozenset[str] = frozenset()
    """fields of the model that the command gives"""

    @property
    def sequence(self) -> int:
        """Return the number of tokens of a sequence."""
        return self.length or self.config.data.length or self.config.model.max_position_embeddings

    @property
    def predictions(self) -> int:
        """Return the number of tokens to predict in a sequence."""
        return self.predicted or predictions(self.config.model, self.sequence)

    @property
    def about(self) -> str:
        run = f"{self.sequence} tokens, {self.config.run.steps:,} updates of {self.config.batch.total:,} sequences"
        return f"{run}, from all weights of {self.after}" if self.after else run


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Phases in order. Each phase after the first starts from all weights of the phase before."""

    name: str
    about: str
    phases: tuple[Phase, ...]
    part_of: str = ""
    """name of the recipe of which this is one phase"""

    @property
    def causal(self) -> bool:
        """Return whether the model is causal. A causal model reads tokens, the others read masked samples."""
        return self.phases[0].config.model.causal

    def only_config(self) -> PretrainConfig:
        """Return the configuration of a recipe with one phase. Raise UsageError if it has several."""
        if len(self.phases) > 1:
            names = ", then ".join(part.name for part in self.phases)
            raise UsageError(f"{self.name}: has {len(self.phases)} phases; give {names}")
        return self.phases[0].config

    def miniature(self) -> "Recipe":
        """Return the recipe with small models, batches and lengths. Its run takes a minute on two cores, as a check."""
        return replace(self, phases=tuple(replace(phase, config=_small(phase.config)) for phase in self.phases))


FAMILIES = (
    "bert.published_recipes:RECIPES",
    "extensions.replaced_tokens.recipes:RECIPES",
    "extensions.distillation.recipes:RECIPES",
    "bert.small_recipes:RECIPES",
    "extensions.gpt.recipes:RECIPES",
)
"""the recipes of each family by name, in the order in which they are listed"""


class Recipes(Mapping[str, Recipe]):
    """The recipes of all families by name. NAME_phase1 is the first phase of NAME as a separate recipe."""

    @functools.cached_property
    def _every(self) -> dict[str, Recipe]:
        return {name: recipe for family in FAMILIES for name, recipe in rows.load(family).items()}

    def __getitem__(self, name: str) -> Recipe:
        return self._every[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._every)

    def __len__(self) -> int:
        return len(self._every)


RECIPES = Recipes()


def predictions(model: ModelConfig, sequence: int, masked: float = MASKED) -> int:
    """Return how many tokens of a sequence to predict, as `data.tfrecords` does. masked: share of the tokens."""
    return sequence if model.causal else math.ceil(round(sequence * masked, 6))


def phase(config: PretrainConfig, length: int = 0, predicted: int = 0) -> Phase:
    """Return a phase without a name; `recipe` names it."""
    return Phase(name="", config=config, length=length, predicted=predicted)


def recipe(family: dict[str, Recipe], name: str, about: str, *phases: Phase) -> Recipe:
    """Return a recipe and add it to `family`. If there are several phases, also add each phase as a recipe."""
    names = [f"{name}_phase{number}" for number in range(1, len(phases) + 1)] if len(phases) > 1 else [name]
    named = [replace(phases[0], name=names[0])]
    for before, own, later in zip(names, names[1:], phases[1:], strict=False):
        named.append(replace(later, name=own, after=before, config=replace(later.config, init=FROM_CHECKPOINT)))
    whole = Recipe(name=name, about=about, phases=tuple(named))
    family[name] = whole
    if len(named) > 1:
        family.update(
            (part.name, Recipe(name=part.name, about=part.about, phases=(part,), part_of=name)) for part in named
        )
    return whole


def variant(
    family: dict[str, Recipe], base: Recipe, name: str, about: str, *changes: Mapping[str, Any], **sections: Any
) -> Recipe:
    """Return a new recipe that changes values in the phases of `base`.

    changes: for each phase, values by the dotted names of their fields. sections: new sections for all phases.
    """
    different = changes or [NO_FIELDS] * len(base.phases)
    phases = [
        replace(part, config=changed(replace(part.config, **sections), fields))
        for part, fields in zip(base.phases, different, strict=True)
    ]
    return recipe(family, name, about, *phases)


def changed(config: PretrainConfig, fields: Mapping[str, Any]) -> PretrainConfig:
    for path, value in fields.items():
        section, _, field = path.partition(".")
        config = replace(config, **{section: replace(getattr(config, section), **{field: value})})
    return config


def bert_model(layers: int, width: int) -> ModelConfig:
    return ModelConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=width // 64, intermediate_size=4 * width
    )


SIZES = {
    "tiny": bert_model(2, 128),
    "mini": bert_model(4, 256),
    "small": bert_model(4, 512),
    "medium": bert_model(8, 512),
    "base": bert_model(12, 768),
    "large": bert_model(24, 1024),
    "1b3": replace(bert_model(24, 2048), norm_placement="pre"),  # these two as in Megatron-LM
    "3b9": replace(bert_model(48, 2560), norm_placement="pre"),
}


AUTO = PrecisionConfig(compute="auto", xla=None)
FLOAT32 = PrecisionConfig(compute="float32", xla=False)
FLOAT16 = PrecisionConfig(compute="float16", compress=True, xla=True)
BFLOAT16 = PrecisionConfig(compute="bfloat16", xla=True)
FROM_CHECKPOINT = InitConfig(checkpoint=None)  # the recipe continues an earlier run, which the command must name


def rounded(size: str) -> ModelConfig:
    """Return the model with its vocabulary of 30,522 padded for tensor cores."""
    return replace(SIZES[size], vocab_multiple=128)


def _small(config: PretrainConfig) -> PretrainConfig:
    model = replace(config.model, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128)
    return replace(
        config,
        model=model,
        batch=BatchConfig(total=16, per_device=4),
        optimizer=replace(config.optimizer, first_step=0, warmup_steps=2, warmup_start=0, decay_steps=0),
        run=replace(config.run, steps=8, log_every=2, save_every=4, evaluate_every=4, evaluate_sequences=16),
        init=InitConfig(),
        distill=replace(config.distill, relation_heads=min(config.distill.relation_heads, 4)),
    )


# The command line


LATER = re.compile(r"--phase([1-9])\.(.+)", re.DOTALL)  # a flag of one phase
# Fields that cannot have one value for all phases, each with the reason.
OF_ONE_PHASE = {
    "init.checkpoint": "each phase starts from the one before",
    "init.step": "each phase starts from the one before",
    "init.layers": "each phase starts from all layers of the one before",
    "optimizer.first_step": "the phases have different places in the schedule",
}
OF_THE_PROCESS = ("parallel.", "run.device", "run.communicator", "run.deterministic", "run.profile")  # of all phases


def choose(argv: Sequence[str], *, prog: str, description: str, small: bool = False) -> list[Phase]:
    """Return the phases of the recipe that the first argument names. Change them by the flags that follow.

    `--config FILE` gives recipe and flags (`bert.core.config_file`). A flag is for every phase,
    `--phase2.section.field` for one phase. If there are several phases, `--data.train` needs a folder for each, and
    `--run.directory RUN` means RUN/phase1, RUN/phase2, ... small: return the miniature. Raise UsageError for a mistake
    in `argv` or the file, and for a flag that does not fit its phases.
    """
    about = {name: recipe.about for name, recipe in RECIPES.items()}
    given = config_file.given(argv, PretrainConfig, prog=prog)
    phases = []
    with given.named():
        name = cli.named(given.words, about, prog=prog, description=description)
        chosen = RECIPES[name].miniature() if small else RECIPES[name]
        for own, part in zip(flags_of_phases(given.words[1:], chosen), chosen.phases, strict=True):
            config = cli.override(part.config, own, prog=f"{prog} {name}", description=description)
            unused_flags.check(config, given.flags(own))
            phases.append(replace(part, config=config, flagged=given.model_flags(own)))
    return phases


def flags_of_phases(argv: Sequence[str], recipe: Recipe) -> list[list[str]]:
    """Return the flags of each phase. Raise UsageError for a flag that does not fit its phases."""
    if len(recipe.phases) == 1:
        return [list(argv)]
    words: list[list[str]] = [[] for _ in recipe.phases]
    for flag, *values in _grouped(argv):
        if match := LATER.fullmatch(flag):
            number, own = int(match[1]), f"--{match[2]}"
            _check_of_one(flag, number, own.removeprefix("--").partition("=")[0], recipe)
            words[number - 1] += [own, *values]
        else:
            for phase_words, more_words in zip(words, _of_all(flag, values, recipe), strict=True):
                phase_words += more_words
    return words


def _alone(recipe: Recipe) -> str:
    return " and ".join(f"{part.name} alone" for part in recipe.phases)


def _check_of_one(flag: str, number: int, key: str, recipe: Recipe) -> None:
    """Raise UsageError if a flag cannot be given for phase `number` alone. key: its name without the phase."""
    if number > len(recipe.phases):
        raise UsageError(f"{flag}: {recipe.name} has {len(recipe.phases)} phases")
    if key.startswith(OF_THE_PROCESS):
        raise UsageError(f"{flag}: one process runs all phases; give --{key}, or run {_alone(recipe)}")
    if key in ("init.checkpoint", "init.step", "init.layers") and number > 1:
        raise UsageError(f"{flag}: {OF_ONE_PHASE[key]}; leave it out, or run {recipe.phases[number - 1].name} alone")


def _of_all(flag: str, values: list[str], recipe: Recipe) -> list[list[str]]:
    """Return, for each phase, what a flag without a phase means. Raise UsageError if it cannot be for all phases."""
    key, assigned, value = flag.removeprefix("--").partition("=")
    folders = [value, *values] if assigned else values
    if key in OF_ONE_PHASE:
        raise UsageError(f"--{key}: {OF_ONE_PHASE[key]}; give --phase1.{key}, or run {_alone(recipe)}")
    if key == "data.train":
        if len(folders) != len(recipe.phases):
            lengths = " and ".join(str(part.sequence) for part in recipe.phases)
            raise UsageError(
                f"--data.train has {len(folders)} of {len(recipe.phases)} folders; give one for each phase of "
                f"{recipe.name}, with sequences of {lengths} tokens"
            )
        return [[f"--data.train={folder}"] for folder in folders]
    if key == "run.directory" and len(folders) == 1 and folders[0]:
        return [
            [f"--run.directory={os.path.join(folders[0], f'phase{number + 1}')}"]
            for number in range(len(recipe.phases))
        ]
    return [[flag, *values]] * len(recipe.phases)


def _grouped(argv: Sequence[str]) -> Iterator[list[str]]:
    """Yield each flag with the values that follow it."""
    group: list[str] = []
    for word in argv:
        if word.startswith("--") and group:
            yield group
            group = []
        group.append(word)
    if group:
        yield group


def with_architectures(phases: Sequence[Phase], begun: Callable[[Path], bool] = lambda run: False) -> list[Phase]:
    """Return the phases, each with the architecture of the weights that it starts from.

    begun: returns whether a run directory already has weights; these then give the architecture. Raise UsageError if a
    flag contradicts the architecture, or if a loss needs a teacher and there is none; InputError if the weights are
    missing.
    """
    completed: list[Phase] = []
    for part in phases:
        if part.config.distill.distances and not part.config.distill.teacher:
            raise UsageError(f"{part.name} learns from a trained model; give --distill.teacher RUN")
        config, flagged = part.config, part.flagged
        model, start, run = config.model, config.init.checkpoint, config.run.directory
        if run is not None and isinstance(start, Path) and begun(run):
            model = replace(model.of_weights(run), **{name: getattr(model, name) for name in flagged})
        elif completed:
            model = model.with_architecture(completed[-1].config.model, completed[-1].name, flagged)
        elif isinstance(start, Path):
            # With init.step it goes on from a run that has taken these layers already.
            layers = () if config.init.step else config.init.layers
            model = model.of_weights(start, flagged, layers=layers)
        completed.append(replace(part, config=replace(config, model=model)))
    return completed
