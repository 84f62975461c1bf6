"""Trained models and training from Python: text in, plain results out.

    import bert

    model = bert.load("workdir/squad/bert_mini")
    print(model.uses)                                      # ('answer', 'embed')
    answer = model.answer("Who wrote it?", "It was written by Ada Lovelace.")
    print(answer.text, answer.probability)

`load` takes any run directory: of bert.pretrain, squad.train and tasks.train, or an import. What a model can do follows
from its head; `uses` names its methods. Each method takes one text and returns one result, or a list of texts and
returns a list of results, which are computed in batches. The results are those of the commands, by the same code.

    run = bert.train("classify", {"data.train": "train.tsv", "init.checkpoint": "workdir/pretrain/bert_mini"})
    model = bert.load(run)

`train` trains a recipe as the command does; the settings are the flags. `recipe` gives the configuration instead,
a frozen dataclass, which `train` takes too. Mistakes raise the errors of bert.core.errors, which are ValueErrors.
"""

import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypedDict, Unpack, get_args, overload

import numpy as np

from bert import fill_mask, hidden_states, recipes
from bert.core import cli, library_log, object_urls, rows, unused_flags
from bert.core.errors import UsageError
from bert.embedding import Pool
from bert.engines.engine import Engine
from bert.hardware import devices
from bert.hardware.choices import Compute, DeviceName, EngineName
from bert.hardware.devices import Device
from bert.heads import KINDS, MASKED_LM
from bert.masked_words import MaskedWords
from bert.runs import Run

CAUSAL = "extensions.gpt.api:Causal"  # the Model of a run of a causal model
SEARCH = "extensions.search.index:search"  # what `Model.search` does
Texts = list[str] | tuple[str, ...]
Functions = dict[str, Callable[..., Iterable[Any]]]
Sentences = list[str] | list[list[str]] | list[str | list[str]]  # each a text or a list of its words


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A part of a text that may be the answer: text[start:end]. It is empty for no answer."""

    text: str
    start: int
    end: int
    probability: float
    passage: int = 0
    """number of its text, of several that were read together"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The answer to a question, as squad.predict writes it."""

    text: str
    """a part of the text; empty if it has no answer"""
    start: int
    """its first character in the text"""
    end: int
    """the character behind its last one"""
    probability: float
    """among the candidates"""
    candidates: tuple[Candidate, ...] = field(repr=False)
    """the best answers, best first; one is empty where the model knows questions without an answer"""
    null_odds: float
    """score of no answer minus that of the best one"""
    passage: int = 0
    """number of its text, of several that were read together"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Class:
    """The class of a text."""

    label: str
    probabilities: dict[str, float]
    windows: int = 1
    """into how many parts the text was divided"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Labels:
    """The labels of a text, any number of them."""

    labels: list[str]
    probabilities: dict[str, float]
    """of all labels of the model"""
    windows: int = 1
    """into how many parts the text was divided"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """The choice that is right."""

    label: int
    """its number, from 0"""
    probabilities: list[float]
    """of all choices"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tagged:
    """A sentence with a tag for each word."""

    words: list[str]
    tags: list[str]
    probabilities: list[float]
    """of the tags"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Word:
    """A word that may stand at a mask."""

    word: str
    probability: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Continuation:
    """What follows a prompt."""

    text: str
    tokens: list[int]
    end: str
    """why there is no more of it: end (the model ended it), max_tokens, or positions (the model has no more)"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    """A passage that was found."""

    score: float
    """cosine, scalar product, or distance with a minus, of its vector and that of the query"""
    id: str
    """that of its text"""
    title: str
    start: int
    """its first character in the text"""
    end: int
    """the character behind its last one"""
    text: str
    """the passage"""


class Searched(Protocol):
    """An open index: `Index` of extensions/search/index.py."""

    def search(self, features: np.ndarray, top: int) -> list[list[Hit]]:
        """Return the best passages for each query, best first. features: of the queries [q, D]."""


class Sampling(TypedDict, total=False):
    """Types of the options of `Model.generate`."""

    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    seed: int
    cut: bool


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a model computes: arguments of `load`."""

    compute: Compute = "float32"
    batch: int = 32
    engine: EngineName = "tensorflow"


