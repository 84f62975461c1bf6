"""The files of GLUE are read as they are distributed, with all their quirks."""

import csv
import json
from pathlib import Path

import pytest

from bert.core.errors import InputError
from tasks import glue
from tasks.examples import Skipped, TextExample

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "glue"
HEADER_NLI = "index\tpromptID\tpairID\tgenre\tb1\tb2\tp1\tp2\tsentence1\tsentence2"


def read(task: str, path: Path, split: glue.Split = "dev", skipped: Skipped | None = None) -> list[TextExample]:
    return list(glue.read(glue.TASKS[task], path, split, skipped or Skipped()))


def written(folder: Path, content: str, name: str = "dev.tsv") -> Path:
    (folder / name).write_bytes(content.encode())
    return folder / name


def test_a_quotation_mark_is_a_character(tmp_path: Path) -> None:
    rows = ['1\t2\t3\tHe said " no\tShe said "', '0\t4\t5\t" and " so\tyes']
    path = written(tmp_path, "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n" + "\r\n".join(rows))
    found = read("mrpc", path)
    assert [(example.first, example.second, example.label) for example in found] == [
        ('He said " no', 'She said "', "1"),
        ('" and " so', "yes", "0"),
    ]
    assert [example.id for example in found] == ["0", "1"]


def test_cola_has_a_header_in_its_test_set_only(tmp_path: Path) -> None:
    path = written(tmp_path, "gj04\t1\t\tOne is.\nbc01\t0\t \tTwo are.\nx\t0\t?*\tThree")
    assert [(example.first, example.label) for example in read("cola", path)] == [
        ("One is.", "1"),
        ("Two are.", "0"),
        ("Three", "0"),
    ]
    test = written(tmp_path, "index\tsentence\n7\tFour.\n", "test.tsv")
    assert read("cola", test, "test") == [TextExample(id="7", first="Four.")]


@pytest.mark.parametrize(
    ("task", "row", "labels"),
    [  # names of columns and the order of classes in the card of the data set nyu-mll/glue
        ("rte", {"sentence1": "a", "sentence2": "b"}, {0: "entailment", 1: "not_entailment"}),
        ("qnli", {"question": "a", "sentence": "b"}, {0: "entailment", 1: "not_entailment"}),
        ("mnli", {"premise": "a", "hypothesis": "b"}, {0: "entailment", 1: "neutral", 2: "contradiction"}),
        ("mrpc", {"sentence1": "a", "sentence2": "b"}, {0: "0", 1: "1"}),
        ("qqp", {"question1": "a", "question2": "b"}, {0: "0", 1: "1"}),
        ("sst2", {"sentence": "a"}, {0: "0", 1: "1"}),
        ("cola", {"sentence": "a"}, {0: "0", 1: "1"}),
        ("stsb", {"sentence1": "a", "sentence2": "b"}, {3.75: 3.75}),
    ],
)
def test_a_task_reads_as_datasets_writes_it(tmp_path: Path, task: str, row: dict, labels: dict) -> None:
    rows = [row | {"label": label, "idx": 7 + number} for number, label in enumerate(labels)]
    expected = [
        TextExample(id=str(7 + number), first="a", second="b" if "b" in row.values() else None, label=label)
        for number, label in enumerate(labels.values())
    ]
    assert read(task, written(tmp_path, "\n".join(map(json.dumps, rows)), "dev.jsonl")) == expected
    lines = [",".join(map(str, values)) for values in (rows[0], *(row.values() for row in rows))]
    assert read(task, written(tmp_path, "\n".join(lines), "dev.csv")) == expected
    assert read(task, written(tmp_path, "\n".join(lines).replace(",", "\t"))) == expected


def test_rows_of_qqp_that_lack_columns_are_left_out_and_counted(tmp_path: Path) -> None:
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    path, skipped = (
        written(tmp_path, header + "5\t1\t2\tWhy?\tHow?\t0\n6\t3\tbroken\n8\t1\t2\tWho?\tWhom?\t1\n"),
        Skipped(),
    )
    assert [example.id for example in read("qqp", path, skipped=skipped)] == ["5", "8"]
    assert skipped.count == 1 and skipped.reasons == [f"{path}: line 3: 3 columns, not 6"]
    with pytest.raises(InputError, match=r"line 3: 3 columns, not 6"):
        read("qqp", path, skipped=Skipped(strict=True))


def test_a_pair_without_an_agreed_label_is_left_out_and_counted(tmp_path: Path) -> None:
    # SNLI 1.0 has "-" as gold_label there; `datasets` has -1
    names, skipped = "gold_label\tsentence1\tsentence2\n", Skipped()
    path = written(tmp_path, f"{names}neutral\ta\tb\n-\tc\td\n-1\te\tf\nentailment\tg\th\n")
    assert [(each.id, each.label) for each in read("mnli", path, skipped=skipped)] == [
        ("0", "neutral"),
        ("3", "entailment"),
    ]
    assert skipped.count == 2 and "the annotators did not agree" in skipped.reasons[0]


