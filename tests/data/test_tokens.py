"""Tokens of documents: every text comes back, the bytes do not depend on the workers, no text is in both splits."""

import json

import numpy as np
import pytest

from data import tokens
from data.pipeline import document_files, duplicates
from extensions.gpt.token_stream import TokenStream
from extensions.tokenizers import byte_bpe
from extensions.tokenizers.byte_bpe import ByteBPE

TEXT = "Mr. Ash keeps {n} bees.\n\n  They fly far, and {n} caf\u00e9s \u4e2d\u6587 <|endoftext|> hear of it.\t\n"


@pytest.fixture
def tokenizer(tmp_path, stage):
    """A finished folder of data.bpe, without a merge."""
    (tmp_path / "given").mkdir()
    vocabulary = {token: number for number, token in enumerate((*byte_bpe.BYTES, byte_bpe.END))}
    (tmp_path / "given" / "vocab.json").write_text(json.dumps(vocabulary))
    (tmp_path / "given" / "merges.txt").write_text("#version: 0.2\n")
    assert stage("bpe", "--import", tmp_path / "given", "--output", tmp_path / "bpe")[0] == 0
    return tmp_path / "bpe"


@pytest.fixture
def sources(folder):
    articles = [{"id": f"wikipedia:{n}", "text": TEXT.format(n=n)} for n in range(120)]
    parts = {f"part-{p:05d}.jsonl": articles[40 * p : 40 * (p + 1)] for p in range(3)}
    odd = [("books:1", "\u0000\ud83d."), ("books:2", TEXT.format(n=7).replace("\n", " ")), ("books:1", "Another.")]
    books = {"part-00000.jsonl": [{"id": id, "text": text} for id, text in odd]}
    return [folder("wikipedia", "wikipedia", parts), folder("books", "books", books)]


def arguments(sources, tokenizer, output, **flags):
    others = [item for name, value in ({"heldout": 0.2} | flags).items() for item in (f"--{name}", value)]
    return ["--source", *sources, "--tokenizer", tokenizer, "--output", output, *others]


def documents(folder, split):
    """The texts of the documents of a split, in order."""
    tokenizer = ByteBPE(folder / "tokenizer.json")
    ids = np.concatenate([np.fromfile(path, "<u2") for path in sorted(folder.glob(f"{split}-*.tokens"))])
    assert ids[-1] == tokenizer.end
    return [tokenizer.decode(piece[:-1]) for piece in np.split(ids, np.flatnonzero(ids == tokenizer.end) + 1)[:-1]]


def test_every_text_comes_back_in_order_in_one_split(tmp_path, stage, sources, tokenizer):
    out = tmp_path / "out"
    assert stage("tokens", *arguments(sources, tokenizer, out, workers=1))[0] == 0
    texts = [*(TEXT.format(n=n) for n in range(120)), "\u0000?."]  # what repeats a text or an id is dropped
    held_out = [duplicates.is_text_held_out(text.replace("?", "\ud83d"), 0.2) for text in texts]
    assert 9 < sum(held_out) < 50
    assert documents(out, "train") == [text for text, out_ in zip(texts, held_out, strict=True) if not out_]
    assert documents(out, "heldout") == [text for text, out_ in zip(texts, held_out, strict=True) if out_]


def test_the_manifest_has_the_counts_of_each_split(tmp_path, stage, sources, tokenizer):
    out = tmp_path / "out"
    code, lines = stage("tokens", *arguments(sources, tokenizer, out, workers=1))
    assert code == 0 and any("1 duplicates, 1 repeated ids" in line for line in lines)
    content = json.loads((out / "manifest.json").read_text())
    for split in ("train", "heldout"):
        texts = documents(out, split)
        size = sum(len(text.encode()) for text in texts)
        expected = {"documents": len(texts), "tokens": size + len(texts), "bytes": size}  # a byte is a token here
        assert content["counts"][split] == expected
    assert content["counts"]["duplicates"] == content["counts"]["repeated ids"] == 1
    assert content["extra"]["vocab_size"] == 257 and content["extra"]["end_id"] == 256
    assert (out / "tokenizer.json").read_bytes() == (tokenizer / "tokenizer.json").read_bytes()


def test_the_trainer_reads_what_the_stage_writes(tmp_path, stage, sources, tokenizer):
    out = tmp_path / "out"
    assert stage("tokens", *arguments(sources, tokenizer, out, workers=1))[0] == 0
    for split in ("train", "heldout"):
        ids = np.concatenate([np.fromfile(path, "<u2") for path in sorted(out.glob(f"{split}-*.tokens"))])
        data = TokenStream(out, split, 31)
        read = data.read(np.arange(len(data)))["input_ids"].numpy()
        np.testing.assert_array_equal(read[:, :-1].ravel(), ids[: len(data) * 31])
        np.testing.assert_array_equal(read[:, 1:].ravel(), ids[1 : len(data) * 31 + 1])


