"""Records of the tokenizers of imported models: RoBERTa's, ModernBERT's and XLM-RoBERTa's.

Ids are compared with Hugging Face's `tokenizers`, words with its pre-tokenizer; tests/parity compares with
transformers.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from bert import adapt, evaluate, pretrain
from bert.core import manifest
from bert.core.errors import InputError, UsageError
from bert.text import dynamic_masking, records, tokenization
from extensions.tokenizers import byte_bpe, byte_words
from extensions.tokenizers.json_tokenizers import BytePairTokenizer
from tests import unigram
from tests.bert.convert.equations import imported
from tests.extensions.families import test_modernbert, test_roberta
from tests.extensions.tokenizers import bracketed, test_byte_words

SENTENCES = [
    "The cat's 12 th\u00e9s, the river!",
    "the caf\u00e9 (the\u0301) \u4e2d\u6587 \U0001f469\u200d\U0001f680 the end",
    "the river the river the [MASK] <mask> the the cat.",
    "Don't the    cat",
]


PLAIN = ["The cat, 12 rivers, the river!", "They said (the end) the.", "No!! 21 the, the cat.", "the (t), cats 1-2"]


def document(number: int, sentences: Sequence[str] = SENTENCES) -> dict[str, Any]:
    texts = [f"{sentences[(number + place) % 4]} {number * place % 7}" for place in range(2 + number % 9)]
    return {"id": f"a:{number}", "sentences": texts}


def write_shards(folder: Any, name: str, sentences: Sequence[str]) -> Path:
    made = [document(number, sentences) for number in range(60)]
    shards = {f"train-0000{s}-of-00002.jsonl": made[20 * s : 20 * s + 18] for s in range(2)}
    shards["heldout-00000-of-00001.jsonl"] = made[50:59]
    return folder(name, "shards", shards)


@pytest.fixture
def source(folder):
    return write_shards(folder, "shards", SENTENCES)


@pytest.fixture
def plain(folder):
    return write_shards(folder, "plain", PLAIN)


def write(kind: str, folder: Path) -> Path:
    path = folder / "tokenizer.json"
    if kind == "modernbert":
        bracketed.write(path)
    elif kind == "xlm-roberta":
        path.write_text(json.dumps(unigram.fields()))
    else:
        test_byte_words.write(path)
    return path


def run(stage, source, vocab, output, *options):
    sizes = ("--max_seq_length", 41, "--lower_case", "false", "--pairs", "none", "--workers", 1)
    return stage("tfrecords", "--source", source, "--vocab", vocab, "--output", output, *sizes, *options)


@pytest.mark.parametrize("kind", ["roberta", "modernbert", "xlm-roberta"])
def test_a_document_has_the_ids_that_the_library_gives_it(kind, tmp_path, stage, source):
    vocab = write(kind, tmp_path)
    code, said = run(stage, source, vocab, tmp_path / "out", "--kind", "documents", "--max_seq_length", 73)
    assert code == 0, said
    assert (tmp_path / "out/tokenizer.json").read_bytes() == vocab.read_bytes()
    content = json.loads(vocab.read_text())
    size = len(content["model"]["vocab"])
    theirs = Tokenizer.from_file(str(vocab))
    theirs.encode_special_tokens = True  # in a text they are text
    masked = records.samples(tmp_path / "out", "train", seed=3)
    assert isinstance(masked, dynamic_masking.DynamicMasking)
    assert manifest.load(tmp_path / "out").extra["vocab_size"] == {"modernbert": bracketed.SIZE}.get(kind, size)
    chunks, owners = masked._chunks(np.arange(len(masked)))
    found: dict[tuple[int, int], list[int]] = {}
    bounds = chunks.sentences[chunks.documents]
    for owner, begin, end in zip(owners.tolist(), bounds[:-1], bounds[1:], strict=True):
        found.setdefault(tuple(owner), []).extend(chunks.ids[begin:end].tolist())
    assert len(found) == 36
    compared = 0
    for (shard, number), ids in found.items():
        text = " ".join(document(20 * shard + number)["sentences"])
        if kind == "xlm-roberta" and "<mask>" in text:
            continue  # of which the library makes the special token, also with encode_special_tokens
        compared += 1
        assert ids == theirs.encode(text, add_special_tokens=False).ids, text
    assert compared == (3 if kind == "xlm-roberta" else 36)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["roberta", "modernbert"])
@pytest.mark.parametrize("made", ["documents", "instances"])
def test_masks_are_of_whole_words_and_random_tokens_are_ordinary(kind, made, tmp_path, stage, plain):
    vocab = write(kind, tmp_path)
    flags = ("--whole_word_mask", "true", "--masked_lm_prob", 0.4, "--mask_shares", 0.5, 0.4, 0.1, "--seed", 7)
    assert run(stage, plain, vocab, tmp_path / "out", "--kind", made, *flags)[0] == 0
    data = records.samples(tmp_path / "out", "train", seed=3)
    order = np.tile(np.arange(len(data)), 5)
    batch = {name: value.numpy() for name, value in data.read(order, np.arange(len(order))).items()}
    tokenizer = tokenization.read(vocab)
    assert isinstance(tokenizer, BytePairTokenizer)
    assert not batch["segment_ids"].any()
    random, seen, checked = set(), set(), 0
    for row in range(len(order)):
        ids, length = batch["input_ids"][row], int(batch["input_mask"][row].sum())
        used = batch["masked_lm_weights"][row] > 0
        at, labels = batch["masked_lm_positions"][row][used], batch["masked_lm_ids"][row][used]
        restored = ids.copy()
        restored[at] = labels
        inner = restored[1 : length - 1]
        assert (restored[0], restored[length - 1]) == (tokenizer.cls_id, tokenizer.sep_id)
        assert (restored[length:] == tokenizer.pad_id).all()
        special = {tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id, tokenizer.mask_id, tokenizer.unk_id}
        assert not special & set(inner.tolist())
        shown = ids[at]
        seen.update(shown[shown == tokenizer.mask_id].tolist())
        random.update(shown[(shown != tokenizer.mask_id) & (shown != labels)].tolist())
        words = words_of(tokenizer, inner)
        if words is not None:
            checked += 1
            chosen = np.isin(np.arange(1, length - 1), at)
            assert all(len(set(chosen[words == word].tolist())) == 1 for word in set(words.tolist()))
    assert seen == {tokenizer.mask_id} and checked > 40
    assert random <= set(tokenizer.ordinary.tolist()) and len(random) > 100


def words_of(tokenizer: BytePairTokenizer, ids: np.ndarray) -> np.ndarray | None:
    """The word of each token, which the pre-tokenizer makes of the text of all; None if a token is no characters."""
    pieces = [byte_words.bytes_of(tokenizer.vocab[number]) for number in ids]
    try:
        text = "".join(piece.decode() for piece in pieces)
    except UnicodeDecodeError:
        return None
    cut = test_byte_words.CUT.pre_tokenize_str(text)
    ends = np.cumsum([len(piece) for piece, _ in cut])
    return np.searchsorted(ends, np.cumsum([0, *map(len, pieces[:-1])]), side="right")


def test_vocabularies_that_do_not_fit_are_refused(tmp_path, stage, source):
    vocab = write("modernbert", tmp_path)
    needed = ("--source", source, "--vocab", vocab, "--output", tmp_path / "out")
    code, said = stage("tfrecords", *needed, "--pairs", "none")
    assert code == 3 and "give --lower_case false" in said[-1], said
    code, said = stage("tfrecords", *needed, "--lower_case", "false")
    assert code == 2 and "--pairs nsp" in said[-1] and "give --pairs none" in said[-1], said
    vocab.write_text(byte_bpe.text_of({token: n for n, token in enumerate((*byte_bpe.BYTES, byte_bpe.END))}, [], vocab))
    code, said = stage("tfrecords", *needed, "--lower_case", "false", "--pairs", "none")
    assert code == 3 and "give the tokenizer.json of the model" in said[-1], said
    assert not (tmp_path / "out").exists()


def train(records: Path, run: Path, *flags: str) -> None:
    pretrain.main(["bert_mini_phase1", "--data.train", str(records), "--run.directory", str(run), *flags])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["modernbert", pytest.param("roberta", marks=pytest.mark.thorough)])
def test_pretraining_of_an_import_goes_on_with_ones_own_text(kind, tmp_path, stage, source, verify_folders, capsys):
    theirs = {"roberta": test_roberta, "modernbert": test_modernbert}[kind]
    theirs.a_folder(tmp_path / "theirs")
    start = imported(tmp_path / "theirs", tmp_path / "start")
    with pytest.raises(InputError, match=r"give that file to data\.tfrecords as --vocab"):
        adapt.main([str(start), "--words", str(start / "config.json"), "--output", str(tmp_path / "adapted")])
    records = tmp_path / "records"
    code, said = run(
        stage, source, start / "tokenizer.json", records, "--kind", "documents", "--whole_word_mask", "true"
    )
    assert code == 0, said
    assert verify_folders(records)[0] == 0
    assert stage("stats", records)[0] == 0
    flags = ["--init.checkpoint", str(start), "--run.steps", "30", "--batch.total", "24", "--batch.per_device", "12"]
    flags += ["--optimizer.learning_rate", "0.01", "--optimizer.warmup_steps", "2", "--run.log_every", "1"]
    train(records, tmp_path / "run", *flags)
    assert (tmp_path / "run/tokenizer.json").read_bytes() == (start / "tokenizer.json").read_bytes()
    losses = []
    for folder in (start, tmp_path / "run"):
        capsys.readouterr()
        evaluate.main([str(folder), "--data", str(records)])
        losses.append(json.loads(capsys.readouterr().out)["mlm_loss"])
    assert losses[1] < 0.9 * losses[0], losses
    other = write("roberta" if kind == "modernbert" else "modernbert", tmp_path)
    assert run(stage, source, other, tmp_path / "others")[0] == 0
    with pytest.raises(InputError, match="another vocabulary"):
        evaluate.main([str(start), "--data", str(tmp_path / "others")])
    with pytest.raises(UsageError, match="make the data with the vocabulary of the weights"):
        train(tmp_path / "others", tmp_path / "again", *flags)
