"""The command reads each task's files and prints its figures with what they were computed on."""

import hashlib
import json
import math
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert.core.errors import InputError, UsageError
from bert.model.dropout import DropoutRng
from bert.model.encoder import Mode, TokenBatch
from bert.text.vocabulary import TOKENIZER
from extensions.gpt import evaluate_lm, trained
from tests.extensions.gpt.runs import SIZES, write_run
from tests.training import token_folder

POSITIONS = SIZES["max_position_embeddings"]
WIKITEXT = " \n = Two @-@ fold = \n \n It ( the game ) had 1 @,@ 200 players ; some left . \n"
PLAIN = "\n= Two-fold =\n\nIt (the game) had 1,200 players; some left.\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("evaluate") / "run")


def evaluate(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict:
    evaluate_lm.main([*map(str, arguments), "--json"])
    found: dict = json.loads(capsys.readouterr().out)
    return found


def losses(run: Path, ids: list[int], window: int, stride: int) -> np.ndarray:
    """The loss of each token but the first, each with the context of the window that counts it."""
    model, targets = trained.load(run), range(1, len(ids))
    begins = [0 if target <= window else -(-(target - window) // stride) * stride for target in targets]
    contexts = np.zeros([len(targets), window], np.int32)
    for row, (begin, target) in enumerate(zip(begins, targets, strict=True)):
        contexts[row, : target - begin] = ids[begin:target]
    hidden = model.encoder(TokenBatch(tf.constant(contexts)), Mode(tf.float32, DropoutRng(None))).numpy()
    last = hidden[np.arange(len(targets)), np.arange(1, len(ids)) - begins - 1].astype(np.float64)
    logits = last @ model.encoder.embeddings.word.numpy().T
    return np.asarray(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(targets)), ids[1:]])


@pytest.mark.slow
def test_wikitext_with_the_published_windows(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "any name.txt"
    path.write_text(WIKITEXT)
    found = evaluate(capsys, run, "wikitext", path, "--batch", 3)
    total = losses(run, trained.load(run).tokenizer.encode(PLAIN), POSITIONS, 32).sum()
    assert found["adjusted_perplexity"] == pytest.approx(math.exp(total / 20), rel=1e-4)
    assert (found["window"], found["stride"], found["words"]) == (POSITIONS, 32, 21)
    assert found["sha256"] == hashlib.sha256(WIKITEXT.encode()).hexdigest()
    assert found["checkpoint"].endswith("step-00000003")
    other = evaluate(capsys, run, "wikitext", path, "--window", 11, "--stride", 4)
    total = losses(run, trained.load(run).tokenizer.encode(PLAIN), 11, 4).sum()
    assert other["loss"] == pytest.approx(total / (found["tokens"] - 1), rel=1e-5)


def test_lambada_reads_lines_of_json(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lambada_test.jsonl"
    texts = ["she saw\nthe ship", "a word with \u2028 in it", "x " * 40 + "end"]
    path.write_text("".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts))
    found = evaluate(capsys, run, "lambada", path)
    assert (found["passages"], found["shortened"]) == (3, 1)
    assert found["accuracy"] == 100 * found["correct"] / 3


@pytest.mark.slow
def test_heldout_tokens(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = np.random.default_rng(3).integers(0, 258, 80).tolist()
    tokenizer = (run / TOKENIZER).read_bytes()
    folder = token_folder(tmp_path / "tokens", {"heldout": [ids]}, SIZES["vocab_size"], tokenizer, 83)
    found = evaluate(capsys, run, "heldout", folder)
    total = losses(run, ids, POSITIONS, POSITIONS).sum()
    assert found["bits_per_byte"] == pytest.approx(total / math.log(2) / 83, rel=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(total / 79), rel=1e-4)
    assert found["tokens"] == 80 and len(found["content"]) == 64
    with pytest.raises(InputError, match="no tokens of split 'dev'"):
        evaluate_lm.main([str(run), "heldout", str(folder), "--split", "dev"])


def test_tokens_of_another_tokenizer_are_refused(run: Path, tmp_path: Path) -> None:
    folder = token_folder(tmp_path / "tokens", {"heldout": [[1, 2, 3]]}, SIZES["vocab_size"], b"another", 9)
    with pytest.raises(InputError, match="not the tokenizer of the run"):
        evaluate_lm.main([str(run), "heldout", str(folder)])


def test_figures_are_printed_one_a_line(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "test.jsonl"
    path.write_text('{"text": "a b"}\n')
    evaluate_lm.main([str(run), "lambada", str(path)])
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    expected = ["task", "data", "checkpoint", "sha256", "passages", "correct", "accuracy", "shortened"]
    assert names == expected


@pytest.mark.slow
@pytest.mark.parametrize("line", ["", "[]", '{"txt": "a b"}', '{"text": 3}', "{", "[" * 99_999])
def test_a_line_without_a_passage_is_named(run: Path, tmp_path: Path, line: str) -> None:
    path = tmp_path / "test.jsonl"
    path.write_text('{"text": "a b"}\n' + line + '\n{"text": "a b"}\n')
    with pytest.raises(InputError, match="line 2"):
        evaluate_lm.main([str(run), "lambada", str(path)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["wikitext", "f", "--window", "38"], "only 37 positions"),
        (["wikitext", "f", "--window", "5", "--stride", "6"], "would be lost"),
        (["glue", "f"], "glue"),
    ],
)
def test_impossible_settings_are_usage_errors(run: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    path = tmp_path / "f"
    path.write_text(WIKITEXT)
    with pytest.raises(UsageError, match=message):
        evaluate_lm.main([str(run), arguments[0], str(path), *arguments[2:]])
