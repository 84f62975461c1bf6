"""Question sets are read whole, and each fault is named."""

import json
import lzma
import tracemalloc
from typing import Any

import pytest

from bert.core.errors import InputError
from squad import examples
from squad.examples import Answer, Fault

CONTEXT = "Ada met Bob. Then Bob met Cid."


def tree(**changes):
    """A file of one question, with keys of the question replaced, or removed where the value is None."""
    answers = [{"text": "Bob", "answer_start": 18}]
    qa = {"id": "q1", "question": "Whom did Ada meet?", "answers": answers} | changes
    qa = {key: value for key, value in qa.items() if value is not None}
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": CONTEXT, "qas": [qa]}]}]}


def written(tmp_path, content):
    path = tmp_path / "train.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_a_compressed_file_reads_like_a_plain_one(tmp_path):
    plain = written(tmp_path, tree())
    packed = tmp_path / "train.json.xz"
    packed.write_bytes(lzma.compress(plain.read_bytes()))
    dataset = examples.read_dataset(packed)
    assert dataset == examples.read_dataset(plain)
    assert dataset.passages == [CONTEXT]
    assert dataset.examples[0].answers == (Answer(text="Bob", start=18),)


def test_equal_passages_are_held_once(tmp_path):
    content = tree()
    content["data"].append(tree(id="q2")["data"][0])
    dataset = examples.read_dataset(written(tmp_path, content))
    assert dataset.passages == [CONTEXT]
    assert [example.passage for example in dataset.examples] == [0, 0]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ([], "a list, not an object"),
        ({"version": "1.1"}, "no 'data'"),
        ({"data": []}, "no questions"),
        ({"data": [{"title": "t", "paragraphs": []}]}, "no questions"),
        ({"data": [{"title": "t"}]}, "article 0: no 'paragraphs'"),
        ({"data": [7]}, "article 0: an integer, not an object"),
        ({"data": [{"paragraphs": [{"qas": []}]}]}, "no questions"),
        ({"data": [{"paragraphs": [{"context": CONTEXT}]}]}, "article 0, paragraph 0: no 'qas'"),
        ({"data": [{"paragraphs": [{"qas": [{"id": "q1", "question": "?"}]}]}]}, r"\(id 'q1'\): no 'context'"),
        ('{"data": %s}' % ("9" * 5000), "not JSON"),
        (tree(id=None), "question 0: no 'id'"),
        (tree(id=7.5), "'id' is a number, not a string"),
        (tree(id=True), "'id' is a boolean, not a string"),
        (tree(answers={"text": ["Bob"], "answer_start": []}), "1 texts, but 0 starts"),
        (tree(answers={"text": "Bob", "answer_start": 18}), "answers: 'text' is a string, not a list"),
        (tree(is_impossible="no"), "'is_impossible' is a string, not a boolean"),
        (tree(question=None), r"\(id 'q1'\): no 'question'"),
        (tree(question=["?"]), "'question' is a list, not a string"),
        (tree(answers="Bob"), "'answers' is a string, not a list"),
        (tree(answers=[{"text": "Bob"}]), r"\(id 'q1'\), answer 0: no 'answer_start'"),
        (tree(answers=[{"text": "Bob", "answer_start": True}]), "'answer_start' is a boolean, not an integer"),
        (tree(answers=[{"text": "Bob", "answer_start": float("nan")}]), "'answer_start' is a number, not an integer"),
        (tree(question="half of \ud83d"), "surrogate pair at character 8"),
        ({"data": tree()["data"] * 2}, "article 1.*'q1'.*occurs twice"),
    ],
)
def test_malformed_files_are_refused_with_place_and_reason(tmp_path, content, reason):
    with pytest.raises(InputError, match=f"train.json: .*{reason}"):
        examples.read_dataset(written(tmp_path, content))


