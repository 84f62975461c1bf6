"""The inputs of the curves: python -m benchmarks.growth.inputs FUNCTION SIZE FOLDER."""

import dataclasses
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert.core import files, journal, outputs
from bert.text.vocabulary import SPECIAL
from data.pipeline import parts

WORDS = 200_000  # different ones; how often each occurs falls as 1 / rank
DOCUMENTS = 4000  # of the text that is divided into parts
RECORDS = 4096  # of the records that are divided into files
TOKENS, PREDICTIONS, VOCABULARY = 16, 3, 400
SENTENCE = 18  # words
BLOCK = 200  # sentences that are made at once
KB = 1000


def words(count: int, seed: int) -> list[str]:
    """Return invented words, of which a few are frequent and most are rare."""
    random = np.random.default_rng(seed)
    ranks = np.exp(random.random(count) * np.log(WORDS)).astype(np.int64)  # density 1 / rank
    return [_word(rank) for rank in ranks.tolist()]


_SYLLABLES = [first + second for first in "bdfgklmnprst" for second in "aeiou"]
_KNOWN: dict[int, str] = {}


def _word(rank: int) -> str:
    if rank not in _KNOWN:
        left, word = rank, ""
        while left:
            left, place = divmod(left, len(_SYLLABLES))
            word += _SYLLABLES[place]
        _KNOWN[rank] = word
    return _KNOWN[rank]


def sentences(seed: int) -> Iterator[str]:
    """Yield sentences without end."""
    for block in itertools.count():
        chosen = words(SENTENCE * BLOCK, 1000 * seed + block)
        for begin in range(0, len(chosen), SENTENCE):
            yield " ".join(chosen[begin : begin + SENTENCE]).capitalize() + "."


def document(stream: Iterator[str], characters: int) -> list[str]:
    """Return the next sentences, of about this many characters in all."""
    chosen, left = [], characters
    while left > 0:
        chosen.append(next(stream))
        left -= len(chosen[-1]) + 1
    return chosen


def _finished(folder: Path, stage: str, written: Mapping[str, Sequence[dict[str, Any]]]) -> None:
    """Write a finished folder with these files of documents."""

    def make(partial: Path) -> outputs.StageResult:
        for name, documents in written.items():
            with open(partial / name, "wb") as stream:
                stream.writelines(map(parts.encode, documents))
        counts = {name: len(documents) for name, documents in written.items()}
        return outputs.StageResult(counts={"documents": sum(counts.values())}, records=counts)

    outputs.build(folder, stage=stage, parameters={}, inputs=[], make=make)


def vocabulary(size: int, folder: Path) -> None:
    """vocab.txt with frequent words, and all syllables; the size does not matter."""
    chosen = dict.fromkeys([*SPECIAL, *map(_word, range(1, 5000)), *(f"##{syllable}" for syllable in _SYLLABLES), "."])
    with files.atomic_write(folder / "vocab.txt") as stream:
        stream.write("\n".join(chosen) + "\n")


def nothing(size: int, folder: Path) -> None:
    """No input."""


def text_parts(size: int, folder: Path) -> None:
    """text/, as data.text writes it: the same documents in `size` parts; and bpe/, a tokenizer."""
    stream = sentences(1)
    documents = [
        {"id": f"{number}", "text": " ".join(document(stream, 1000))} for number in range(max(size, DOCUMENTS))
    ]
    divided = {f"part-{part:05d}.jsonl": documents[part::size] for part in range(size)}
    _finished(folder / "text", "text", divided)
    _run("data.bpe", "--source", folder / "text", "--output", folder / "bpe", "--size", 400, "--max_megabytes", 1)


def long_file(size: int, folder: Path) -> None:
    """files/long.txt, one document of `size` KB."""
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "long.txt").write_text("\n".join(document(sentences(1), size * KB)) + "\n")


def long_text(size: int, folder: Path) -> None:
    """text/, as data.text writes it: one document of `size` KB."""
    _finished(
        folder / "text",
        "text",
        {"part-00000.jsonl": [{"id": "long", "text": "\n".join(document(sentences(1), size * KB))}]},
    )


def long_shard(size: int, folder: Path) -> None:
    """shards/, as data.shards writes it: one document of `size` KB, and a short one; and vocab.txt."""
    stream = sentences(1)
    lengths = {"long": size * KB} | {f"short {number}": 500 for number in range(8)}
    documents = [{"id": name, "sentences": document(stream, length)} for name, length in lengths.items()]
    _finished(folder / "shards", "shards", {"train-00000.jsonl": documents})
    vocabulary(size, folder)


