"""A small grammar that generates facts about invented people, towns, rivers, ships and companies.

The demo and many tests need text that is free, reproducible and of any size, and that a tiny model can learn to read.
Names are made of syllables, so no model knows the answers in advance. A scene has several facts with answers of the
same kind, so a question is answered only by the sentence with the right relation, in one of several wordings. In some
scenes two sentences have the right relation, and only one of them is about the right thing.
"""

import zlib
from dataclasses import dataclass
from random import Random
from typing import Literal

Split = Literal["train", "dev"]

DEV_SHARE = 4
"""One in this many names is reserved for the dev questions and occurs nowhere else."""

FIRST = [onset + rhyme for onset in "bdklmt" for rhyme in ("al", "en", "ir", "or")]
LAST = {
    "person": ["a", "da", "ka", "mo", "na", "ra", "ric", "to"],
    "town": ["bury", "by", "dale", "field", "ford", "ham", "port", "wick"],
    "river": ["aune", "ette", "isse", "oise", "omme", "une", "wen", "yeo"],
    "ship": ["aris", "crest", "hawk", "ion", "ora", "star", "wake", "wing"],
    "company": ["bank", "co", "corp", "gard", "max", "mill", "tec", "works"],
}
KINDS = tuple(LAST)
ARTICLE = {"river": "the ", "ship": "the "}
GOODS = [
    *("amber", "bells", "cheese", "clocks", "coal", "cotton", "glass", "honey", "iron", "lamps", "lead", "marble"),
    *("oats", "oil", "pearls", "plums", "salt", "silk", "soap", "sugar", "tea", "tin", "wheat", "wool"),
]

# Each block is one relation: the kinds of {s} and {o}; statements; questions for {o}; questions for {s}.
TABLE = """
company person
{o} founded {s}. | {s} was founded by {o}.
Who founded {s}?
What was founded by {o}? | Which company was founded by {o}?

company person
{o} led {s}. | {s} was led by {o}.
Who led {s}?
What was led by {o}? | Which company was led by {o}?

company town
{s} is based in {o}. | The town that {s} is based in is {o}.
Where is {s} based? | Which town is {s} based in?
What is based in {o}? | Which company is based in {o}?

company goods
{s} is known for {o}. | {s} is well known for its {o}.
What is {s} known for?
What is known for {o}? | Which company is known for its {o}?

ship person
{o} built {s}. | {s} was built by {o}.
Who built {s}?
What was built by {o}? | Which ship was built by {o}?

ship person
{o} commanded {s}. | {s} was commanded by {o}.
Who commanded {s}?
What was commanded by {o}? | Which ship was commanded by {o}?

ship town
{s} was moored in {o}. | The town that {s} was moored in is {o}.
Where was {s} moored? | Which town was {s} moored in?
What was moored in {o}? | Which ship was moored in {o}?

ship goods
{s} was loaded with {o}. | {s} was heavily loaded with {o}.
What was {s} loaded with?
What was loaded with {o}? | Which ship was loaded with {o}?

town person
{o} governed {s}. | {s} was governed by {o}.
Who governed {s}?
What was governed by {o}? | Which town was governed by {o}?

town person
{o} painted {s}. | {s} was painted by {o}.
Who painted {s}?
What was painted by {o}? | Which town was painted by {o}?

town river
{o} runs through {s}. | {s} is where {o} runs through.
What runs through {s}? | Which river runs through {s}?
Where does {o} run through? | Which town does {o} run through?

town goods
{s} is famous for {o}. | {s} is most famous for its {o}.
What is {s} famous for?
What is famous for {o}? | Which town is famous for its {o}?

river person
{o} explored {s}. | {s} was explored by {o}.
Who explored {s}?
What was explored by {o}? | Which river was explored by {o}?

river person
{o} bridged {s}. | {s} was bridged by {o}.
Who bridged {s}?
What was bridged by {o}? | Which river was bridged by {o}?

river town
The source of {s} is near {o}. | {s} has its source near {o}.
Where is the source of {s}?
What has its source near {o}? | Which river has its source near {o}?

river town
The mouth of {s} is at {o}. | {s} has its mouth at {o}.
Where is the mouth of {s}?
What has its mouth at {o}? | Which river has its mouth at {o}?

person town
{s} was born in {o}. | The town that {s} was born in is {o}.
Where was {s} born? | Which town was {s} born in?
Who was born in {o}?

person town
{s} is settled in {o}. | The town that {s} is settled in is {o}.
Where is {s} settled? | Which town is {s} settled in?
Who is settled in {o}?

person company
{o} hired {s}. | {s} was hired by {o}.
Who hired {s}? | Which company hired {s}?
Who was hired by {o}?

person goods
{s} is fond of {o}. | {s} is very fond of {o}.
What is {s} fond of?
Who is fond of {o}?
"""


