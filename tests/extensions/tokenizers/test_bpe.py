"""Byte-level BPE vocabularies: trained alike every time, and GPT-2's files are taken with all ids."""

import itertools
import json
import subprocess
import sys

import pytest
from tokenizers import ByteLevelBPETokenizer

from data.pipeline import duplicates
from extensions.tokenizers import byte_bpe
from extensions.tokenizers.byte_bpe import ByteBPE

TEXT = "the river runs past seven mills and nobody remembers their builders' names caf\u00e9 \u4e2d\u6587 1729"
WORDS = TEXT.split()
UNSEEN = "xylophone zyzzyva"  # in what is held out


@pytest.fixture
def source(folder):
    texts = [" ".join(WORDS[n * k % 15] for k in range(2, 40)).capitalize() + f".\n{n}" for n in range(300)]
    kept = [text for text in texts if not duplicates.is_text_held_out(text, 0.1)]
    held_out = [text for n in range(300) if duplicates.is_text_held_out(text := f"{UNSEEN} {n}", 0.1)]
    assert len(kept) > 200 and len(held_out) > 9
    records = [{"id": str(n), "text": text} for n, text in enumerate([*kept, *held_out])]
    return folder("text", "text", {f"part-0000{p}.jsonl": records[p::2] for p in range(2)})


def test_the_stages_of_tokens_and_vocabularies_do_not_import_tensorflow():
    program = "import sys, extensions.tokenizers.bpe, data.tokens, data.vocab; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def train(stage, source, output, size, *flags):
    assert stage("bpe", "--source", source, "--output", output, "--size", size, *flags)[0] == 0
    return ByteBPE(output / "tokenizer.json")


def test_a_trained_vocabulary_has_the_layout_of_gpt_2(tmp_path, stage, source):
    tokenizer = train(stage, source, tmp_path / "out", 330)
    vocabulary, merges = byte_bpe.read(tmp_path / "out" / "tokenizer.json")
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    assert tokens[:256] == list(byte_bpe.BYTES) and tokens[0] == "!" and tokens[-1] == "<|endoftext|>"
    assert len(dict.fromkeys("".join(pair) for pair in merges)) == len(merges) == 330 - 257
    assert tokens[256:-1] == ["".join(pair) for pair in merges]
    assert (tokenizer.size, tokenizer.end) == (330, 329)
    content = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert content["extra"] == {"vocab_size": 330, "end_id": 329} and content["stage"] == "bpe"
    assert len(tokenizer.encode(" nobody remembers")) < 7


def test_the_first_merges_are_the_most_frequent_pairs(tmp_path, stage, source):
    train(stage, source, tmp_path / "out", 300, "--heldout", 0)
    first = byte_bpe.read(tmp_path / "out" / "tokenizer.json")[1][0]
    counts: dict[tuple[str, str], int] = {}
    for path in source.glob("part-*"):
        for line in path.read_text(encoding="utf-8").splitlines():
            for word in json.loads(line)["text"].replace("\n", " ").split(" "):
                letters = "\u0120" + "".join(c if c.isascii() else "##" for c in word)
                for pair in itertools.pairwise(letters):
                    counts[pair] = counts.get(pair, 0) + 1
    assert counts[first] == max(counts.values())


def test_held_out_text_is_not_trained_on(tmp_path, stage, source):
    with_all = train(stage, source, tmp_path / "all", 500, "--heldout", 0)
    without = train(stage, source, tmp_path / "without", 500, "--heldout", 0.1)
    text = " " + UNSEEN.split()[1]
    assert len(with_all.encode(text)) < 3 and len(without.encode(text)) > 5


def test_a_small_text_gives_fewer_tokens_and_says_so(tmp_path, stage, source):
    code, lines = stage("bpe", "--source", source, "--output", tmp_path / "out", "--size", 50_000)
    assert code == 0 and "instead of 50,000, because the text is small" in lines[0]
    tokenizer = ByteBPE(tmp_path / "out" / "tokenizer.json")
    assert tokenizer.end == tokenizer.size - 1 < 2000


