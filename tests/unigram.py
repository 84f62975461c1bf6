"""A small Unigram tokenizer, in the form in which transformers writes XLM-RoBERTa's."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

SPACE = "\u2581"
WORDS = {f"{SPACE}the": -2.0, f"{SPACE}cat": -2.5, "cat": -3.0, "fi": -3.1, "ca": -3.2, "th": -3.3, "s": -3.4}
WORDS |= {SPACE: -2.2, **{letter: -4.0 - number / 16 for number, letter in enumerate("theca12")}, "\u00e9": -4.5}
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
PIECES = [*SPECIAL, *WORDS, "<mask>"]
SCORES = {piece: WORDS.get(piece, 0.0) for piece in PIECES if piece not in (*SPECIAL, "<mask>")}


def fields() -> dict[str, Any]:
    """The content of tokenizer.json."""
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": PIECES.index(name), "content": name} | plain for name in (*SPECIAL, "<mask>")]
    added[-1]["lstrip"] = True
    special = {name: {"id": name, "ids": [PIECES.index(name)], "tokens": [name]} for name in ("<s>", "</s>")}
    begin, close = ({"SpecialToken": {"id": name, "type_id": 0}} for name in ("<s>", "</s>"))
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    spaces = {"type": "Replace", "pattern": {"Regex": f"[\\s{SPACE}]+"}, "content": " "}
    ends = {"type": "Strip", "strip_left": True, "strip_right": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, spaces, ends]},
        "pre_tokenizer": {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [begin, first, close],
            "pair": [begin, first, close, close, second, close],
            "special_tokens": special,
        },
        "decoder": {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True},
        "model": {
            "type": "Unigram",
            "unk_id": 3,
            "vocab": [[piece, SCORES.get(piece, 0.0)] for piece in PIECES],
            "byte_fallback": False,
        },
    }


def write(folder: Path, change: Callable[[dict[str, Any]], object] = lambda content: None) -> Path:
    """Write tokenizer.json after a change of its content, and that transformers is to take it as it is."""
    content = fields()
    change(content)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(content))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return folder / "tokenizer.json"