@dataclass(frozen=True, kw_only=True)
class Relation:
    """One kind of fact. In its sentences `{s}` is the subject and `{o}` the object."""

    subject: str
    object: str
    statements: tuple[str, ...]
    ask_object: tuple[str, ...]
    ask_subject: tuple[str, ...]


def _relation(block: str) -> Relation:
    kinds, *sentences = block.split("\n")
    subject, object = kinds.split()
    statements, ask_object, ask_subject = (tuple(line.split(" | ")) for line in sentences)
    return Relation(
        subject=subject, object=object, statements=statements, ask_object=ask_object, ask_subject=ask_subject
    )


RELATIONS = tuple(map(_relation, TABLE.strip().split("\n\n")))


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A relation between two names."""

    relation: Relation
    subject: str
    object: str

    def state(self, random: Random) -> str:
        """Return a sentence that states the fact."""
        return self._fill(random.choice(self.relation.statements))

    def ask(self, random: Random) -> tuple[str, str, str]:
        """Return a question, usually for the object, and the kind and the name of its answer."""
        if random.random() < 0.7:
            return self._fill(random.choice(self.relation.ask_object)), self.relation.object, self.object
        return self._fill(random.choice(self.relation.ask_subject)), self.relation.subject, self.subject

    def _fill(self, template: str) -> str:
        subject, object = ARTICLE.get(self.relation.subject, ""), ARTICLE.get(self.relation.object, "")
        text = template.format(s=subject + self.subject, o=object + self.object)
        return text[0].upper() + text[1:]


class Namer:
    """Generate names of one split, none of them twice."""

    def __init__(self, random: Random, split: Split) -> None:
        self._random, self._split, self._used = random, split, set[str]()

    def name(self, kind: str) -> str:
        """Return a new name for a thing of this kind."""
        while True:
            name = self._draw(kind)
            if name not in self._used and (kind == "goods" or split_of(name) == self._split):
                self._used.add(name)
                return name

    def _draw(self, kind: str) -> str:
        if kind == "goods":
            return self._random.choice(GOODS)
        return (self._random.choice(FIRST) + self._random.choice(LAST[kind])).capitalize()


def split_of(name: str) -> Split:
    """Return the split in which a name may occur. The corpus uses the names of "train"."""
    return "dev" if zlib.crc32(name.encode()) % DEV_SHARE == 0 else "train"


def scene(random: Random, split: Split, things: int, relations: int, twin: float) -> list[Fact]:
    """Return facts about `things` things of different kinds, `relations` facts for each, in random order.

    With probability `twin` there is a second thing of the first kind, with the same relations.
    """
    namer, kinds = Namer(random, split), random.sample(KINDS, things)
    facts: list[Fact] = []
    chosen = {kind: random.sample([rel for rel in RELATIONS if rel.subject == kind], relations) for kind in kinds}
    for kind in kinds + kinds[: random.random() < twin]:
        subject = namer.name(kind)
        facts += [Fact(relation=rel, subject=subject, object=namer.name(rel.object)) for rel in chosen[kind]]
    random.shuffle(facts)
    return facts


def paragraph(random: Random, facts: list[Fact], asking: float) -> list[str]:
    """Return sentences that give each fact twice, the second time with probability `asking` as a question with answer.

    A masked word in one sentence can then be predicted from the other sentence.
    """
    statements = [fact.state(random) for fact in facts]
    repeated = [_repeat(random, fact, asking) for fact in random.sample(facts, len(facts))]
    sentences = statements + repeated if random.random() < 0.7 else repeated + statements
    if random.random() < 0.2:
        random.shuffle(sentences)
    return sentences


def _repeat(random: Random, fact: Fact, asking: float) -> str:
    if random.random() >= asking:
        return fact.state(random)
    question, _, name = fact.ask(random)
    return f"{question} {name}." if random.random() < 0.5 else f"{question} {fact.state(random)}"
