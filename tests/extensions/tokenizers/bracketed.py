"""A tokenizer.json of ModernBERT's kind, with few merges: NFC, runs of spaces as added tokens, [CLS] text [SEP]."""

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from extensions.tokenizers.byte_bpe import BYTES

G = "\u0120"  # a space
MERGES = [("t", "h"), ("th", "e"), (G, "the"), ("c", "a"), ("ca", "t"), (G, "cat"), (G, "t")]
PLAIN = ("|||IP_ADDRESS|||", "   ", "  ")
SPECIAL = ("<|endoftext|>", "[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")
TOKENS = ["|||IP_ADDRESS|||", "<|padding|>", *BYTES, *("".join(merge) for merge in MERGES)]
SIZE = len(TOKENS) + len(PLAIN) - 1 + len(SPECIAL)


def write(path: Path, mask_strips: bool = True, prefix: bool = False) -> None:
    """Write the file. prefix: whether a text gets a space before it."""
    tokenizer = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(TOKENS)}, merges=MERGES))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix, trim_offsets=True, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(token, normalized=True) for token in PLAIN])
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False, lstrip=token == "[MASK]" and mask_strips) for token in SPECIAL]
    )
    ids = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
    )
    tokenizer.save(str(path))
