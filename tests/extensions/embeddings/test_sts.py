"""Scored pairs are read as they are distributed, and test sets are scored as papers do."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from bert.core.errors import InputError
from extensions.embeddings import groups, similarity, sts
from tasks.examples import Skipped

PAIR = ("sentence1", "sentence2")
STSB = (
    "main-captions\tMSRvid\t2012test\t0024\t2.500\tA girl is styling.\tA girl brushes.\n"
    'main-forums\tdeft-forum\t2014\t0011\t0\tHe said "no.\tNo\tlicence\tsource\n'
)
SICK = (
    "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\r\n"
    "6\tThere is no boy\tA group of kids\t3.3\tNEUTRAL\r\n7\tA boy\tTwo boys\t4.7\tENTAILMENT\r\n"
)


def read(path: Path, skipped: Skipped | None = None) -> list[tuple[str, str, float | None]]:
    found = groups.read(path, PAIR, "score", skipped=skipped or Skipped(strict=True))
    return [(group.texts[0], group.texts[1], group.score) for group in found]


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def test_each_layout_is_read_as_it_is(tmp_path: Path) -> None:
    expected = [("A girl is styling.", "A girl brushes.", 2.5), ('He said "no.', "No", 0.0)]
    assert read(written(tmp_path / "sts-dev.csv", STSB)) == expected
    expected = [("There is no boy", "A group of kids", 3.3), ("A boy", "Two boys", 4.7)]
    assert read(written(tmp_path / "SICK_trial.txt", SICK)) == expected
    semeval = "4.400\tThe problem\tHe said\n\tnot\tscored\n0.8\tThe index\tThe broad\n"
    expected = [("The problem", "He said", 4.4), ("The index", "The broad", 0.8)]
    assert read(written(tmp_path / "MSRpar.test.tsv", semeval)) == expected
    assert read(written(tmp_path / "begins.test.tsv", "\tnot\tscored\n1\ta\tb\n")) == [("a", "b", 1.0)]
    pairs = "The problem\tHe said\thttp://source\nnot\tscored\nThe index\tThe broad\n"
    path = written(tmp_path / "STS2016.input.headlines.txt", pairs)
    written(tmp_path / "STS2016.gs.headlines.txt", "4.4\n\n0.8\n")
    assert read(path) == expected


def test_columns_that_are_there_or_numbered_count_before_layouts(tmp_path: Path) -> None:
    path = written(tmp_path / "own.tsv", "sentence_A\tsentence_B\trelatedness_score\tx\na\tb\t1\t5\n")
    (group,) = groups.read(path, ("sentence_B", "sentence_A"), "x", skipped=Skipped(strict=True))
    assert (group.texts, group.score) == (("b", "a"), 5.0)
    path = written(tmp_path / "numbers.tsv", "1\t2\t3\n")
    (group,) = groups.read(path, ("0", "1"), "2", skipped=Skipped(strict=True))
    assert (group.texts, group.score) == (("1", "2"), 3.0)


def test_what_is_malformed_is_named(tmp_path: Path) -> None:
    skipped = Skipped()
    lines = "main-news\ta\tb\tc\t\tx\ty\nmain-news\ta\tb\tc\t1\tx\nmain-news\ta\tb\tc\t1\tx\ty\n"
    assert read(written(tmp_path / "sts-train.csv", lines), skipped) == [("x", "y", 1.0)]
    assert skipped.reasons == [
        f"{tmp_path}/sts-train.csv: line 1: score is '', not a number",
        f"{tmp_path}/sts-train.csv: line 2: not as many columns as the first line",
    ]
    written(tmp_path / "STS.gs.a.txt", "1\n2\n")
    with pytest.raises(InputError, match=r"STS\.gs\.a\.txt: 2 scores of 1 pairs"):
        read(written(tmp_path / "STS.input.a.txt", "x\ty\n"))


def encode(texts: Sequence[str], prompt: str | None = None) -> np.ndarray:
    """An embedding of each text that its hash gives."""
    return np.stack([np.random.default_rng(list(text.encode())).normal(size=3) for text in texts])


def year(folder: Path, names: tuple[str, ...], random: np.random.Generator) -> list[tuple[str, str, float]]:
    every = []
    for name in names:
        pairs = [(f"{name} {n}", f"{name} and {n}", round(float(random.uniform(0, 5)), 1)) for n in range(7)]
        written(folder / f"STS.input.{name}.txt", "".join(f"{a}\t{b}\n" for a, b, _ in pairs))
        written(folder / f"STS.gs.{name}.txt", "".join(f"{score}\n" for *_, score in pairs))
        every += pairs
    return every


def of_pairs(pairs: list[tuple[str, str, float]]) -> float:
    a, b = encode([a for a, *_ in pairs]), encode([b for _, b, _ in pairs])
    cosines = [x @ y / np.linalg.norm(x) / np.linalg.norm(y) for x, y in zip(a, b, strict=True)]
    ranks = [_ranks(np.array(values)) for values in (cosines, [score for *_, score in pairs])]
    return float(100 * np.corrcoef(ranks)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    return (values[:, None] > values).sum(axis=1) + (values[:, None] == values).sum(axis=1) / 2


def test_all_pairs_of_a_year_are_one_set_and_the_mean_is_over_sets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = np.random.default_rng(1)
    of_2013 = year(tmp_path / "STS/STS13-en-test", sts.PARTS["2013"], random)
    year(tmp_path / "STS/STS13-en-test", ("SMT",), random)  # not in papers
    year(tmp_path / "STS/STS13-en-test/original", sts.PARTS["2013"], random)  # a second copy, farther below
    year(tmp_path / "STS/STS12-en-test", sts.PARTS["2012"][1:], random)  # incomplete
    lines = "".join(f"{score}\t{a}\t{b}\n" for a, b, score in of_2013[:7])
    for name in sts.PARTS["2014"]:
        written(tmp_path / f"2014/{name}.test.tsv", lines)
    written(tmp_path / "STS/STSBenchmark/sts-test.csv", STSB * 2)
    written(tmp_path / "SICK/SICK_test_annotated.txt", SICK)

    ranked = similarity.of(tmp_path, "dev", PAIR, "score", Skipped())
    assert (len(ranked), ranked.texts) == (21 + 42 + 4 + 2, 2 * 69)
    assert ranked.names[0] == "mean"  # compares checkpoints
    assert "the mean is that of 4 sets, without sts12, sts15, sts16; papers have all 7" in capsys.readouterr().err
    found = ranked.scores(encode).values
    assert list(found) == ["sts13", "sts14", "stsb", "sick_r", "mean"]
    assert found["sts13"] == pytest.approx(of_pairs(of_2013))
    assert found["sts14"] == pytest.approx(of_pairs(of_2013[:7] * 6))
    assert found["mean"] == pytest.approx(np.mean([value for name, value in found.items() if name != "mean"]))
    assert len(similarity.of(tmp_path, "dev", PAIR, "score", Skipped(), limit=3)) == 3 + 3 + 3 + 2


def test_a_folder_of_neither_kind_is_refused_and_one_of_beir_is_no_folder_of_sets(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="as BEIR has, or one of STS sets"):
        similarity.of(tmp_path, "dev", PAIR, "score", Skipped())
    written(tmp_path / "corpus.jsonl", json.dumps({"_id": "1", "text": "a"}) + "\n")
    written(tmp_path / "sts-test.csv", STSB)
    with pytest.raises(InputError, match=r"qrels/dev\.tsv: no such file"):
        similarity.of(tmp_path, "dev", PAIR, "score", Skipped())