@pytest.mark.parametrize(
    ("claimed", "found"), [(8, 8), (18, 18), (9, 8), (12, 8), (14, 18), (10**9, 18), (-5, 8), (30, 18)]
)
def test_a_misplaced_answer_is_taken_at_its_nearest_occurrence(claimed, found):
    assert examples.locate(CONTEXT, Answer(text="Bob", start=claimed)) == found
    assert CONTEXT[found:].startswith("Bob")


def test_what_cannot_be_learnt_from_is_named_with_its_reason(tmp_path):
    changes: list[dict[str, Any]] = [
        {"id": "right"},
        {"id": "near", "answers": [{"text": "Bob", "answer_start": 20}]},
        {"id": "absent", "answers": [{"text": "Dora", "answer_start": 0}]},
        {"id": "blank", "answers": [{"text": " ", "answer_start": 3}]},
        {"id": "unlabelled", "answers": []},
        {"id": "impossible", "answers": [], "is_impossible": True},
    ]
    content = tree()
    content["data"] = [tree(**change)["data"][0] for change in changes]
    found = examples.spans(examples.read_dataset(written(tmp_path, content)), impossible=False)
    assert [(span.example.id, span.start, span.end) for span in found.spans] == [("right", 18, 21), ("near", 18, 21)]
    assert found.inferred == ["near"]
    assert found.dropped.keys() == {"absent", "blank", "unlabelled", "impossible"}


def test_of_plausible_answers_nothing_is_learnt(tmp_path):
    plausible = [{"text": "Bob", "answer_start": 18}]
    content = tree(answers=[], is_impossible=True, plausible_answers=plausible)
    dataset = examples.read_dataset(written(tmp_path, content))
    assert dataset.examples[0].answers == ()
    (span,) = examples.spans(dataset, impossible=True).spans
    assert (span.example.impossible, span.start, span.end) == (True, -1, -1)


@pytest.mark.parametrize(
    ("claimed", "impossible", "version"),
    [("1.1", None, "1.1"), ("v2.0", None, "2.0"), (2.0, False, "2.0"), (None, False, "1.1"), ("1.1", True, "2.0")],
)
def test_the_version_is_that_of_the_file(tmp_path, claimed, impossible, version):
    content = tree(is_impossible=impossible) | {"version": claimed}
    assert examples.read_dataset(written(tmp_path, content)).version == version


def lines(tmp_path, *records):
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in records) + "\n", encoding="utf-8")
    return path


def line(identity, **changes):
    return {"id": identity, "question": "Whom?", "context": CONTEXT} | changes


def test_a_question_a_line_reads_like_a_tree(tmp_path):
    answers = [{"text": "Bob", "answer_start": 18}]
    path = lines(tmp_path, line("q1", question="Whom did Ada meet?", answers=answers), "", line("q2"))
    dataset = examples.read_dataset(path)
    assert dataset.examples[:1] == examples.read_dataset(written(tmp_path, tree())).examples
    assert dataset.passages == [CONTEXT]
    assert dataset.examples[1].answers == ()
    packed = tmp_path / "questions.jsonl.xz"
    packed.write_bytes(lzma.compress(path.read_bytes()))
    assert examples.read_dataset(packed) == dataset
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())  # as Windows begins a file
    assert examples.read_dataset(path) == dataset


def test_rows_of_datasets_read_like_the_tree_of_squad(tmp_path):
    """The form in which Hugging Face's `datasets` distributes and writes SQuAD: answers as columns."""

    def answers(*starts):
        return {"text": ["Bob" for _ in starts], "answer_start": list(starts)}

    rows = [line("a", title="t", answers=answers(8, 18)), line("b", title="t", answers=answers())]
    entries = [{"text": "Bob", "answer_start": 8}, {"text": "Bob", "answer_start": 18}]
    of_squad = [line("a", answers=entries), line("b", answers=[], is_impossible=True)]
    assert examples.read_dataset(lines(tmp_path, *rows)) == examples.read_dataset(lines(tmp_path, *of_squad))
    nulls = lines(tmp_path, line("a", answers=entries, is_impossible=None), line(7, answers=None))
    found = examples.read_dataset(nulls).examples
    assert [(example.id, len(example.answers), example.impossible) for example in found] == [
        *(("a", 2, False), ("7", 0, False))
    ]
    with pytest.raises(InputError, match="the id occurs twice"):
        examples.read_dataset(lines(tmp_path, line(7), line("7")))


