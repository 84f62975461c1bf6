"""What the post_processor of a `tokenizer.json` puts around texts, told by Hugging Face's `tokenizers`."""

import json
from typing import Any

from tokenizers import Tokenizer

from bert.text.vocabulary import LARGEST

FIRST, SECOND = LARGEST, LARGEST + 1  # ids of no token


def rows(begin: int, close: int, separators: int) -> list[list[int]]:
    """Return the rows of a text and of a pair: begin FIRST close, and begin FIRST close... SECOND close.

    separators: the number of `close` between FIRST and SECOND.
    """
    return [[begin, FIRST, close], [begin, FIRST, *[close] * separators, SECOND, close]]


def layout(post_processor: Any) -> list[list[int]]:
    """Return what a post_processor makes of the token FIRST, and of FIRST and SECOND as a pair.

    Raise ValueError if the library does not know it.
    """
    model = {"type": "WordLevel", "vocab": {"A": FIRST, "B": SECOND}, "unk_token": "A"}
    absent = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "decoder"))
    fields = {"version": "1.0", "added_tokens": [], "post_processor": post_processor, "model": model}
    try:
        tokenizer = Tokenizer.from_str(json.dumps(absent | fields))
    except Exception as error:  # the library raises no other class
        raise ValueError(f"the post_processor is not one of tokenizers ({error})") from error
    return [tokenizer.encode("A").ids, tokenizer.encode("A", "B").ids]