def shards(size: int, folder: Path) -> None:
    """shards/, as data.shards writes it: documents of 5 KB, `size` KB in all."""
    length, stream = min(size, 5), sentences(1)
    documents = [{"id": f"{number}", "sentences": document(stream, length * KB)} for number in range(size // length)]
    _finished(folder / "shards", "shards", {"train-00000.jsonl": documents})


def metrics(size: int, folder: Path) -> None:
    """run/, as bert.pretrain writes it, with `size` lines of metrics."""
    run = folder / "run"
    run.mkdir(parents=True)
    files.write_json(run / "config.json", {"config": {}, "recipe": "demo_phase1"})
    with files.atomic_write(run / "metrics.jsonl") as stream:
        for step in range(1, size + 1):
            line = {
                "step": step,
                "split": "train",
                "scale": journal.SCALE,
                "loss": 10 / (1 + step / size),
                "tokens_per_second": 1000.0 + step % 97,
                "learning_rate": 1e-4,
                "mlm_accuracy": 100 * step / size,
            }
            stream.write(json.dumps(line) + "\n")


def records(size: int, folder: Path) -> None:
    """records/, as data.tfrecords writes it: `size` records, which repeat each other."""
    _records(folder / "records", size, 1)


def record_shards(size: int, folder: Path) -> None:
    """records/, as data.tfrecords writes it: the same records in `size` files."""
    _records(folder / "records", RECORDS, size)


def _records(folder: Path, count: int, shards: int) -> None:
    from bert.text import frames, instances, tf_example, vocabulary
    from bert.text.instances import InstanceConfig
    from bert.text.normalization import UNCASED

    shape = InstanceConfig(max_seq_length=TOKENS, max_predictions_per_seq=PREDICTIONS)
    random, rows = np.random.default_rng(5), min(count, RECORDS)
    arrays: dict[str, np.ndarray] = {
        "input_ids": random.integers(len(SPECIAL), VOCABULARY, (rows, TOKENS)),
        "input_mask": np.ones((rows, TOKENS), np.int64),
        "segment_ids": np.tile((np.arange(TOKENS) > TOKENS // 2).astype(np.int64), (rows, 1)),
        "masked_lm_positions": np.tile(np.arange(1, PREDICTIONS + 1), (rows, 1)),
        "masked_lm_ids": random.integers(len(SPECIAL), VOCABULARY, (rows, PREDICTIONS)),
        "masked_lm_weights": np.ones((rows, PREDICTIONS), np.float32),
        "next_sentence_labels": random.integers(0, 2, (rows, 1)),
    }
    arrays["input_ids"][:, 0] = SPECIAL.index("[CLS]")
    arrays["input_ids"][:, [TOKENS // 2, -1]] = SPECIAL.index("[SEP]")
    encoded = itertools.cycle(list(tf_example.encode_batch(arrays)))

    def make(partial: Path) -> outputs.StageResult:
        counts = {f"train-{n:05d}.tfrecord": count // shards + (n < count % shards) for n in range(shards)}
        for name, size in counts.items():
            with frames.RecordWriter(partial / name) as writer:
                for record in itertools.islice(encoded, size):
                    writer.write(record)
        vocabulary.write([*SPECIAL, *(f"w{number}" for number in range(VOCABULARY - len(SPECIAL)))], UNCASED, partial)
        extra = {
            "kind": "instances",
            "features": instances.feature_spec(shape),
            "instances": dataclasses.asdict(shape),
            "vocab_sha256": files.sha256(partial / vocabulary.NAME),
            "vocab_size": VOCABULARY,
            "lower_case": True,
        }
        return outputs.StageResult(counts={}, records=counts, extra=extra)

    outputs.build(folder, stage="tfrecords", parameters={"invented": [count, shards]}, inputs=[], make=make)


def checkpoint(size: int, folder: Path) -> None:
    """run/ with a checkpoint of `size` MB."""
    _run("benchmarks.growth.calls", "save", folder / "run", size)


def classifier(size: int, folder: Path) -> None:
    """run/, a tiny model of tasks.train, and texts.tsv with `size` texts."""
    vocabulary(size, folder)
    for name, count in (("train", 64), ("dev", 16), ("texts", size)):
        texts = sentences(3)
        with files.atomic_write(folder / f"{name}.tsv") as stream:
            stream.write("text\tlabel\n")
            for number in range(count):
                stream.write(f"{next(texts)}\t{('no', 'yes')[number % 2]}\n")
    tiny = "--model.hidden_size 16 --model.num_hidden_layers 1 --model.num_attention_heads 2"
    tiny += " --model.intermediate_size 32 --model.max_position_embeddings 64 --data.length 64"
    data = ("--data.train", folder / "train.tsv", "--data.dev", folder / "dev.tsv")
    start = ("--init.checkpoint", "none", "--data.vocab", folder / "vocab.txt", "--run.directory", folder / "run")
    _run("tasks.train", "classify", *data, *start, *tiny.split(), "--batch.total", 16, "--run.steps", 2)


def _run(*command: object) -> None:
    """Run a command; end with its exit code and last line if it fails."""
    done = subprocess.run([sys.executable, "-m", *map(str, command)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"error: {command[0]}: {(done.stderr.strip().splitlines() or ['it printed nothing'])[-1]}")


if __name__ == "__main__":
    globals()[sys.argv[1]](int(sys.argv[2]), Path(sys.argv[3]))
