"""Our contender in benchmarks/data_prep.py: FOLDER VOCAB TIMES. TIMES is the duplicate factor; 0: tokenised documents.

Runs the task functions of data.documents and data.tfrecords on one part, as one of their worker processes does.
"""

import json
import resource
import sys
import tempfile
import time
from pathlib import Path

from bert.core import files
from data import documents, tfrecords
from data.pipeline.parts import Part


def main(folder: Path, vocab: Path, times: int) -> None:
    """Run the task functions of both stages on raw.jsonl and print bytes, seconds and memory."""
    source = _part(folder / "raw.jsonl")
    sizes = [len(line["text"].encode()) for line in documents.parts.read_records(source, "text")]
    vocab_sha256 = files.sha256(vocab)
    tfrecords._load_tokenizer(vocab, vocab_sha256)  # a worker loads it once for all its shards
    with tempfile.TemporaryDirectory(dir=folder) as name:
        work = Path(name)
        options = tfrecords.Options(
            source=work, vocab=vocab, output=work, dupe_factor=max(1, times), kind="instances" if times else "documents"
        )
        begun = time.perf_counter()
        documents.split_part(
            documents.SplitTask(source, work / "train-0.jsonl", folder / "punkt", 64, bytes(len(sizes)))
        )
        shard = _part(work / "train-0.jsonl")
        tfrecords.write_shard(tfrecords.ShardTask(shard, work / "train-0.tfrecord", options, vocab_sha256))
        seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"bytes": sum(sizes), "seconds": seconds, "peak_mb": peak}))


def _part(path: Path) -> Part:
    return Part(path, files.sha256(path))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
