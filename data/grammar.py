"""A small grammar of facts about invented people, towns, rivers, ships and companies.

Why: a demo and most tests need text that is free, reproducible and of any size, and that a tiny model can learn to read. Names are
put together from syllables, so that no sentence can be answered from knowledge; several things of one kind share a scene and each has
several facts, so that only the sentence with the right thing AND the right relation holds the answer.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

Split = Literal["train", "dev"]

DEV_SHARE = 4
"""One name in so many is kept for the dev questions, and occurs nowhere else."""

ONSETS = "b br d dr f fl g gl h k kr l m n p pr r s st t th tr v w z".split()
RHYMES = "al an ar el en er il in ol on or ul".split()
ENDINGS = {
    "person": "a da ka la mo na no ra ric ta to via".split(),
    "town": "bury by dale field ford gate ham port stead ton wick worth".split(),
    "river": "aune bec ette ilde isse oise omme une ush wen yeo yle".split(),
    "ship": "antis aris crest ella hawk ion ora ossa star ula wake wing".split(),
    "company": "bank co corp ex gard ica max mill tec tra works yards".split(),
}
GOODS = (
    "amber barley bells candles carpets chalk cheese clocks coal copper cotton flour furs glass gloves honey hats iron ink jars kettles lamps "
    "lead leather linen maps marble nails oats oil olives paper pearls pepper plums ropes salt sails shoes silk silver soap sugar tea tiles "
    "tin timber tools wax wheat wine wool"
).split()


@dataclass(frozen=True, kw_only=True)
class Relation:
    """One kind of fact: `{s}` is the thing that it is about, `{o}` what is said of it."""

    subject: str
    object: str
    statements: tuple[str, ...]
    ask_object: tuple[str, ...]
    ask_subject: tuple[str, ...]


def _relation(subject: str, object: str, statements: str, ask_object: str, ask_subject: str) -> Relation:
    split = lambda lines: tuple(line.strip() for line in lines.split("|"))  # noqa: E731
    return Relation(subject=subject, object=object, statements=split(statements), ask_object=split(ask_object), ask_subject=split(ask_subject))


RELATIONS = (
    _relation("company", "person", "{o} founded {s}. | {s} was founded by {o}. | The founder of {s} was {o}.",
              "Who founded {s}? | Who was the founder of {s}? | {s} was founded by whom?",
              "Which company did {o} found? | Which company was founded by {o}?"),
    _relation("company", "person", "{o} directs {s}. | {s} is directed by {o}. | The director of {s} is {o}.",
              "Who directs {s}? | Who is the director of {s}?",
              "Which company does {o} direct? | Which company is directed by {o}?"),
    _relation("company", "town", "{s} has its seat in {o}. | The seat of {s} is in {o}. | {o} is the seat of {s}.",
              "Where does {s} have its seat? | In which town is the seat of {s}?",
              "Which company has its seat in {o}? | {o} is the seat of which company?"),
    _relation("company", "goods", "{s} makes {o}. | The goods of {s} are {o}.",
              "What does {s} make? | What is made by {s}?",
              "Which company makes {o}?"),
    _relation("ship", "person", "{o} commands {s}. | {s} is commanded by {o}. | The captain of {s} is {o}.",
              "Who commands {s}? | Who is the captain of {s}?",
              "Which ship does {o} command? | Which ship is commanded by {o}?"),
    _relation("ship", "person", "{o} built {s}. | {s} was built by {o}. | The builder of {s} was {o}.",
              "Who built {s}? | Who was the builder of {s}?",
              "Which ship did {o} build? | Which ship was built by {o}?"),
    _relation("ship", "town", "{s} sails from {o}. | The home port of {s} is {o}. | {o} is the home port of {s}.",
              "Where does {s} sail from? | What is the home port of {s}?",
              "Which ship sails from {o}? | {o} is the home port of which ship?"),
    _relation("ship", "goods", "{s} carries {o}. | The cargo of {s} is {o}.",
              "What does {s} carry? | What is the cargo of {s}?",
              "Which ship carries {o}?"),
    _relation("town", "person", "{o} governs {s}. | {s} is governed by {o}. | The mayor of {s} is {o}.",
              "Who governs {s}? | Who is the mayor of {s}?",
              "Which town does {o} govern? | Which town is governed by {o}?"),
    _relation("town", "person", "{o} painted {s}. | {s} was painted by {o}. | The painter of {s} was {o}.",
              "Who painted {s}? | Who was the painter of {s}?",
              "Which town did {o} paint? | Which town was painted by {o}?"),
    _relation("town", "river", "{s} lies on {o}. | {o} flows through {s}. | The river of {s} is {o}.",
              "Which river flows through {s}? | On which river does {s} lie?",
              "Which town lies on {o}? | Through which town does {o} flow?"),
    _relation("town", "goods", "{s} is known for its {o}. | The market of {s} sells {o}.",
              "What is {s} known for? | What does the market of {s} sell?",
              "Which town is known for its {o}?"),
    _relation("river", "person", "{o} explored {s}. | {s} was explored by {o}. | The explorer of {s} was {o}.",
              "Who explored {s}? | Who was the explorer of {s}?",
              "Which river did {o} explore? | Which river was explored by {o}?"),
    _relation("river", "person", "{o} bridged {s}. | {s} was bridged by {o}. | The first bridge over {s} is by {o}.",
              "Who bridged {s}? | By whom is the first bridge over {s}?",
              "Which river did {o} bridge? | Which river was bridged by {o}?"),
    _relation("river", "town", "{s} rises near {o}. | The source of {s} is near {o}.",
              "Where does {s} rise? | Where is the source of {s}?",
              "Which river rises near {o}?"),
    _relation("river", "town", "{s} meets the sea at {o}. | The mouth of {s} is at {o}.",
              "Where does {s} meet the sea? | Where is the mouth of {s}?",
              "Which river meets the sea at {o}?"),
    _relation("person", "town", "{s} was born in {o}. | The birthplace of {s} is {o}. | {o} is the birthplace of {s}.",
              "Where was {s} born? | What is the birthplace of {s}?",
              "Who was born in {o}? | {o} is the birthplace of whom?"),
    _relation("person", "town", "{s} lives in {o}. | The home of {s} is in {o}.",
              "Where does {s} live? | In which town is the home of {s}?",
              "Who lives in {o}?"),
    _relation("person", "company", "{s} works for {o}. | {o} employs {s}. | The employer of {s} is {o}.",
              "Which company employs {s}? | Who is the employer of {s}?",
              "Who works for {o}?"),
    _relation("person", "goods", "{s} trades in {o}. | {s} buys and sells {o}.",
              "What does {s} trade in? | What does {s} buy and sell?",
              "Who trades in {o}?"),
)
KINDS = tuple(ENDINGS)
ARTICLE = {"river": "the ", "ship": "the "}


@dataclass(frozen=True, kw_only=True)
class Fact:
    relation: Relation
    subject: str
    object: str

    def say(self, template: str) -> str:
        """The template with the names filled in, as a sentence."""
        named = {"s": phrase(self.relation.subject, self.subject), "o": phrase(self.relation.object, self.object)}
        text = template.format(**named)
        return text[0].upper() + text[1:]

    def state(self, random: Random) -> str:
        return self.say(random.choice(self.relation.statements))


def phrase(kind: str, name: str) -> str:
    return ARTICLE.get(kind, "") + name


class Namer:
    """Hands out names of one split, none of them twice."""

    def __init__(self, random: Random, split: Split) -> None:
        self.random, self.split, self.used = random, split, set[str]()

    def name(self, kind: str) -> str:
        while True:
            word = self.random.choice(GOODS) if kind == "goods" else self._invent(kind)
            if word not in self.used:
                self.used.add(word)
                return word

    def _invent(self, kind: str) -> str:
        while True:
            r = self.random
            word = (r.choice(ONSETS) + r.choice(RHYMES) + r.choice(ENDINGS[kind])).capitalize()
            if (zlib.crc32(word.encode()) % DEV_SHARE == 0) == (self.split == "dev"):
                return word


def scene(random: Random, split: Split, things: int, facts_each: int) -> list[Fact]:
    """Facts about some things of one kind: every thing has the same relations, in mixed order."""
    namer = Namer(random, split)
    kind = random.choice(KINDS)
    relations = random.sample([r for r in RELATIONS if r.subject == kind], facts_each)
    facts = []
    for _ in range(things):
        subject = namer.name(kind)
        facts += [Fact(relation=r, subject=subject, object=namer.name(r.object)) for r in relations]
    random.shuffle(facts)
    return facts


def ask(random: Random, fact: Fact) -> tuple[str, str]:
    """A question about a fact, and its answer."""
    if random.random() < 0.33:
        return fact.say(random.choice(fact.relation.ask_subject)), fact.subject
    return fact.say(random.choice(fact.relation.ask_object)), fact.object
