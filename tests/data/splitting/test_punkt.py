"""Sentences end where NLTK's Punkt ends them: on made-up text of every nasty kind, and on real text."""

import bz2
import html
import time
from collections import defaultdict
from itertools import islice
from random import Random

import pytest
from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

from data.splitting import punkt, sentences

WORDS = ["Ash", "ash", "Mr", "mr", "St", "e.g", "p.m", "U.S", "well-known", "no", "J", "j", "I", "x1", "It", "the"]
WORDS += ["The", "1999", "3", "-4,5", ".5", "1.000,50", "_"]
WORDS += ["\u00c9", "\u00e9t\u00e9", "\u0416", "\u0130", "\u039f\u0394\u039f\u03a3", "\u4e2d\u6587", "\u0665"]
WORDS += ["\u00b2", "\u2167", "\u24b6", "\u0301", "\u203f", "\U0001e4f3", "\U00010d43", "\U0001d7d8"]  # letters to some
MARKS = [*".?!,;:-()[]{}\"'`*@&#/\u2018\u2019\u201c\u201d\xab\xbb\u2026\u2014"]
MARKS += ["..", "...", "--", "!?", '."', ".)", ".:", ".,"]
ENDS = [". ", ". ", ". ", " ", "", ". . ", "... ", "? ", '." ', "., ", ".) ", ".-", "--"]
TYPES = [word.lower() for word in WORDS] + ["##number##", ".", "..", "mr.", "known", "!", "?", ",", "'", "--", ""]


def oracle(made: PunktParameters, paragraph: str) -> list[str]:
    return PunktSentenceTokenizer(made).tokenize(paragraph)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_dense_rules_and_texts_split_as_by_nltk(seed):
    random = Random(seed)
    for _ in range(50):
        made = PunktParameters()
        made.abbrev_types = set(random.sample(TYPES, random.randrange(12)))
        made.sent_starters = set(random.sample(TYPES, random.randrange(12)))
        made.collocations = {(random.choice(TYPES), random.choice(TYPES)) for _ in range(random.randrange(300))}
        known = random.sample(TYPES, random.randrange(len(TYPES)))
        made.ortho_context = defaultdict(int, {word: random.randrange(0, 128, 2) for word in known})
        splitter = punkt.Splitter(made)
        for number in range(20):
            if number % 2:
                words = [random.choice(WORDS) + random.choice(ENDS) for _ in range(random.randrange(40))]
            else:
                words = [random.choice(random.choice((WORDS, MARKS, ENDS))) for _ in range(random.randrange(60))]
            paragraph = " ".join("".join(words).split())
            assert splitter.sentences(paragraph) == oracle(made, paragraph)


def test_an_end_within_the_next_word_counts_as_in_nltk():
    made = PunktParameters()
    made.abbrev_types = {"mr"}
    hard = ("for carbon .'C'. It is", "?!? No. ?", '."A".', "Ask Mr. Ash?\"'--He. \" 'I'")
    for paragraph in ("Ask Mr. Ash now.", 'Ask Mr. Ash?" now.', *hard):
        for rules in (made, PunktParameters()):
            assert punkt.Splitter(rules).sentences(paragraph) == oracle(rules, paragraph)
    assert punkt.Splitter(made).sentences('Ask Mr. Ash?" now.') == ["Ask Mr.", 'Ash?"', "now."]


def test_what_is_remembered_is_bounded_and_changes_nothing(monkeypatch):
    monkeypatch.setattr(punkt, "MAX_KNOWN", 7)
    made = PunktParameters()
    made.abbrev_types = {f"no{n}" for n in range(0, 300, 3)}
    long = "x" * punkt.MAX_KNOWN_LENGTH
    splitter = punkt.Splitter(made)
    for n in range(300):
        paragraph = f"See No{n}. Ash{n} in ({n}. It){n} or {long}{n}. {long}."
        assert splitter.sentences(paragraph) == oracle(made, paragraph)
        assert len(splitter._cached) <= 7 and len(splitter._always) <= 7
        assert all(len(piece) <= punkt.MAX_KNOWN_LENGTH for piece in [*splitter._cached, *splitter._always])


def test_real_text_is_split_as_by_nltk_but_faster(shared_data):
    made = sentences.load(shared_data / "nltk" / "tokenizers" / "punkt_tab" / "english")
    dump = shared_data / "wikipedia" / "enwiki-pages-articles-slice.xml.bz2"
    with bz2.open(dump, "rt", encoding="utf-8", errors="replace") as stream:  # mark-up and all: the nastier, the better
        paragraphs = [" ".join(html.unescape(line).split()) for line in islice(stream, 6_000)]
    splitter = punkt.Splitter(made)
    seconds = []
    for _ in range(3):  # of which the best counts: garbage of other tests may be collected in one
        begin = time.process_time()
        found = [splitter.sentences(paragraph) for paragraph in paragraphs]
        seconds.append(time.process_time() - begin)
    begin = time.process_time()
    for paragraph, split in zip(paragraphs, found, strict=True):
        assert split == oracle(made, paragraph)
    assert sum(map(len, found)) > 5_000
    assert min(seconds) < (time.process_time() - begin) / 2  # a tenth to a fifth, measured