@pytest.mark.slow
def test_workers_shares_and_batches_do_not_change_a_byte(tmp_path, stage, sources, tokenizer, contents, monkeypatch):
    assert stage("tokens", *arguments(sources, tokenizer, tmp_path / "one", workers=1))[0] == 0
    assert stage("tokens", *arguments(sources, tokenizer, tmp_path / "three", workers=3))[0] == 0
    for share in (1, 0, 2):
        flags = {"workers": 1, "task": share, "of": 3}
        assert stage("tokens", *arguments(sources, tokenizer, tmp_path / "shares", **flags))[0] == 0
    monkeypatch.setattr(document_files, "TEXT_BATCH", 99)
    assert stage("tokens", *arguments(sources, tokenizer, tmp_path / "small", workers=1))[0] == 0
    for name in ("three", "shares", "small"):
        assert contents(tmp_path / name) == contents(tmp_path / "one")


def test_the_same_command_again_does_nothing_and_another_share_builds_anew(tmp_path, stage, sources, tokenizer):
    out = tmp_path / "out"
    assert stage("tokens", *arguments(sources, tokenizer, out, workers=1))[0] == 0
    assert "is up to date" in stage("tokens", *arguments(sources, tokenizer, out, workers=1))[1][0]
    before = set(documents(out, "heldout"))
    assert stage("tokens", *arguments(sources, tokenizer, out, workers=1, heldout=0.4))[0] == 0
    assert before < set(documents(out, "heldout"))  # what was held out stays held out


def test_at_least_one_document_is_held_out(tmp_path, stage, folder, tokenizer):
    source = folder("text", "text", {"part-00000.jsonl": [{"id": n, "text": f"Text {n}."} for n in range(3)]})
    assert stage("tokens", *arguments([source], tokenizer, tmp_path / "out", workers=1, heldout=1e-9))[0] == 0
    assert len(documents(tmp_path / "out", "heldout")) == 1 and len(documents(tmp_path / "out", "train")) == 2


def test_held_out_documents_of_many_parts_are_in_one_file(tmp_path, stage, folder, tokenizer, monkeypatch):
    monkeypatch.setattr(tokens, "HELD_OUT_PARTS", 3)
    texts = [[f"Text {part} {n}." for n in range(9)] for part in range(8)]
    files = {f"part-{p:05d}.jsonl": [{"id": t, "text": t} for t in some] for p, some in enumerate(texts)}
    source = folder("text", "text", files)
    assert stage("tokens", *arguments([source], tokenizer, tmp_path / "out", workers=1, heldout=0.5))[0] == 0
    assert [len(list((tmp_path / "out").glob(f"{split}-*.tokens"))) for split in ("train", "heldout")] == [8, 3]
    found = documents(tmp_path / "out", "heldout")
    assert found == [t for some in texts for t in some if duplicates.is_text_held_out(t, 0.5)]


@pytest.mark.slow  # to build a vocabulary of 65,793 tokens
def test_a_large_vocabulary_is_stored_in_four_bytes(tmp_path, stage, sources, tokenizer):
    vocabulary, _ = byte_bpe.read(tokenizer / "tokenizer.json")
    merges = [(left, right) for left in byte_bpe.BYTES for right in byte_bpe.BYTES]
    vocabulary |= {left + right: number for number, (left, right) in enumerate(merges, start=len(vocabulary))}
    (tmp_path / "wide").mkdir()
    (tmp_path / "wide" / "vocab.json").write_text(json.dumps(vocabulary))
    (tmp_path / "wide" / "merges.txt").write_text("\n".join(map(" ".join, merges)), encoding="utf-8")
    assert stage("bpe", "--import", tmp_path / "wide", "--output", tmp_path / "bpe4")[0] == 0
    assert stage("tokens", *arguments(sources, tmp_path / "bpe4", tmp_path / "out", workers=1))[0] == 0
    data, wide = TokenStream(tmp_path / "out", "train", 31), ByteBPE(tmp_path / "bpe4" / "tokenizer.json")
    assert data.vocab_size == len(vocabulary) == 65_793
    ids = data.read(np.arange(len(data)))["input_ids"].numpy()[:, :-1].ravel()
    assert wide.decode(ids).startswith(TEXT.format(n=0)) or wide.decode(ids).startswith(TEXT.format(n=1))


def test_wrong_inputs_are_refused_in_one_line(tmp_path, stage, folder, sources, tokenizer):
    out = tmp_path / "out"
    sentences = folder("documents", "documents", {"part-00000.jsonl": [{"id": "a", "sentences": ["A b."]}]})
    one = folder("one", "text", {"part-00000.jsonl": [{"id": "a", "text": "Alone."}, {"id": "b", "text": " Alone."}]})
    for case, code in (
        (arguments([tmp_path], tokenizer, out), 3),  # no manifest
        (arguments([sentences], tokenizer, out), 4),
        (arguments([one], tokenizer, out), 3),
        (arguments(sources, tmp_path / "given", out), 3),
        (arguments(sources, sources[0], out), 3),
        (arguments(sources, tokenizer, sources[0]), 2),
        (arguments(sources, tokenizer, out, heldout=0), 2),
        (arguments(sources, tokenizer, out, heldout=1), 2),
    ):
        ended, lines = stage("tokens", *case, "--workers", 1)
        errors = [line for line in lines if line.startswith("error: ")]
        assert (ended, len(errors)) == (code, 1), (case, lines)
        assert not out.exists()
