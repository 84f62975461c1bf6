"""Entities and their scores are those of conlleval and seqeval; schemes are told apart and turned into IOB2."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.core.errors import InputError
from tasks import entities
from tasks.entities import Counts, Entity
from tests.tasks import seqeval_oracle

TAGS = ["O", *(f"{letter}-{kind}" for letter in "BIESLU" for kind in ("PER", "LOC", "x-ray")), *"BIESLU"]
SENTENCE = st.lists(st.sampled_from(TAGS), max_size=17)
ENTITIES = st.lists(st.tuples(st.sampled_from(["PER", "LOC", ""]), st.integers(1, 3), st.integers(0, 2)), max_size=7)
# Of what seqeval 1.2.2 found in 10,000 random cases of each kind; `seqeval_oracle.py` says how.
SEQEVAL = {"IOB": "2ea8750577b78c11f9e3e39854a1529c", "BIOES": "80ebf3b4141a0dbbd6b067e1855ab1c2"}


def by_conlleval_rules(tags: Sequence[str]) -> list[Entity]:
    """The published script's way: whether an entity ends or begins between two words, from their two tags alone."""
    ends = {"BB", "BO", "IB", "IO", "BS", "IS"}
    begins = {"BB", "IB", "OB", "EB", "SB", "OI", "EI", "SI", "OE", "EE", "SE", "BS", "IS", "OS", "ES", "SS"}
    same = {"L": "E", "U": "S"}
    split = [(same.get(tag[0], tag[0]), tag[2:]) for tag in ["O", *tags, "O"]]
    found, begin = [], None
    for place, ((before, type_before), (letter, kind)) in enumerate(itertools.pairwise(split)):
        other = type_before != kind
        if before + letter in ends or before in "ES" or (before != "O" and other):
            assert begin is not None
            found.append(Entity(type_before, begin, place))
            begin = None
        if before + letter in begins or (letter != "O" and other):
            begin = place
    return found


@given(SENTENCE)
def test_any_tags_are_read_as_by_the_rules_of_conlleval(tags: list[str]) -> None:
    assert entities.entities(tags) == by_conlleval_rules(tags)


@pytest.mark.slow
@pytest.mark.parametrize("kind", seqeval_oracle.KINDS)
def test_ten_thousand_random_cases_score_as_by_seqeval(kind: str) -> None:
    def find(tags: list[str]) -> seqeval_oracle.Found:
        return [(name, begin, end - 1) for name, begin, end in entities.entities(tags)]

    def score(gold: seqeval_oracle.Sentences, predicted: seqeval_oracle.Sentences) -> tuple[float, float, float, float]:
        scores = entities.score(gold, predicted)
        return scores.overall.precision, scores.overall.recall, scores.overall.f1, scores.accuracy

    assert seqeval_oracle.digest(kind, find, score) == SEQEVAL[kind]


@pytest.mark.parametrize("tag", ["", "X-PER", "PER", "b-PER", "O-PER", "B-", "B_PER", "BI-PER", "-PER", "[PAD]", "o"])
def test_what_is_no_tag_is_refused_with_the_tag(tag: str) -> None:
    for use in (entities.entities, entities.to_iob2):
        with pytest.raises(InputError) as refused:
            use(["O", tag])
        assert str(refused.value).startswith(f"{tag!r} is no tag: it must be O, or one of B, I")
    with pytest.raises(InputError, match="is no tag"):
        entities.scheme([["O"], [tag]])


def table(gold: int, predicted: int, correct: int, kind: str) -> tuple[list[list[str]], list[list[str]]]:
    """Sentences of two words with this many entities of a type, predicted ones, and right ones; the others overlap."""
    in_file = [*["both"] * correct, *["gold"] * (gold - correct), *["predicted"] * (predicted - correct)]
    true = [[f"B-{kind}", f"I-{kind}"] if side != "predicted" else ["O", "O"] for side in in_file]
    guess = {"both": [f"B-{kind}", f"I-{kind}"], "gold": ["O", "O"], "predicted": ["O", f"I-{kind}"]}
    return true, [guess[side] for side in in_file]


def test_the_published_example_of_conlleval_has_its_figures() -> None:
    # www.cnts.ua.ac.be/conll2000/chunking/output.html: 961 tokens with 459 phrases; found: 539 phrases; correct: 371
    published = {
        "ADJP": ((6, 1, 0), (0.00, 0.00, 0.00)),  # (phrases, found, correct), (precision, recall, F1)
        "ADVP": ((8, 11, 5), (45.45, 62.50, 52.63)),
        "NP": ((262, 317, 206), (64.98, 78.63, 71.16)),
        "PP": ((90, 107, 89), (83.18, 98.89, 90.36)),
        "SBAR": ((6, 3, 2), (66.67, 33.33, 44.44)),
        "VP": ((87, 100, 69), (69.00, 79.31, 73.80)),
    }
    gold, predicted = [], []
    for kind, (counts, _) in published.items():
        true, guess = table(*counts, kind)
        gold += true
        predicted += guess
    scores = entities.score(iter(gold), iter(predicted))
    assert scores.overall == Counts(gold=459, predicted=539, correct=371)
    assert list(scores.types) == list(published)
    figures = {"overall": (scores.overall, (68.83, 80.83, 74.35))}
    figures |= {kind: (scores.types[kind], expected) for kind, (_, expected) in published.items()}
    for scored, expected in figures.values():
        assert tuple(round(100 * value, 2) for value in (scored.precision, scored.recall, scored.f1)) == expected
    assert {kind: counts.gold for kind, counts in scores.types.items()} == {k: c[0] for k, (c, _) in published.items()}