def test_text_without_spaces_takes_no_time_and_a_lone_surrogate_is_no_error(tmp_path, stage, folder):
    texts = ["ab" * 500_000, "a\ud83d" * 9, "abc abc abc"]
    source = folder("text", "text", {"part-00000.jsonl": [{"id": str(n), "text": t} for n, t in enumerate(texts)]})
    assert train(stage, source, tmp_path / "out", 300, "--heldout", 0).size < 300


def gpt2_files(tmp_path, names=("vocab.json", "merges.txt"), end_first=True):
    """Write a vocabulary under GPT-2's names, with its own order of ids."""
    merges = [("t", "h"), ("th", "e"), ("\u0120", "the"), ("#", "#")]
    tokens = [*reversed(byte_bpe.BYTES), *("".join(pair) for pair in merges)]
    tokens = [byte_bpe.END, *tokens] if end_first else [*tokens, byte_bpe.END]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    (tmp_path / names[0]).write_text(json.dumps(vocabulary))
    lines = ["#version: 0.2", *map(" ".join, merges), ""]
    (tmp_path / names[1]).write_text("\n".join(lines), encoding="utf-8")
    return vocabulary, merges


@pytest.mark.parametrize("names", byte_bpe.GPT2_FILES)
@pytest.mark.parametrize("end_first", [True, False])
def test_imported_files_keep_all_ids(tmp_path, stage, names, end_first):
    vocabulary, merges = gpt2_files(tmp_path, names, end_first)
    (tmp_path / "model.bin").write_text("not read, not hashed")
    assert stage("bpe", "--import", tmp_path, "--output", tmp_path / "out")[0] == 0
    assert byte_bpe.read(tmp_path / "out" / "tokenizer.json") == (vocabulary, merges)
    tokenizer, theirs = ByteBPE(tmp_path / "out" / "tokenizer.json"), ByteLevelBPETokenizer(vocabulary, merges)
    text = "The other the ## # thethe\n\u4e2d  the"
    assert tokenizer.encode(text) == theirs.encode(text).ids
    assert tokenizer.end == (0 if end_first else tokenizer.size - 1)
    content = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert content["parameters"] == {"size": None} and set(content["inputs"]) == set(names)
    (tmp_path / "model.bin").write_text("so it may change")
    assert "is up to date" in stage("bpe", "--import", tmp_path, "--output", tmp_path / "out")[1][0]


def test_a_folder_with_a_tokenizer_json_alone_gives_the_same_file(tmp_path, stage):
    gpt2_files(tmp_path)
    assert stage("bpe", "--import", tmp_path, "--output", tmp_path / "one")[0] == 0
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone/tokenizer.json").write_bytes((tmp_path / "one/tokenizer.json").read_bytes())
    assert stage("bpe", "--import", tmp_path / "alone", "--output", tmp_path / "two")[0] == 0
    assert (tmp_path / "two/tokenizer.json").read_bytes() == (tmp_path / "one/tokenizer.json").read_bytes()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("vocab.json", "["),
        ("vocab.json", "[]"),
        ("vocab.json", '{"a": "b"}'),
        ("vocab.json", '{"a": 0}'),
        ("merges.txt", "t h\nthe\n"),
        ("merges.txt", "t h e\n"),
        ("merges.txt", "z q\n"),
        ("merges.txt", "\udcff"),
    ],
)
def test_unsound_files_are_refused_in_one_line(tmp_path, stage, name, content):
    gpt2_files(tmp_path)
    (tmp_path / name).write_bytes(content.encode("utf-8", "surrogateescape"))
    code, lines = stage("bpe", "--import", tmp_path, "--output", tmp_path / "out")
    assert (code, len(lines) - lines[0].startswith("bpe: ")) == (3, 1) and str(tmp_path) in lines[-1]
    assert not (tmp_path / "out").exists()


def test_size_or_files_must_be_given(tmp_path, stage, source):
    output = ("--output", tmp_path / "out")
    assert stage("bpe", "--source", source, *output)[0] == 2
    assert stage("bpe", "--size", 500, *output)[0] == 2
    assert stage("bpe", "--size", 256, "--source", source, *output)[0] == 2
    assert stage("bpe", "--import", tmp_path, "--size", 500, *output)[0] == 2
    code, lines = stage("bpe", "--import", tmp_path, *output)
    assert code == 3 and "no vocab.json and merges.txt" in lines[0]
    assert stage("bpe", "--size", 500, "--source", tmp_path, *output)[0] == 3