@pytest.mark.parametrize("form", ["columns", "objects"])
def test_parquet_of_datasets_reads_like_the_tree_of_squad(tmp_path, form):
    """A Sequence is a struct of lists, a List is a list of structs; pandas makes numbers with gaps floats."""
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    def answers(*starts):
        objects = [{"text": "Bob", "answer_start": float(start)} for start in starts]
        return objects if form == "objects" else {"text": ["Bob" for _ in starts], "answer_start": list(starts)}

    rows = [line(float(n), title="t", answers=answers(*starts)) for n, starts in enumerate([(8, 18), (), (18,)])]
    entries = [{"text": "Bob", "answer_start": 8}, {"text": "Bob", "answer_start": 18}]
    of_squad = [line(0, answers=entries), line(1, answers=[], is_impossible=True), line(2, answers=entries[1:])]
    expected = examples.read_dataset(lines(tmp_path, *of_squad))
    (tmp_path / "set").mkdir()
    for name, part in (("a.parquet", rows), ("set/train-00000-of-00002.parquet", rows[:2])):
        parquet.write_table(pyarrow.Table.from_pylist(part), tmp_path / name)
    assert examples.read_dataset(tmp_path / "a.parquet") == expected
    with pytest.raises(InputError, match=r"1 files, but train-00000-of-00002\.parquet is one of 2"):
        examples.read_dataset(tmp_path / "set")
    parquet.write_table(pyarrow.Table.from_pylist(rows[2:]), tmp_path / "set/train-00001-of-00002.parquet")
    assert examples.read_dataset(tmp_path / "set") == expected and examples.count(tmp_path / "set") == 3
    assert examples.content_hash(tmp_path / "set") != examples.content_hash(tmp_path / "a.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(rows[2:]), tmp_path / "set/validation-00000-of-00001.parquet")
    with pytest.raises(InputError, match="has several sets, such as train, validation"):
        examples.read_dataset(tmp_path / "set")
    (tmp_path / "converted").mkdir()  # names of the branch refs/convert/parquet (Hugging Face's dataset viewer)
    parquet.write_table(pyarrow.Table.from_pylist(rows[2:]), tmp_path / "converted/0001.parquet")
    with pytest.raises(InputError, match=r"0000\.parquet is missing; give all files"):
        examples.read_dataset(tmp_path / "converted")
    parquet.write_table(pyarrow.Table.from_pylist(rows[:2]), tmp_path / "converted/0000.parquet")
    assert examples.read_dataset(tmp_path / "converted") == expected


def test_a_parquet_file_that_is_no_set_of_questions_is_named(tmp_path, capsys):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    path = tmp_path / "train-00000-of-00003.parquet"
    parquet.write_table(pyarrow.table({"id": ["a"], "text": ["b"]}), path)
    with pytest.raises(InputError, match="no 'question'; its keys are 'id', 'text'"):
        examples.read_dataset(path)
    assert "one of 3 files of the set" in capsys.readouterr().err
    parquet.write_table(pyarrow.table({"id": [None, 1.5], "question": ["?", "?"], "context": ["b", "b"]}), path)
    with pytest.raises(InputError, match="row 1: 'id' is null, not a string"):
        examples.read_dataset(path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty: a folder without a \.parquet file"):
        examples.read_dataset(tmp_path / "empty")
    (tmp_path / "data-00000-of-00001.arrow").write_bytes(b"ARROW1")
    with pytest.raises(InputError, match="Arrow is not read here; write it as Parquet"):
        examples.read_dataset(tmp_path / "data-00000-of-00001.arrow")


def test_no_form_of_gold_answers_makes_a_question_malformed_that_is_to_be_answered(tmp_path):
    forms: list[dict[str, Any]] = [
        {"answers": {"text": "Bob", "answer_start": 18}, "is_impossible": None},
        {"answers": [{"text": ["Bob"]}], "is_impossible": "no"},
        {"answers": "Bob"},
        {"answers": [None], "is_impossible": 1},
    ]
    path = lines(tmp_path, *(line(number, **form) for number, form in enumerate(forms)))
    (piece,) = examples.read_pieces(path, strict=True, gold=False)
    assert [example.id for example in piece.examples] == ["0", "1", "2", "3"]
    assert {example.answers for example in piece.examples} == {()}


def test_malformed_items_are_named_and_keep_their_id_if_it_is_theirs(tmp_path):
    bad = [
        "{",
        "7",
        {"question": "?"},
        line(7.5),
        line("q2", context=None),
        line("q1"),
        line("half \ud83d"),
        line("q2"),
    ]
    path = lines(tmp_path, line("q1"), *bad, line("q3"))
    dataset = examples.read_dataset(path, strict=False)
    assert [example.id for example in dataset.examples] == ["q1", "q3"]
    assert [fault.id for fault in dataset.faults] == [None, None, None, None, "q2", None, "half \ud83d", None]
    reasons = ["not JSON", "an integer", "no 'id'", "'id' is a number", "'context' is null", "twice", "half", "twice"]
    for number, (fault, reason) in enumerate(zip(dataset.faults, reasons, strict=True), 2):
        assert fault.reason.startswith(f"line {number}")
        assert reason in fault.reason
        assert fault.reason.isascii()
    with pytest.raises(InputError, match=r"questions\.jsonl: line 2: not JSON"):
        examples.read_dataset(path)


def test_one_malformed_part_of_a_tree_leaves_the_others(tmp_path):
    content = tree()
    qas = content["data"][0]["paragraphs"][0]["qas"]
    content["data"] += [7, {"paragraphs": [{"qas": [{"id": "q2", "question": "?"}]}, {"context": "x"}]}]
    qas.append({"id": "q3"})
    dataset = examples.read_dataset(written(tmp_path, content), strict=False)
    assert [example.id for example in dataset.examples] == ["q1"]
    assert [fault.id for fault in dataset.faults] == ["q3", None, "q2", None]
    assert dataset.faults[3] == Fault(id=None, reason="article 2, paragraph 1: no 'qas'; its keys are 'context'")


@pytest.mark.parametrize(("content", "reason"), [("", "no questions"), ("7", "line 1: an integer"), ("{", "line 1")])
def test_a_file_in_which_no_question_has_an_id_is_refused_in_any_case(tmp_path, content, reason):
    for strict in (False, True):
        with pytest.raises(InputError, match=rf"questions\.jsonl: {reason}"):
            examples.read_dataset(lines(tmp_path, content), strict=strict)


def test_pieces_are_bounded_by_questions_and_by_the_length_of_passages(tmp_path):
    path = lines(tmp_path, *(line(f"q{n}", context=str(n % 2) * (50 if n < 10 else 700)) for n in range(17)))
    sizes = [
        (len(piece.examples), len(piece.passages))
        for piece in examples.read_pieces(path, strict=True, questions=4, characters=1000)
    ]
    assert sizes == [(4, 2), (4, 2), (4, 4), (2, 2), (2, 2), (1, 1)]


def test_a_long_file_of_lines_takes_the_memory_of_a_piece(tmp_path):
    path = lines(tmp_path, *(line(f"q{n}", context=f"{n} " * 2000) for n in range(3000)))
    size = path.stat().st_size
    tracemalloc.start()
    count = sum(len(piece.examples) for piece in examples.read_pieces(path, strict=True, characters=100_000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 3000
    assert peak < size / 8
