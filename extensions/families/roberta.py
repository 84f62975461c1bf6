"""RoBERTa in transformers: names of its tensors, where its positions begin, and its tokenizer's files.

A row of the table of positions is read for a token that is not padding: the first token has the row behind that of
padding. So the table has rows that no model reads; here it is without them.

Source: transformers (modeling_roberta.py, configuration_roberta.py, tokenization_roberta.py).
"""

from pathlib import Path
from typing import Any

from bert.convert import run
from bert.convert.families import ABSOLUTE, BERTS, Family, TokenizerFiles
from bert.core import files
from bert.core.config import ModelConfig
from bert.core.errors import InputError
from bert.text.vocabulary import TOKENIZER
from extensions.tokenizers import byte_bpe
from extensions.tokenizers.byte_bpe import Tables

PAD_ID = 1  # of <pad>
UNUSED_POSITIONS = PAD_ID + 1
SETTINGS = "tokenizer_config.json"


def read_tokenizer(folder: Path, config: ModelConfig) -> str:
    """Return the content of a run's tokenizer.json."""
    settings = files.read_object(folder / SETTINGS) if (folder / SETTINGS).exists() else {}
    tables, path = _read(folder, settings.get("add_prefix_space", False))
    run.check_vocab_size(config, tables.vocabulary, path)
    return byte_bpe.text_of_tables(tables, path)


def _read(folder: Path, prefix: object) -> tuple[Tables, Path]:
    """Return the tokenizer of a folder's `tokenizer.json`, or else of its vocab.json and merges.txt; and its file.

    prefix: what tokenizer_config.json says of a space before a text; a tokenizer.json has this setting itself. Raise
    InputError if there are no such files, or if they are not a tokenizer of RoBERTa.
    """
    path = folder / TOKENIZER
    if path.exists():
        tables = byte_bpe.read_tables(path, byte_bpe.ROBERTA)
    else:
        if type(prefix) is not bool:
            raise InputError(f"{folder / SETTINGS}: add_prefix_space is {prefix!a}; give true or false")
        path, merges = byte_bpe.find(folder)
        tables = Tables(*byte_bpe.load(path, merges), byte_bpe.ROBERTA, prefix)
    byte_bpe.build(tables, path)
    byte_bpe.check_settings(folder, tables.prefix, ("Roberta", "Bart", "Longformer"))
    if (number := tables.vocabulary[byte_bpe.PAD]) != PAD_ID:
        raise InputError(f"{path}: {byte_bpe.PAD} has the id {number}, which is {PAD_ID} in RoBERTa; use its own files")
    return tables, path


def write_tokenizer(text: str, longest: int, folder: Path) -> dict[str, int]:
    """Write the files from which transformers reads a tokenizer; return the ids of special tokens for config.json.

    text: of `tokenizer.json`. longest: in tokens.
    """
    with files.atomic_write(folder / TOKENIZER) as stream:
        stream.write(text)
    tables = byte_bpe.read_tables(folder / TOKENIZER, byte_bpe.ROBERTA)
    byte_bpe.save(tables.vocabulary, tables.merges, folder)
    roles: dict[str, Any] = {
        "bos_token": byte_bpe.BEGIN,
        "eos_token": byte_bpe.CLOSE,
        "sep_token": byte_bpe.CLOSE,
        "cls_token": byte_bpe.BEGIN,
        "unk_token": byte_bpe.UNKNOWN,
        "pad_token": byte_bpe.PAD,
    }
    plain = {"normalized": False, "rstrip": False, "single_word": False}
    mask = {"content": byte_bpe.MASK, "lstrip": tables.mask_strips} | plain
    settings = {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": tables.prefix, "model_max_length": longest}
    files.write_json(folder / SETTINGS, settings | roles | {"mask_token": {"__type": "AddedToken", **mask}})
    files.write_json(folder / "special_tokens_map.json", roles | {"mask_token": mask})
    return {f"{role}_token_id": tables.vocabulary[roles[f"{role}_token"]] for role in ("bos", "eos", "pad")}


def of_run(path: Path, config: ModelConfig) -> str:
    """Return the content of the tokenizer.json of a run."""
    tables = byte_bpe.read_roberta(path)
    run.check_vocab_size(config, tables.vocabulary, path)
    return byte_bpe.text_of_tables(tables, path)


FILES = TokenizerFiles(read_tokenizer, write_tokenizer, of_run, byte_bpe.has_prefix, byte_bpe.with_prefix)
FAMILY = Family(
    model_type="roberta",
    title="RoBERTa",
    classes="Roberta",
    prefix="roberta",
    names={
        "masked_lm/transform": "lm_head.dense",
        "masked_lm/layer_norm": "lm_head.layer_norm",
        "masked_lm/bias": "lm_head.bias",
        "classifier": "classifier.out_proj",
        "multilabel": "classifier.out_proj",
    },
    poolers={"classifier": "classifier.dense", "multilabel": "classifier.dense"},
    tied={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    supported=ABSOLUTE | {"hidden_act": "gelu", "pad_token_id": PAD_ID, "type_vocab_size": 1},
    fixed={"norm_placement": "post", "hidden_act": "gelu", "type_vocab_size": 1} | BERTS,
    word_pieces=False,
    tokenizers={"byte pairs": FILES},
    unused_positions=UNUSED_POSITIONS,
)
