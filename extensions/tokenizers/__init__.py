"""The tokenizers of a `tokenizer.json`: byte-level BPE, also between [CLS] and [SEP], and Unigram."""