def test_other_tasks_have_no_short_rows(tmp_path: Path) -> None:
    path = written(tmp_path, "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\tentailment\n1\tA.\tB.\n")
    with pytest.raises(InputError, match=r"dev\.tsv: line 3: 3 columns, not 4"):
        read("rte", path)


def test_mnli_has_16_columns_in_its_development_sets_and_10_in_its_test_sets(tmp_path: Path) -> None:
    labels = "label1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label"
    row = "0\t1\t2\tfiction\tx\tx\tx\tx\tA cat.\tAn animal."
    path = written(
        tmp_path, f"{HEADER_NLI}\t{labels}\n{row}\tneutral\tneutral\tentailment\tneutral\tneutral\tentailment\n"
    )
    assert read("mnli", path) == [TextExample(id="0", first="A cat.", second="An animal.", label="entailment")]
    assert read("mnli", written(tmp_path, f"{HEADER_NLI}\n{row}\n"), "test")[0].label is None
    assert glue.TASKS["mnli"].files["dev"] == {"matched": "dev_matched.tsv", "mismatched": "dev_mismatched.tsv"}
    assert glue.TASKS["mnli"].labels == ("contradiction", "entailment", "neutral")


def test_a_copy_of_sst2_may_call_its_column_text(tmp_path: Path) -> None:
    assert read("sst2", written(tmp_path, "text\tlabel\ngood one \t1\n"))[0] == TextExample(
        id="0", first="good one ", label="1"
    )


@pytest.mark.parametrize("score", ["5.001", "-1", "nan", "high", ""])
def test_scores_of_stsb_are_numbers_from_0_to_5(tmp_path: Path, score: str) -> None:
    path = written(tmp_path, f"index\tsentence1\tsentence2\tscore\n0\tA.\tB.\t3.80\n1\tA.\tB.\t{score}\n")
    with pytest.raises(InputError, match=r"line 3: the score .* is not a number from 0 to 5"):
        read("stsb", path)


def test_the_original_stsb_has_sources_in_some_rows(tmp_path: Path) -> None:
    path = written(tmp_path, "g\tf\t2017\t1\t2.500\tOne.\tTwo.\ng\tf\t2017\t2\t0\tA.\tB.\tsource\tanother\n")
    assert [(example.first, example.label) for example in read("stsb", path)] == [("One.", 2.5), ("A.", 0.0)]
    with pytest.raises(InputError, match="line 2: 6 columns, not 7"):
        read("stsb", written(tmp_path, "g\tf\t2017\t1\t2.500\tOne.\tTwo.\ng\tf\t2017\t2\t0\tA.\n"))


def test_mrpc_is_made_of_the_original_file_and_the_ids_of_its_development_set(tmp_path: Path) -> None:
    rows = "1\t11\t12\tA.\tB.\n0\t21\t22\tC.\tD.\n1\t31\t32\tE.\tF.\n"
    path = written(tmp_path, "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n" + rows, glue.MICROSOFT)
    with pytest.raises(InputError, match=r"dev_ids\.tsv: no such file"):
        read("mrpc", path)
    written(tmp_path, "21\t22\n", glue.DEV_IDS)
    assert [example.first for example in read("mrpc", path, "train")] == ["A.", "E."]
    assert [example.first for example in read("mrpc", path, "dev")] == ["C."]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("index\tsentence1\tlabel\n0\tA.\tentailment\n", r"line 1: no column sentence2"),
        ("a\tb\tc\n", r"line 1: no column sentence1 among 'a', 'b', 'c'"),
        ("", r"line 1: no column sentence1"),
        ("index\tsentence1\tsentence2\tlabel\n0\tA.\t \tentailment\n", r"line 2: the text in column 3 is empty"),
        ("index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\tneutral\n", r"line 2: the label 'neutral' is not one of ent"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, content: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        read("rte", written(tmp_path, content))


@pytest.mark.skipif(not REAL.exists(), reason="the real files of GLUE are not beside the checkout")
@pytest.mark.parametrize(
    ("task", "name", "split", "count"),
    [
        ("cola", "train.tsv", "train", 8551),
        ("cola", "dev.tsv", "dev", 1043),
        ("cola", "test.tsv", "test", 1063),
        ("mrpc", "dev.tsv", "dev", 408),
        ("mrpc", "test.tsv", "test", 1725),
        ("mrpc", glue.MICROSOFT, "train", 3668),
        ("mrpc", glue.MICROSOFT, "dev", 408),
        ("rte", "train.tsv", "train", 2490),
        ("rte", "dev.tsv", "dev", 277),
        ("rte", "test.tsv", "test", 3000),
    ],
)
def test_the_real_files_have_the_published_numbers_of_rows(task: str, name: str, split: glue.Split, count: int) -> None:
    path = REAL / glue.TASKS[task].folder / name
    assert len(read(task, path, split)) == count


@pytest.mark.skipif(not REAL.exists(), reason="the real files of GLUE are not beside the checkout")
def test_the_usual_quoting_would_lose_rows() -> None:
    path = REAL / "MRPC" / "train.tsv"
    with open(path, encoding="utf-8-sig", newline="") as stream:
        quoted = len(list(csv.reader(stream, delimiter="\t"))) - 1
    assert quoted < len(read("mrpc", path, "train")) - 90
