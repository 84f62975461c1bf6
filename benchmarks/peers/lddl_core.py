"""The core of LDDL, lddl/dask/bert/pretrain.py: FOLDER VOCAB TIMES CHECKOUT; split, tokenise, pair and mask in memory.

Without Dask, shuffle and Parquet, which would cost more: those modules are replaced by empty ones.
"""

import importlib.util
import json
import os
import resource
import sys
import time
import types
from typing import Any


class _Absent(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *arguments, **named: None


def _load(checkout: str) -> Any:
    for name in (
        "dask",
        "dask.bag",
        "dask.distributed",
        "pyarrow",
        "lddl",
        "lddl.utils",
        "lddl.dask",
        "lddl.dask.bert",
        "lddl.download",
        "lddl.download.utils",
        "lddl.dask.readers",
        "lddl.dask.bert.binning",
    ):
        sys.modules[name] = _Absent(name)
    path = os.path.join(checkout, "lddl", "dask", "bert", "pretrain.py")
    spec = importlib.util.spec_from_file_location("lddl.dask.bert.pretrain", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(folder: str, vocab: str, times: int, checkout: str) -> None:
    """Runs its functions on lddl.txt and prints bytes, seconds and memory."""
    import nltk
    import transformers  # type: ignore[import-not-found,unused-ignore]

    theirs = _load(checkout)
    tokenizer = transformers.BertTokenizerFast(vocab_file=vocab, do_lower_case=True)
    with open(os.path.join(folder, "lddl.txt"), encoding="utf-8") as stream:
        texts = [line.split(None, 1) for line in stream]
    punkt = nltk.tokenize.punkt.PunktSentenceTokenizer(_parameters(os.path.join(folder, "punkt")))
    begun = time.perf_counter()
    documents = []
    for name, text in texts:
        stripped = (sentence.strip() for sentence in punkt.tokenize(text))
        tokens = (tokenizer.tokenize(sentence, max_length=512, truncation=True) for sentence in stripped if sentence)
        documents.append(theirs.Document(name, tuple(theirs.Sentence(tuple(part)) for part in tokens if part)))
    words = tuple(tokenizer.vocab.keys())
    pairs = [
        pair
        for _ in range(times)
        for number in range(len(documents))
        for pair in theirs.create_pairs_from_document(documents, number, masking=True, vocab_words=words)
    ]
    seconds = time.perf_counter() - begun
    assert pairs
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    size = sum(len(text.encode()) for _, text in texts)
    print(json.dumps({"bytes": size, "seconds": seconds, "peak_mb": peak}))


def _parameters(folder: str) -> Any:
    from nltk.tokenize.punkt import PunktParameters

    def rows(name: str) -> list[list[str]]:
        with open(os.path.join(folder, name), encoding="utf-8") as stream:
            return [line.split("\t") for line in stream.read().split("\n") if line]

    parameters = PunktParameters()
    parameters.abbrev_types = {row[0] for row in rows("abbrev_types.txt")}
    parameters.sent_starters = {row[0] for row in rows("sent_starters.txt")}
    parameters.collocations = {(row[0], row[1]) for row in rows("collocations.tab")}
    for word, flags in rows("ortho_context.tab"):
        parameters.ortho_context[word] = int(flags)
    return parameters


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