class Model:
    """A trained model. `uses` lists the methods that it has."""

    def __init__(self, run: Run, settings: Settings, encoder: Engine | None, own: Functions) -> None:
        """encoder: the run's encoder with its weights; None for a causal model, which gives no hidden states.

        own: by method, the functions of this kind of model; each computes the results of many items.
        """
        self.run, self.settings, self.encoder = run, settings, encoder
        self._functions = own | ({"embed": self._embed} if encoder else {})
        self._readers: dict[tuple[Any, ...], hidden_states.Reader] = {}

    @property
    def uses(self) -> tuple[str, ...]:
        """What the model can do: the names of its methods."""
        return tuple(self._functions)

    def __repr__(self) -> str:
        return f"<bert model {self.run.path}: {', '.join(self.uses)}>"

    @overload
    def answer(self, question: str, text: str) -> Answer: ...
    @overload
    def answer(self, question: Texts, text: str | Texts) -> list[Answer]: ...
    @overload
    def answer(self, question: str, text: Texts) -> list[Answer]: ...
    def answer(self, question: str | Texts, text: str | Texts) -> Answer | list[Answer]:
        """Answer a question from a text of any length; or many questions, each from its text or all from one text."""
        return self._ask("answer", *_together(question=question, text=text))

    def answer_among(self, question: str, texts: Texts) -> Answer:
        """Answer a question from several texts together. `passage` is the number of the text that has the answer.

        The probabilities are a softmax over the candidates of all texts.
        """
        alone, several = _many("texts", texts)
        if alone or not several:
            raise UsageError("texts is no list of texts, or empty; give a list")
        if not isinstance(question, str):
            raise UsageError(f"question is {question!r}; give a text")
        answer: Answer = self._ask("answer", True, [question], [several], among=True)
        return answer

    @overload
    def classify(self, text: str, second: str | None = None) -> Class: ...
    @overload
    def classify(self, text: Texts, second: Texts | None = None) -> list[Class]: ...
    def classify(self, text: str | Texts, second: str | Texts | None = None) -> Class | list[Class]:
        """Return the class of a text or of a pair of texts, or of each of many."""
        return self._ask("classify", *_pairs(text, second))

    @overload
    def label(self, text: str, second: str | None = None) -> Labels: ...
    @overload
    def label(self, text: Texts, second: Texts | None = None) -> list[Labels]: ...
    def label(self, text: str | Texts, second: str | Texts | None = None) -> Labels | list[Labels]:
        """Return the labels of a text or of a pair of texts, or of each of many. Any number of labels can be right."""
        return self._ask("label", *_pairs(text, second))

    @overload
    def regress(self, text: str, second: str | None = None) -> float: ...
    @overload
    def regress(self, text: Texts, second: Texts | None = None) -> list[float]: ...
    def regress(self, text: str | Texts, second: str | Texts | None = None) -> float | list[float]:
        """Return the number that the model gives a text or a pair of texts, or each of many."""
        return self._ask("regress", *_pairs(text, second))

    @overload
    def choose(self, text: str, choices: Texts) -> Chosen: ...
    @overload
    def choose(self, text: Texts, choices: Sequence[Texts]) -> list[Chosen]: ...
    def choose(self, text: str | Texts, choices: Texts | Sequence[Texts]) -> Chosen | list[Chosen]:
        """Return which of several continuations of a text, or of several answers, is right; or do so for many texts."""
        alone, texts = _many("text", text)
        lists = [_many("choices", one)[1] for one in ([choices] if alone else _listed("choices", choices))]
        return self._ask("choose", alone, texts, _of_length("choices", lists, len(texts)))

    @overload
    def tag(self, text: str) -> Tagged: ...
    @overload
    def tag(self, text: Sentences) -> list[Tagged]: ...
    def tag(self, text: str | Sentences) -> Tagged | list[Tagged]:
        """Return a tag for each word of a sentence, or of each of many sentences.

        A sentence is a text, which is divided at white space, or a list of its words. `tag([["New", "York"]])` is one
        sentence of two words; `tag(["New", "York"])` is two sentences.
        """
        return self._ask("tag", isinstance(text, str), [text] if isinstance(text, str) else _listed("text", text))

    @overload
    def fill(self, text: str, top: int = 5) -> list[list[Word]]: ...
    @overload
    def fill(self, text: Texts, top: int = 5) -> list[list[list[Word]]]: ...
    def fill(self, text: str | Texts, top: int = 5) -> list[list[Word]] | list[list[list[Word]]]:
        """Return the most likely words for each [MASK] (RoBERTa: <mask>) of a text, or of many texts, best first."""
        if top < 1:
            raise UsageError(f"top is {top}; give 1 at least")
        return self._ask("fill", *_many("text", text), top=top)

    def embed(
        self,
        text: str | Texts,
        pool: Pool = "auto",
        layer: int = -1,
        length: int | None = None,
        prompt: str | None = None,
    ) -> np.ndarray:
        """Return the features of a text [D], or of many texts [n, D].

        pool: mean, cls or max over the tokens; auto: as the model's configuration says, else mean. layer: -1 is the
        last one. length: number of tokens to cut longer texts to; None: as many as the model reads. prompt: name of the
        model's prompt to put before each text, such as query or document; None: its default prompt.
        """
        if pool == "none":
            raise UsageError('pool is "none", which gives the states of all tokens; see python -m bert.encode')
        _check(pool=(pool, Pool))
        alone, texts = _many("text", text)
        found = self._ask("embed", False, texts, pool=pool, layer=layer, length=length, prompt=prompt)
        if alone:
            return found[0]
        return np.stack(found) if found else np.zeros((0, self._reader(pool, layer, length).width), np.float32)

    @overload
    def search(self, index: str | Path | Searched, query: str, top: int = 10) -> list[Hit]: ...
    @overload
    def search(self, index: str | Path | Searched, query: Texts, top: int = 10) -> list[list[Hit]]: ...
    def search(self, index: str | Path | Searched, query: str | Texts, top: int = 10) -> list[Hit] | list[list[Hit]]:
        """Return the passages of an index that are nearest to a query, best first; or do so for each of many queries.

        index: the folder, whose files are checked at each call; or the result of `Index.open`, which checks them once.
        Raise InputError if another model made the index, IntegrityError if it is damaged.
        """
        if top < 1:
            raise UsageError(f"top is {top}; give 1 at least")
        alone, queries = _many("query", query)
        hits: list[list[Hit]] = rows.load(SEARCH)(self, index, queries, top)
        return hits[0] if alone else hits

    @overload
    def generate(self, prompt: str, **options: Unpack[Sampling]) -> Continuation: ...
    @overload
    def generate(self, prompt: Texts, **options: Unpack[Sampling]) -> list[Continuation]: ...
    def generate(
        self,
        prompt: str | Texts,
        *,
        max_tokens: int = 100,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        cut: bool = False,
    ) -> Continuation | list[Continuation]:
        """Return the continuation of a prompt, or of each of many prompts.

        The options are the flags of python -m bert.generate. Each prompt uses different random numbers, so equal
        prompts are continued differently.
        """
        given = Sampling(max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, cut=cut)
        return self._ask("generate", *_many("prompt", prompt), options=given)

    def _ask(self, use: str, alone: bool, *items: Sequence[Any], **settings: Any) -> Any:
        """Return the results for many items. alone: there is one item; return its result only."""
        if use not in self.uses:
            can = " and ".join(self.uses)
            raise UsageError(f"{self.run.path}: this model has no {use}; it has {can}")
        found = list(self._functions[use](*items, **settings)) if items[0] else []
        return found[0] if alone else found

    def _reader(self, pool: Pool, layer: int, length: int | None) -> hidden_states.Reader:
        how = (pool, layer, length)
        if how not in self._readers:
            batch = self.settings.batch
            self._readers[how] = hidden_states.Reader(
                self.run, self.encoder, layers=(layer,), pool=pool, batch=batch, length=length, compiled=False
            )
        return self._readers[how]

    def _embed(
        self, texts: list[str], pool: Pool, layer: int, length: int | None, prompt: str | None
    ) -> Iterable[np.ndarray]:
        reader = self._reader(pool, layer, length)
        reader.truncated = 0
        for encoded in reader.encode_all(texts, prompt):
            yield encoded.features[0]
        if cut := reader.truncated:
            many = f"{cut:,} of {len(texts):,} have more than {reader.length} tokens and are cut"
            print(f"note: the texts: {many}", file=sys.stderr)


