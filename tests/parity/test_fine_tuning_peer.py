"""The program that fine-tuning is compared with: its tokens, its labels, its order, and that it learns."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import task_scores
from benchmarks.task_scores import Options, Work
from bert.convert.__main__ import convert
from bert.core.config import ModelConfig
from bert.model.encoder import variables
from bert.pretraining import PretrainingModel
from bert.text.vocabulary import SPECIAL
from bert.training import checkpoint
from tests.parity.test_transformers import PYTHON, asked

pytestmark = pytest.mark.parity

WORDS = ["ant", "bee", "fig", "lime", "plum", "the", "is", "here", "##s", "?"]
VOCAB = [*SPECIAL, *WORDS]
PAD, CLS, SEP = (VOCAB.index(token) for token in ("[PAD]", "[CLS]", "[SEP]"))
MODEL = ModelConfig(
    vocab_size=len(VOCAB),
    hidden_size=24,
    num_hidden_layers=1,
    num_attention_heads=3,
    intermediate_size=40,
    max_position_embeddings=33,
)
TEXTS = [("fruit", "the fig is here"), ("animal", "ant"), ("fruit", "limes the lime"), ("animal", "the bee is the bee")]
CLASSIFY = "\n".join(["label\ttext", *map("\t".join, TEXTS)])
READ = """
import itertools, json, sys
from pathlib import Path
from benchmarks.peers import transformers_fine_tuning as peer
for start, examples, settings, count in json.load(sys.stdin):
    batches = itertools.islice(peer.batches(Path(start), examples, settings), count)
    print(json.dumps([{name: value.tolist() for name, value in batch.items()} for batch in batches]))
"""
Batches = list[dict[str, Any]]


def read(*jobs: tuple[Path, list[dict[str, Any]], dict[str, Any], int]) -> list[Batches]:
    """Return what the peer reads from START, examples, settings: so many batches."""
    return [json.loads(line) for line in asked(["-c", READ], jobs).splitlines()]


def settings(batch: int, length: int = 17, order: str = "shuffled", seed: int = 5) -> dict[str, Any]:
    return {"batch": batch, "length": length, "order": order, "seed": seed}


def ids(text: str) -> list[int]:
    return [VOCAB.index(word) for word in text.split()]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run directory with random weights."""
    run = tmp_path_factory.mktemp("pretrained")
    (run / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    MODEL.save(run / "bert_config.json")
    checkpoint.save(run, 0, variables(PretrainingModel(MODEL, 3)), keep=1)
    return run


def prepared(pretrained: Path, folder: Path, recipe: str, content: str, suffix: str) -> Work:
    """Return the work on a recipe, with the model that both sides start from also as exported."""
    path = folder / f"{recipe}.{suffix}"
    path.write_text(content)
    options = Options(
        checkpoint=pretrained,
        output=folder / "work",
        peer_python=Path(PYTHON),
        train=path,
        dev=path,
        batch=3,
        length=17,
        epochs=40,
        learning_rate=0.02,
        compute="float32",
    )
    work = task_scores.prepare(options, recipe, 1)
    convert("export", "huggingface", work.folder / "start", folder / recipe)
    return work


def test_the_peer_reads_each_kind_of_example(pretrained: Path, tmp_path: Path) -> None:
    """Each batch is one example, so that tokens and labels are compared with what is written here."""
    tagged = "the\tO\nfigs\tB-F\n\nlimes\tB-F\nis\tO\n"
    choice = {"context": "is the", "choices": ["fig", "ants here", "?"], "label": 2}
    contents = {
        "classify": ("tsv", CLASSIFY),
        "regress": ("tsv", "label\ttext\n2.5\tthe fig"),
        "choose": ("jsonl", json.dumps(choice)),
        "tag": ("txt", tagged),
    }
    jobs = []
    for recipe, (suffix, content) in contents.items():
        work = prepared(pretrained, tmp_path, recipe, content, suffix)
        examples = list(task_scores.raw_examples(work.config.data))
        jobs.append((tmp_path / recipe, examples, settings(1), len(examples)))
    classes, number, choices, tags = read(*jobs)
    labels = sorted({label for label, _ in TEXTS})
    expected = {(CLS, *ids(text.replace("limes", "lime ##s")), SEP): [labels.index(label)] for label, text in TEXTS}
    assert {tuple(batch["input_ids"][0]): batch["labels"] for batch in classes} == expected
    assert number[0]["labels"] == [2.5]
    pairs = [ids("[CLS] is the [SEP] " + end) for end in ("fig [SEP]", "ant ##s here [SEP]", "? [SEP]")]
    assert choices[0]["input_ids"] == [[pair + [PAD] * (8 - len(pair)) for pair in pairs]]
    assert choices[0]["token_type_ids"][0][1] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert choices[0]["labels"] == [2]
    sentences = {tuple(batch["input_ids"][0]): batch["labels"][0] for batch in tags}
    found = [sentences[CLS, *ids(words), SEP] for words in ("the fig ##s", "lime ##s is")]
    (outside,), (fruit,) = ({found[0][1], found[1][3]}, {found[0][2], found[1][1]})
    assert {outside, fruit} == {0, 1}
    assert found == [[-100, outside, fruit, -100, -100], [-100, fruit, -100, outside, -100]]


@pytest.mark.parametrize("order", ["shuffled", "grouped"])
def test_the_peer_draws_an_order_of_its_own_for_each_epoch(pretrained: Path, tmp_path: Path, order: str) -> None:
    """Every example once in an epoch, in batches of 4, 4 and 3; other epochs and seeds have other orders."""
    prepared(pretrained, tmp_path, "classify", CLASSIFY, "tsv")
    examples = [{"first": "ant " * count, "second": None, "label": "fruit"} for count in range(1, 12)]
    seeds = (5, 6)
    read_by_seed = read(*((tmp_path / "classify", examples, settings(4, order=order, seed=seed), 6) for seed in seeds))
    orders = set()
    for batches in read_by_seed:
        for epoch in (batches[:3], batches[3:]):
            assert [len(batch["input_ids"]) for batch in epoch] == [4, 4, 3]
            lengths = [sum(row) for batch in epoch for row in batch["attention_mask"]]
            assert sorted(lengths) == list(range(3, 14))
            orders.add(tuple(lengths))
    assert len(orders) == 4


def test_the_peer_learns_and_is_scored(pretrained: Path, tmp_path: Path) -> None:
    work = prepared(pretrained, tmp_path, "classify", CLASSIFY, "tsv")
    figures = task_scores.measure(work, "transformers")
    assert figures["accuracy"] == 100
    assert figures["steps"] == work.steps == 54