def test_the_lines_of_the_published_example_have_their_tags_right_and_wrong() -> None:
    gold = [["B-NP", "B-NP", "I-NP", "I-NP", "O"], ["B-NP", "B-VP", "B-NP", "I-NP"]]
    predicted = [["I-NP", "B-NP", "I-NP", "I-NP", "O"], ["I-NP", "B-VP", "B-NP", "I-NP"]]
    scores = entities.score(gold, predicted)
    assert scores.overall == Counts(gold=5, predicted=5, correct=5)  # the same phrases, in two schemes
    assert (scores.correct_tags, scores.words, scores.sentences) == (7, 9, 2)  # but not the same tags


def test_scores_that_nothing_defines_are_zero_and_named() -> None:
    nothing = [["O", "O", "O"]]
    some = [["O", "B-PER", "O"]]
    assert list(entities.score(nothing, nothing).undefined) == ["precision", "recall", "f1"]
    assert entities.score(some, nothing).undefined == {"precision": "no entity is predicted"}
    assert entities.score(nothing, some).undefined == {"recall": "there are no entities in the file"}
    assert entities.score(some, some).undefined == {}
    assert entities.score(nothing, nothing).overall.f1 == 0


@pytest.mark.parametrize(
    ("gold", "predicted", "message"),
    [
        ([["O"], ["O"]], [["O"]], "sentence 1, counted from 0, is in the file but not in the predictions"),
        ([["O"]], [["O"], ["O"]], "sentence 1, counted from 0, is in the predictions but not in the file"),
        ([["O"], ["O", "O"]], [["O"], ["O"]], "sentence 1, counted from 0, has 2 words and 1 predicted tags"),
        ([], [], "nothing to score"),
        ([[]], [[]], "nothing to score"),
        ([["O"]], [["Q-PER"]], "'Q-PER' is no tag"),
    ],
)
def test_what_cannot_be_scored_is_refused(gold: list[list[str]], predicted: list[list[str]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        entities.score(gold, predicted)


def written(found: list[tuple[str, int, int]], scheme: str) -> list[str]:
    """Tags of entities (type, words, words outside before it), by the definition of each scheme."""
    tags: list[str] = []
    last = None
    for kind, words, outside in found:
        tags += ["O"] * outside
        letters = {
            "IOB1": ("B" if last == kind and not outside else "I") + "I" * (words - 1),
            "IOB2": "B" + "I" * (words - 1),
            "BIOES": "S" if words == 1 else "B" + "I" * (words - 2) + "E",
            "BILOU": "U" if words == 1 else "B" + "I" * (words - 2) + "L",
        }[scheme]
        tags += [f"{letter}-{kind}" if kind else letter for letter in letters]
        last = kind
    return tags


@given(st.lists(ENTITIES, max_size=4), st.sampled_from(["IOB1", "IOB2", "BIOES", "BILOU"]))
def test_a_scheme_is_told_from_tags_written_in_it(sentences: list, scheme: str) -> None:
    found = entities.scheme(written(sentence, scheme) for sentence in sentences)
    assert found == (scheme if any(sentences) else "IOB2")


@given(ENTITIES, st.sampled_from(["IOB1", "IOB2", "BIOES", "BILOU"]))
def test_every_scheme_turns_into_iob2(found: list, scheme: str) -> None:
    assert entities.to_iob2(written(found, scheme)) == written(found, "IOB2")


@given(SENTENCE)
def test_a_conversion_keeps_the_entities_of_any_tags(tags: list[str]) -> None:
    converted = entities.to_iob2(tags)
    assert entities.entities(converted) == entities.entities(tags) and entities.to_iob2(converted) == converted


@pytest.mark.parametrize(
    ("sentences", "scheme"),
    [
        (["I-PER I-PER O", "B-LOC"], "mixed"),
        (["B-PER E-PER", "U-LOC"], "mixed"),
        (["I-PER O I-PER", "O"], "IOB1"),
        (["B-PER", "O B I"], "IOB2"),
        (["O", "", "O O"], "IOB2"),
        (["I-PER B-PER", "I-LOC"], "IOB1"),
        (["B-PER B-PER", "B-LOC I-LOC"], "IOB2"),
    ],
)
def test_files_that_follow_no_scheme_are_mixed(sentences: list[str], scheme: str) -> None:
    assert entities.scheme(sentence.split() for sentence in sentences) == scheme
