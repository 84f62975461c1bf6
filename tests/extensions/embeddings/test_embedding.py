"""Embeddings are trained, scored, resumed, written, served, and go out as folders of sentence-transformers."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import tensorflow as tf

from bert import api, encode, hidden_states
from bert.convert import __main__ as convert
from bert.core.errors import InputError, Stopped, UsageError
from bert.embedding import Embedding
from bert.export import __main__ as export
from bert.runs import Run
from bert.text.tokenization import WordPieceTokenizer
from bert.text.vocabulary import SPECIAL
from extensions.embeddings import training
from extensions.embeddings.kind import Embedded, shortened
from tasks import evaluate, predict, train
from tasks.config import TaskData
from tasks.examples import TextGroup
from tasks.labels import Labels
from tests.training import ROOT, measured, same_bits, weights

WORDS = ["ant", "bee", "fig", "kiwi", "the", "and", "red", "blue", "runs", "eats"]
MODEL = """--model.hidden_size 24 --model.num_attention_heads 3 --model.num_hidden_layers 1 --model.intermediate_size 40
    --model.max_position_embeddings 33 --data.length 17 --batch.total 24 --optimizer.learning_rate 0.01 --run.log_every
    1"""
WITHOUT_DROPOUT = ["--model.hidden_dropout_prob", "0", "--model.attention_probs_dropout_prob", "0"]


def files(folder: Path) -> None:
    """Triplets in which the second text has the words of the first, in another order; scored pairs; texts."""
    random = np.random.default_rng(1)

    def text() -> list[str]:
        return random.choice(WORDS, random.integers(4, 9)).tolist()

    def line(words: list[str]) -> str:
        return " ".join(words)

    rows = [(words, random.permutation(words).tolist(), text()) for words in (text() for _ in range(96))]
    lines = [f"{line(a)}\t{line(b)}\t{line(c)}\n" for a, b, c in rows]
    (folder / "triplets.tsv").write_text("anchor\tpositive\tnegative\n" + "".join(lines))
    rows = [(words, words[: random.integers(1, 4)] + text(), []) for words in (text() for _ in range(60))]
    scored = [(line(a), line(b), len({*a} & {*b}) / len({*a} | {*b})) for a, b, _ in rows]
    keys = ("sentence1", "sentence2", "score")
    (folder / "dev.jsonl").write_text("".join(json.dumps(dict(zip(keys, row, strict=True))) + "\n" for row in scored))
    (folder / "texts.txt").write_text("".join(f"{line(text())}\n" for _ in range(96)))
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")


def command(folder: Path, run: str, *more: str, recipe: str = "embed") -> list[str]:
    start = f"{recipe} --init.checkpoint none --data.vocab {folder}/vocab.txt --run.directory {folder / run} {MODEL}"
    return [*start.split(), *more]


def triplets(folder: Path) -> list[str]:
    return f"--data.train {folder}/triplets.tsv --data.text anchor positive negative".split()


def trained(folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str, run: str = "run") -> Path:
    monkeypatch.setenv("BERT_WORKDIR", str(folder / "work"))
    files(folder)
    train.main(command(folder, run, *triplets(folder), *more))
    return folder / run


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_a_run_is_trained_and_every_command_has_its_embeddings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files(tmp_path)
    dev = ["--data.dev", str(tmp_path / "dev.jsonl"), "--batch.per_device", "8", "--length.epochs", "6"]
    run = trained(tmp_path, monkeypatch, *dev, "--data.pool", "max", "--data.dimensions", "8", "24", *WITHOUT_DROPOUT)
    settings = json.loads((run / "config.json").read_text())
    assert settings["embedding"] == {"pool": "max", "normalize": True, "length": None} and "head" not in settings
    losses = [line["embedding_loss"] for (_, split), line in measured(run).items() if split == "train"]
    assert np.mean(losses[-3:]) < 0.5 * losses[0]

    best = json.loads((run / "best.json").read_text())
    capsys.readouterr()
    evaluate.main(["--model", str(run), "--input", str(tmp_path / "dev.jsonl")])
    found = printed(capsys)
    assert found["examples"] == 60
    assert found["spearman"] == pytest.approx(best["value"], abs=0.01)  # the best checkpoint
    with pytest.raises(InputError, match=r"gives embeddings, not predictions; use python -m bert\.encode"):
        predict.main(["--model", str(run), "ant"])

    texts = ["the ant", "kiwi " * 40, "fig and fig"]
    (tmp_path / "texts").write_text("\n".join(texts) + "\n")
    encode.main(["--model", str(run), "--input", str(tmp_path / "texts"), "--output", str(tmp_path / "out.npz")])
    vectors = np.load(tmp_path / "out.npz")["features"][:, 0]
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    states = next(iter(hidden_states.Reader(Run.open(run), pool="none").encode(texts[:1]))).features[:, 0]
    expected = states.max(axis=0)
    np.testing.assert_allclose(vectors[0], expected / np.sqrt((expected**2).sum()), atol=1e-5)
    np.testing.assert_allclose(api.load(run).embed(texts), vectors, atol=1e-5)

    export.main(["savedmodel", str(run), str(tmp_path / "served")])
    signature = tf.saved_model.load(str(tmp_path / "served/1")).signatures["serving_default"]
    np.testing.assert_allclose(signature(text=tf.constant(texts))["embedding"], vectors, atol=1e-5)

    convert.main(["export", "huggingface", str(run), str(tmp_path / "folder")])
    assert [row["type"].rpartition(".")[2] for row in json.loads((tmp_path / "folder/modules.json").read_text())] == [
        "Transformer",
        "Pooling",
        "Normalize",
    ]
    card = (tmp_path / "folder/README.md").read_text()
    assert "library_name: sentence-transformers" in card and "python -m tasks.train embed" in card
    convert.main(["import", "huggingface", str(tmp_path / "folder"), str(tmp_path / "again")])
    np.testing.assert_allclose(api.load(tmp_path / "again").embed(texts), vectors, atol=1e-6)


@pytest.mark.slow
@pytest.mark.thorough
def test_the_service_gives_the_trained_embedding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("starlette", reason="the service needs it")
    from serve import models
    from tests.serve.test_app import client

    run = trained(tmp_path, monkeypatch, "--data.pool", "cls", "--length.epochs", "1")
    expected = api.load(run).embed("the ant and the fig")
    with client(models.Models({"run": run}, "float32", 8)) as asked:
        answer = asked.post("/v1/embed", json={"text": "the ant and the fig"}).json()
        np.testing.assert_allclose(answer["features"], expected, atol=1e-5)
        state = asked.post("/v1/embed", json={"text": "the ant and the fig", "pool": "cls"}).json()["features"]
        np.testing.assert_allclose(np.array(state) / np.linalg.norm(state), expected, atol=1e-5)


@pytest.mark.slow
def test_a_stopped_run_with_cached_gradients_and_dropout_resumes_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ("--batch.per_device", "8", "--data.projection", "true", "--length.epochs", "1.5")
    whole = trained(tmp_path, monkeypatch, *more, run="whole")
    with pytest.raises(Stopped):
        trained(tmp_path, monkeypatch, *more, "--run.stop_at", "3", run="parted")
    parted = trained(tmp_path, monkeypatch, *more, run="parted")
    same_bits(weights(whole, 6), weights(parted, 6))
    assert "embedding/kernel" in weights(whole, 6)
    convert.main(["export", "huggingface", str(whole), str(tmp_path / "folder")])  # without the projection


@pytest.mark.slow
@pytest.mark.multiprocess
@pytest.mark.parametrize(
    "parallel",
    [
        pytest.param("", marks=pytest.mark.thorough),
        pytest.param("--parallel.overlap true --parallel.shard_optimizer true", marks=pytest.mark.thorough),
        pytest.param("--parallel.tensor 2 --model.num_attention_heads 2", marks=pytest.mark.thorough),
    ],
)
def test_two_ranks_train_like_one(parallel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = [*WITHOUT_DROPOUT, "--length.epochs", "1", "--optimizer.epsilon", "0.001"]
    more += ["--model.num_attention_heads", "2"] if "heads" in parallel else []
    one = trained(tmp_path, monkeypatch, *more, "--batch.per_device", "24", run="one")
    line = command(tmp_path, "two", *triplets(tmp_path), *more, "--batch.per_device", "6", *parallel.split())
    launch = [str(ROOT / "scripts/launch.sh"), "-np", "2", "--", sys.executable, "-m", "tasks.train", *line]
    done = subprocess.run(launch, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    of_one, of_two = measured(one), measured(tmp_path / "two")
    steps = [key for key in of_one if key[1] == "train"]
    assert len(steps) == 4
    for key in steps:
        assert of_two[key]["loss"] == pytest.approx(of_one[key]["loss"], rel=1e-4), key
    theirs = weights(tmp_path / "two", 4)
    for name, value in weights(one, 4).items():
        if name.startswith(("layer_", "embeddings")) and "/adam" not in name:
            np.testing.assert_allclose(theirs[name], value, atol=1e-4, err_msg=name)


@pytest.mark.slow
@pytest.mark.thorough
def test_texts_alone_and_scored_pairs_are_learned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BERT_WORKDIR", str(tmp_path / "work"))
    files(tmp_path)
    alone = ["--data.train", str(tmp_path / "texts.txt"), "--data.text", "0", "--length.epochs", "1"]
    train.main(command(tmp_path, "simcse", *alone, "--data.length", "17", recipe="simcse_unsupervised"))
    assert json.loads((tmp_path / "simcse/config.json").read_text())["embedding"]["pool"] == "cls"
    scored = ["--data.train", str(tmp_path / "dev.jsonl"), "--data.text", "sentence1", "sentence2"]
    scored += ["--data.dev", str(tmp_path / "dev.jsonl"), "--length.epochs", "12", *WITHOUT_DROPOUT]
    for loss in ("cosine", "cosent"):
        train.main(command(tmp_path, loss, *scored, "--data.loss", loss))
        capsys.readouterr()
        evaluate.main(["--model", str(tmp_path / loss), "--input", str(tmp_path / "dev.jsonl")])
        assert printed(capsys)["spearman"] > 80, loss  # of what it was trained on


@pytest.mark.slow
def test_tsdae_learns_to_write_texts_from_their_embeddings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERT_WORKDIR", str(tmp_path / "work"))
    files(tmp_path)
    alone = ["--data.train", str(tmp_path / "texts.txt"), "--data.text", "0", "--length.epochs", "10"]
    train.main(command(tmp_path, "tsdae", *alone, *WITHOUT_DROPOUT, recipe="tsdae"))
    lines = [line for (_, split), line in measured(tmp_path / "tsdae").items() if split == "train"]
    losses = [line["embedding_loss"] for line in lines]
    assert losses[0] == pytest.approx(np.log(len(WORDS) + len(SPECIAL)), abs=0.1)  # of equal probabilities
    assert np.mean(losses[-5:]) < losses[0] - 0.4
    assert "embedding/decoder/layer_0/value/kernel" in weights(tmp_path / "tsdae", 40)
    convert.main(["export", "huggingface", str(tmp_path / "tsdae"), str(tmp_path / "folder")])
    convert.main(["import", "huggingface", str(tmp_path / "folder"), str(tmp_path / "again")])
    vectors, again = (api.load(tmp_path / run).embed(["the ant", "fig and fig"]) for run in ("tsdae", "again"))
    np.testing.assert_allclose(again, vectors, atol=1e-6)


def test_deleted_words_are_a_share_and_the_same_each_time() -> None:
    words = [f"w{n}" for n in range(4000)]
    left = shortened(" ".join(words), 0.6).split()
    assert 0.37 < len(left) / 4000 < 0.43 and left == [word for word in words if word in {*left}]
    assert shortened(" ".join(words), 0.6).split() == left
    assert shortened("one two three", 1.0) in {"one", "two", "three"}
    assert shortened("one  two\tthree", 0.0) == "one two three"


@pytest.mark.parametrize("loss", ["contrastive", "tsdae"])
def test_a_text_that_is_read_twice_is_counted_once(tmp_path: Path, loss: Literal["contrastive", "tsdae"]) -> None:
    files(tmp_path)
    kind = Embedded(TaskData(task="embed", loss=loss, length=5), Labels(regression=True), ("spearman",))
    texts = ["ant runs", "\u200b", "kiwi", "ant bee fig the"]  # 2, 0, 1 and 4 tokens, of which 3 fit
    groups = [TextGroup(id=str(number), texts=(text,)) for number, text in enumerate(texts)]
    made = kind.encode(groups, WordPieceTokenizer(tmp_path / "vocab.txt"))
    assert made["input_ids"].shape == (4, 2, 5)
    assert made["input_mask"][:, 1].sum(axis=1).tolist() == [4, 2, 3, 5]
    seen = kind.seen
    assert (seen.inputs, seen.empty, seen.long, seen.tokens, seen.lost) == (4, 1, 1, 7, 1)


def test_equal_texts_are_known_by_their_tokens_whatever_the_padding() -> None:
    kind = Embedded(TaskData(task="embed", text=("a", "b"), length=9), Labels(regression=True), ("spearman",))
    rows = [[2, 7, 8, 8, 7, 3], [2, 7, 8, 8, 7, 3], [2, 8, 7, 7, 8, 3], [2, 8, 7, 3], [2, 8, 7, 3, 0, 0], [7, 2, 8, 3]]

    def numbers(width: int) -> list[tuple[float, ...]]:
        ids = np.array([row + [0] * (width - len(row)) for row in rows], np.int32).reshape(3, 2, width)
        batch = {"input_ids": tf.constant(ids), "input_mask": tf.constant((ids > 0).astype(np.int32))}
        return [tuple(text) for text in kind.of_all_samples(batch)["texts"].numpy().reshape(6, 3).tolist()]

    assert numbers(6) == numbers(9)
    first, copy, permuted, short, padded, other = numbers(9)
    assert first == copy and short == padded and len({first, permuted, short, other}) == 4


def test_what_cannot_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERT_WORKDIR", str(tmp_path / "work"))
    files(tmp_path)

    def refused(kind: type[Exception], message: str, *more: str) -> None:
        with pytest.raises(kind, match=message):
            train.main(command(tmp_path, "run", *more))
        assert not (tmp_path / "run").exists()

    refused(UsageError, "no examples: give --data.train")
    refused(UsageError, "text names 3", *triplets(tmp_path), "--data.loss", "cosine")
    pairs = ["--data.train", str(tmp_path / "dev.jsonl"), "--data.text", "sentence1", "sentence2"]
    refused(
        UsageError, "both_directions has no effect", *pairs, "--data.loss", "cosent", "--data.both_directions", "true"
    )
    alone = ["--data.train", str(tmp_path / "texts.txt"), "--data.text", "0", "--data.loss", "tsdae"]
    refused(UsageError, "tsdae is for texts alone; --data.text names 2", *pairs, "--data.loss", "tsdae")
    refused(UsageError, "uses each layer twice", *alone, "--parallel.overlap", "true")
    refused(UsageError, "layer norm after each sum", *alone, "--model.norm_placement", "pre")
    refused(UsageError, "dimensions 25: the model's embeddings have 24", *triplets(tmp_path), "--data.dimensions", "25")
    refused(InputError, "the column 'nothing' is missing", *pairs[:2], "--data.text", "sentence1", "nothing")
    refused(InputError, "no such file or folder", *triplets(tmp_path), "--data.dev", str(tmp_path / "nothing.tsv"))
    (tmp_path / "none.tsv").write_text("sentence1\tsentence2\tscore\na\tb\tmuch\n")
    refused(InputError, "no usable pair with a score", *triplets(tmp_path), "--data.dev", str(tmp_path / "none.tsv"))


def test_a_score_that_is_no_cosine_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERT_WORKDIR", str(tmp_path / "work"))
    files(tmp_path)
    (tmp_path / "sts.tsv").write_text("a\tb\tscore\nant\tbee\t4.5\nfig\tkiwi\t1\n")
    given = ["--data.train", str(tmp_path / "sts.tsv"), "--data.text", "a", "b", "--data.loss", "cosine"]
    with pytest.raises(InputError, match=r"the score 4\.5 / 1 is no cosine; give --data\.score_scale"):
        train.main(command(tmp_path, "run", *given))


def test_what_training_does_not_use_of_an_import_is_named() -> None:
    before = Embedding(pool="cls", length=9, prompts={"query": "q: ", "x": ""}, dimensions=7, similarity="dot")
    assert training._left(before) == "prompt query, dimensions 7, similarity dot"
    assert training._left(Embedding(pool="cls", length=9)) == ""


@pytest.mark.parametrize(
    ("rows", "more", "message"),
    [
        (["the ant runs"] * 30, [], r"texts\.txt: all 30 samples have the same first text"),
        (
            ["ant", "bee"],
            ["--data.text", "0", "--batch.total", "1"],
            "--batch.total 1: a text is found among those of the other samples",
        ),
        (["ant\tthe", "bee\tthe"], ["--data.text", "a", "b"], "all 2 samples have the same second text"),
        (["the\tant", "the\tbee"], ["--data.text", "a", "b"], "all 2 samples have the same first text"),
    ],
)
def test_texts_that_no_other_is_told_from_are_refused(
    rows: list[str], more: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of a text is none to find among others: the loss is then 0 (or log of the batch, where copies count)."""
    monkeypatch.setenv("BERT_WORKDIR", str(tmp_path / "work"))
    files(tmp_path)
    name = "pairs.tsv" if "\t" in rows[0] else "texts.txt"
    (tmp_path / name).write_text("\n".join(["a\tb", *rows] if "\t" in rows[0] else rows) + "\n")
    with pytest.raises((InputError, UsageError), match=message):
        train.main(command(tmp_path, "run", "--data.train", str(tmp_path / name), *(more or ["--data.text", "0"])))
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_fewer_texts_than_an_update_has_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BERT_WORKDIR", str(tmp_path / "work"))
    files(tmp_path)
    (tmp_path / "few.txt").write_text("the ant\nthe bee\nred fig\n")
    for total, is_told in (("4", True), ("3", False)):
        flags = f"--data.train {tmp_path}/few.txt --data.text 0 --batch.total {total} --run.steps 1".split()
        train.main(command(tmp_path, f"run{total}", *flags))
        assert ("few.txt: 3 samples, and an update has --batch.total 4" in capfd.readouterr().err) == is_told