class Pretrained(Model):
    """A model of bert.pretrain, or an import without a head of a task."""

    def __init__(self, run: Run, settings: Settings) -> None:
        self.words: MaskedWords | None = None
        if run.has(MASKED_LM):
            self.words = MaskedWords(run, settings.compute, settings.batch, settings.engine, compiled=False)
        encoder = self.words.encoder if self.words else run.encoder(settings.compute, settings.engine)
        super().__init__(run, settings, encoder, {"fill": self._fill} if self.words else {})

    def _fill(self, texts: list[str], top: int) -> Iterable[list[list[Word]]]:
        assert self.words is not None, "it is one of the functions"
        where = [f"text {number}" for number in range(len(texts))]
        for filled in fill_mask.fill(self.words, texts, top, where):
            yield [[Word(**word) for word in words] for words in filled["masks"]]


def load(
    run: str | Path,
    *,
    compute: Compute = "float32",
    batch: int = 32,
    engine: EngineName = "tensorflow",
    device: DeviceName = "auto",
) -> Model:
    """Load the best checkpoint of a run directory or, if none is recorded as best, the newest one.

    compute: data type of matrix products. batch: maximum number of texts, or windows of texts, to compute at once.
    engine: what computes the encoder: tensorflow, openvino (on CPUs), or auto, which is openvino if it can compute the
    model. device: for the whole process; the first model chooses it. XLA compiles nothing here, as in the service,
    because it would take seconds for each new shape of a batch. So results equal the commands' results up to rounding.

    Raise InputError if it is no run directory, IntegrityError if it is damaged, UsageError if the engine cannot compute
    the model.
    """
    _check(compute=(compute, Compute), engine=(engine, EngineName), device=(device, DeviceName))
    if type(batch) is not int or batch < 1:
        raise UsageError(f"batch is {batch!r}; give a number of texts")
    chosen, settings = _device(device), Settings(compute=compute, batch=batch, engine=engine)
    opened = Run.open(object_urls.path(run))
    if opened.config.causal:
        causal: Model = rows.load(CAUSAL)(opened, settings, chosen)
        return causal
    return of_run(opened, settings)


