"""The tokenizers that tables of the trunk name as strings are there."""

from pathlib import Path

from bert.convert.families import TOKENIZERS, TokenizerFiles
from bert.text import causal_tokenizer
from bert.text.tokenization import Tokenizer
from bert.text.tokenizer_kind import KINDS
from bert.text.vocabulary import TOKENIZER
from extensions.tokenizers import byte_bpe


def test_every_kind_has_a_tokenizer_and_files() -> None:
    for kind in KINDS.values():
        assert isinstance(kind.tokenizer, type) and issubclass(kind.tokenizer, Tokenizer) and callable(kind.content)
        assert not (kind.is_kind and kind.is_kind({}))
    assert {"word pieces", *TOKENIZERS} <= KINDS.keys()
    assert all(isinstance(stored, TokenizerFiles) for stored in TOKENIZERS.values())


def test_the_tokenizer_of_causal_models_is_there(tmp_path: Path) -> None:
    path, tokens = tmp_path / TOKENIZER, [*byte_bpe.BYTES, "th", byte_bpe.END]
    path.write_text(byte_bpe.text_of({token: number for number, token in enumerate(tokens)}, [("t", "h")], path))
    tokenizer = causal_tokenizer.read(path)
    assert (tokenizer.path, tokenizer.size, tokenizer.end) == (path, 258, 257)
    assert tokenizer.decode(tokenizer.encode("the")) == "the" and tokenizer.encode_batch(["th"]) == [[256]]
    assert tokenizer.sizes().tolist() == [1] * 256 + [2, 0]
