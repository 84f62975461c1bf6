"""The published rules of gopher and c4: each drops what it names at its published limit, and nothing below it."""

import re

import pytest

from bert.core import manifest
from data.pipeline import drop_counts
from extensions.data_more import quality

SENTENCE = "The mill of the river and its wheel have stood with us since that year"  # mean length 3.8
WORDS = SENTENCE.split()


def words(count: int, *, first: list[str] | None = None) -> str:
    made = [*(first or []), *(WORDS * (count // len(WORDS) + 1))]
    return " ".join(made[:count])


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (words(50), ""),
        (words(49), "50 to 100,000 words"),
        (words(100_000), ""),
        (words(100_001), "50 to 100,000 words"),
        ("the and " + "ab " * 98, "mean length"),
        ("the and " + "abc " * 98, ""),  # exactly 3
        ("that with " + "a" * 10 + " " + "abcdefghijk " * 97, "mean length"),
        ("that with " + "abcdefghij " * 60, ""),
        (words(100, first=["#a"] * 10), ""),  # exactly 0.1
        (words(100, first=["#a"] * 11), "#"),
        (words(100, first=["a..."] * 10), ""),
        (words(100, first=["a\u2026"] * 11), "ellipses for each word"),
        ("\n".join(["- " + words(9)] * 9 + [words(9)]), ""),  # exactly 90 %
        ("\n".join(["\u2022 " + words(9)] * 10), "bullet"),
        ("\n".join([words(9) + "..."] * 3 + [words(9)] * 7), ""),  # exactly 30 %
        ("\n".join([words(19) + "..."] * 4 + [words(19)] * 6), "end with an ellipsis"),
        (words(100, first=["1234"] * 20), ""),  # exactly 80 %
        (words(100, first=["1234"] * 21), "80 % of words"),
        ("river " * 58 + "The, other", "stop words"),
        ("river " * 58 + "The, (of)", ""),
        ("river " * 58 + "the the", "stop words"),
    ],
)
def test_gopher_drops_at_its_published_limits(text, rule):
    found = quality.gopher(text)
    assert (rule in found) if rule else not found, found


LINE = "The mill stands by the river."


@pytest.mark.parametrize(
    ("text", "kept", "reason"),
    [
        (f"{LINE}\n{LINE}", f"{LINE}\n{LINE}", ""),
        (f"{LINE}\nMenu of the old mill", LINE, ""),
        (f'{LINE}\nHe said: "It is the mill."', f'{LINE}\nHe said: "It is the mill."', ""),
        (f"{LINE}\nIs it the mill?", LINE, ""),  # four words
        (f"{LINE}\nPlease enable JavaScript in your browser.", LINE, ""),
        (f"{LINE}\nRead our Privacy Policy before you go.", LINE, ""),
        (
            f"{LINE}\nThe mill[12] stands[citation needed] by the weir.[edit]",
            f"{LINE}\nThe mill stands by the weir.",
            "",
        ),
        (f"{LINE}\nLorem Ipsum", "", "lorem ipsum"),
        (f"{LINE}\nif (a) {{ b; }}", "", "curly bracket"),
        ("Menu\nHome", "", "no line is left"),
    ],
)
def test_c4_keeps_the_lines_that_its_rules_keep(text, kept, reason):
    found = quality.c4(text)
    assert found.text == kept and (reason in found.reason if reason else not found.reason)
    if not reason:
        assert sum(map(len, text.split("\n"))) == sum(map(len, kept.split("\n"))) + found.lines.total()


GOOD = "The mill of the old town stands by the river. People have come with their grain since that year. " * 4


def test_the_stage_drops_and_counts_by_rule(tmp_path, stage, folder, read):
    texts = [
        *(f"{GOOD}\nMenu of the page\nIt was built in {n} and to be seen that year." for n in range(20)),
        f"{GOOD} #{'#' * 40}",
        f"{GOOD} {{}}",
        "\n".join([" ".join(["The mill of the river"] * 20) + ".", "menu"]),  # one sentence
        "Short and bad.",
    ]
    source = folder("text", "text", {"part-00000.jsonl": [{"id": f"{n}", "text": one} for n, one in enumerate(texts)]})
    code, lines = stage(
        "documents", "--source", source, "--output", tmp_path / "o", "--filter", "gopher", "c4", "--workers", 1
    )
    found = manifest.load(tmp_path / "o").extra["losses"]
    expected = {"gopher: more than 0.1 # for each word": 1, "c4: a curly bracket": 1, quality.FEW_SENTENCES: 1}
    assert code == 0 and found["documents"] == {
        "in": 24,
        "out": 20,
        **expected,
        "gopher: not from 50 to 100,000 words": 1,
    }
    for unit in drop_counts.UNITS:
        assert found[unit]["in"] == sum(number for outcome, number in found[unit].items() if outcome != "in")
    assert found["characters"]["c4: lines without terminal punctuation"] == 20 * len("Menu of the page") + len("menu")
    assert all("Menu" not in sentence for document in read(tmp_path / "o") for sentence in document["sentences"])
    assert any("1 c4: a curly bracket" in line for line in lines)
    assert stage("documents", "--source", source, "--output", tmp_path / "p", "--filter", "c3")[0] == 2


def test_text_that_is_not_english_is_refused(tmp_path, stage, folder):
    german = "Die alte M\u00fchle steht am Fluss, und das Rad dreht sich seit vielen Jahren im kalten Wasser. " * 9
    parts = {"part-00000.jsonl": [{"id": f"{n}", "text": f"{german} {n}"} for n in range(9)]}
    source = folder("text", "text", parts)
    code, lines = stage(
        "documents", "--source", source, "--output", tmp_path / "o", "--filter", "gopher", "--workers", 1
    )
    assert code == 3 and "0% of the documents" in lines[-1] and "not English" in lines[-1]
    assert not (tmp_path / "o").exists()


NO_END = "c4: lines without terminal punctuation"


@pytest.mark.parametrize(
    ("names", "texts", "said"),
    [
        (["gopher"], [f"{GOOD} {'#' * 99}", "Too short to stay."], "1 with 18: gopher: not from 50 to 100,000 words"),
        (
            ["c4"],
            [f"{GOOD}\u2019", f"{GOOD}\u2019\nMenu"],
            f"0 with {2 * len(GOOD) + 6}: {NO_END}, 2 with 1",
        ),
        (["c4"], [f"{GOOD}\nThe menu"], f"0 with 8: {NO_END}, 1 with {len(GOOD) + 1}: too short"),
    ],
)
def test_rules_that_leave_nothing_are_named_with_what_they_dropped(tmp_path, stage, folder, names, texts, said):
    """All numbers add up to what was read."""
    source = folder("text", "text", {"part-00000.jsonl": [{"id": f"{n}", "text": one} for n, one in enumerate(texts)]})
    least = ("--minimum_characters", 1000)
    code, lines = stage("documents", "--source", source, "--output", tmp_path / "o", "--filter", *names, *least)
    assert code == 3 and said in lines[-1], lines
    numbers = [tuple(map(int, found)) for found in re.findall(r"(\d+) with (\d+): ", lines[-1].replace(",", ""))]
    assert tuple(map(sum, zip(*numbers, strict=True))) == (len(texts), sum(map(len, texts)))