def of_run(run: Run, settings: Settings) -> Model:
    """Load the model of an opened run that is not causal. Raise as `load` does."""
    if run.head is None:
        return Pretrained(run, settings)
    made: Model = rows.load(KINDS[run.head.kind].python)(run, settings)
    return made


@functools.cache  # TensorFlow's devices cannot be changed once it has a tensor
def _device(kind: DeviceName) -> Device:
    with library_log.withheld():
        return devices.choose(kind, flag="device")


def recipe(name: str, settings: Mapping[str, Any] | None = None) -> Any:
    """Return the configuration, a frozen dataclass, of a recipe of bert.pretrain, tasks.train or squad.train.

    settings: values by the names of the flags, such as {"data.train": "train.tsv", "batch.total": 64}. Raise UsageError
    for an unknown name, setting or value. Raise it also for a recipe of several phases: name one phase, which is a
    recipe too.
    """
    _, make = _chosen(name)
    return cli.override(make(), _words(settings or {}), prog=name, description=None)


def train(name: str, config: Any) -> Path:
    """Train a recipe; return the run directory.

    config: settings as in `recipe`, which count as flags of the command; or a configuration, whose fields of the model
    count as flags if they differ from the recipe's. (A model that starts from a checkpoint has the checkpoint's
    architecture.) As with the command, a stopped run goes on, and a finished run is only checked. Raise as the command
    does.
    """
    command, _ = _chosen(name)
    flagged = None
    if isinstance(config, Mapping):
        given, config = config, recipe(name, config)
        unused_flags.check(config, given)
        flagged = cli.flags_in(_words(given), "model")
    run: Path = rows.load(f"{command}:run")(name, config, flagged)
    return run


