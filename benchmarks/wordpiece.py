"""Compare the tokenizer in Python with tensorflow-text's: ids and offsets must be equal; the speed is for one core.

    python -m benchmarks.wordpiece --vocab vocab.txt --texts FILE [FILE...]

Every line of a file is a text, every file a batch. Prints one line of JSON; exits with 1 if the two differ.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from bert import cli
from bert.inputs.tokenization import WordPieceTokenizer
from bert.inputs.vocabulary import is_lower_case, load_vocab
from bert.inputs.wordpiece import WordPiece

Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True, kw_only=True)
class Options:
    vocab: Path
    """vocab.txt"""
    texts: tuple[Path, ...]
    """files of UTF-8 text"""


def measure(options: Options) -> dict[str, float]:
    """Return megabytes, tokens, and megabytes/s of processor time of each tokenizer, without and with offsets."""
    words = load_vocab(options.vocab)
    theirs = WordPieceTokenizer(options.vocab, is_lower_case(words))
    theirs.in_graph()  # fails without tensorflow-text: WordPiece would be compared with itself
    ours = WordPiece(words, is_lower_case(words))
    seconds = dict.fromkeys(("tensorflow_text", "python", "tensorflow_text_offsets", "python_offsets"), 0.0)

    def timed(name: str, encode: Callable[[list[str]], Arrays], texts: list[str]) -> Arrays:
        begun = time.process_time()
        arrays = encode(texts)
        seconds[name] += time.process_time() - begun
        return arrays

    size = tokens = 0
    for path in options.texts:
        texts = path.read_text(encoding="utf-8", errors="replace").split("\n")
        size += sum(len(text.encode()) for text in texts)
        plain = timed("tensorflow_text", theirs.encode, texts), timed("python", ours.encode, texts)
        *placed, end = timed("python_offsets", ours.encode_with_offsets, texts)
        placed.append(np.maximum(end, placed[-1] + 1))
        expected = timed("tensorflow_text_offsets", theirs.encode_with_offsets, texts)
        if not all(map(np.array_equal, (*plain[0], *expected), (*plain[1], *placed))):
            sys.exit(f"error: {path}: ids or offsets differ")
        tokens += len(expected[0])
    speeds = {f"{name}_mb_per_s": round(size / 1e6 / spent, 2) for name, spent in seconds.items()}
    return {"mb": round(size / 1e6, 1), "tokens": tokens} | speeds


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m benchmarks.wordpiece", description=__doc__)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    print(json.dumps(measure(options)))


if __name__ == "__main__":
    cli.main(main)