def _chosen(name: str) -> tuple[str, Callable[[], Any]]:
    """Return the command that trains a recipe, and the function that makes its configuration."""
    found = {recipe.name: ("bert.pretrain", recipe.only_config) for recipe in recipes.RECIPES.values()}
    for command in dict.fromkeys(kind.command for kind in KINDS.values()):
        found |= {own: (command, make) for own, make in rows.load(f"{command}:RECIPES").items()}
    return found[cli.named([name], dict.fromkeys(found, ""), prog="bert", description=None)]


def _words(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as command-line arguments."""
    words: list[str] = []
    for name, value in settings.items():
        values = value if isinstance(value, list | tuple) else [value]
        shown = [str(one).lower() if one is None or isinstance(one, bool) else str(one) for one in values]
        words += [f"--{name}", *shown] if len(shown) != 1 else [f"--{name}={shown[0]}"]
    return words


def _many(name: str, value: Any) -> tuple[bool, list[str]]:
    """Return whether a value is a single text, and its texts. name: the argument's. Raise UsageError otherwise."""
    alone = isinstance(value, str)
    texts = [value] if alone else _listed(name, value)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise UsageError(f"{name}[{number}] is {text!r}; give a text")
    return alone, texts


def _listed(name: str, value: Any) -> list[Any]:
    """Return the items of a value. name: the argument's. Raise UsageError if the value has no items, or no order."""
    if isinstance(value, Mapping | Set) or not isinstance(value, Iterable):  # the order of a set is by chance
        raise UsageError(f"{name} is {value!r}; give a text, or a list of texts")
    return list(value)


def _check(**chosen: tuple[Any, Any]) -> None:
    """Raise UsageError if a value is not allowed by its type. chosen: value and type of each argument, by name."""
    for name, (value, kind) in chosen.items():
        if value not in get_args(kind):
            raise UsageError(f"{name} is {value!r}; give one of {', '.join(get_args(kind))}")


def _of_length(name: str, values: list[Any], length: int) -> list[Any]:
    if len(values) != length:
        raise UsageError(f"{name} has {len(values)} entries for {length} texts; give as many")
    return values


def _pairs(text: Any, second: Any) -> tuple[bool, list[str], Sequence[str | None]]:
    """Return whether there is a single text or pair, the first texts, and the second texts."""
    alone, texts = _many("text", text)
    if second is None:
        return alone, texts, [None] * len(texts)
    return alone, texts, _of_length("second", _many("second", second)[1], len(texts))


def _together(**given: Any) -> tuple[Any, ...]:
    """Return whether all given values are single texts, and a list for each value, all of the same length.

    Where one value is a list, single texts are repeated.
    """
    columns = {name: _many(name, value) for name, value in given.items()}
    length = max((len(texts) for alone, texts in columns.values() if not alone), default=1)
    filled = [texts * length if alone else _of_length(name, texts, length) for name, (alone, texts) in columns.items()]
    return (all(alone for alone, _ in columns.values()), *filled)
