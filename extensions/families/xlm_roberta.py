"""XLM-RoBERTa and CamemBERT in transformers: the files of Unigram tokenizers, also of BERT models with their words.

The weights are those of RoBERTa. Source: transformers (tokenization_xlm_roberta.py, tokenization_camembert.py).
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from bert.convert import run
from bert.convert.families import TokenizerFiles
from bert.core import files
from bert.core.config import ModelConfig
from bert.core.errors import InputError
from bert.text import tokenizer_kind
from bert.text.vocabulary import TOKENIZER
from extensions.families import roberta
from extensions.families.roberta import PAD_ID, SETTINGS
from extensions.tokenizers import unigram
from extensions.tokenizers.json_fields import text_of_fields

SENTENCEPIECE = ("sentencepiece.bpe.model", "sentencepiece.model", "spiece.model", "tokenizer.model")
# Classes without "Tokenizer" and "Fast". In transformers 5 the first ones make another tokenizer: they take only the
# pieces and a table of characters (Precompiled) of a tokenizer.json.
OWN, OF_THE_FILE = ("XLMRoberta", "Camembert"), ("PreTrained", "TokenizersBackend")
CUTS = ["WhitespaceSplit", "Metaspace"]
ROLES = {
    "bos_token": unigram.BEGIN,
    "eos_token": unigram.CLOSE,
    "sep_token": unigram.CLOSE,
    "cls_token": unigram.BEGIN,
    "unk_token": unigram.UNKNOWN,
    "pad_token": unigram.PAD,
}


def has_tokenizer(folder: Path) -> bool:
    """Return whether the tokenizer of a folder is one of SentencePiece."""
    own = any((folder / name).exists() for name in SENTENCEPIECE)
    return own or tokenizer_kind.of(folder / TOKENIZER) == "unigram"


def read_tokenizer(folder: Path, config: ModelConfig) -> str | None:
    """Return the content of a run's tokenizer.json; None if the folder's tokenizer is none of SentencePiece.

    Raise InputError if the folder has a model of SentencePiece alone, if other files say something else, or if the
    model has fewer rows than tokens.
    """
    if not has_tokenizer(folder):
        return None
    path = folder / TOKENIZER
    if not path.exists():
        model = next(name for name in SENTENCEPIECE if (folder / name).exists())
        raise InputError(
            f"{folder / model}: SentencePiece's own file is not read; make {TOKENIZER} beside it in transformers, "
            "with AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
        )
    tokenizer = unigram.Unigram(path)
    run.check_vocab_size(config, tokenizer.vocabulary, path)
    _check_settings(folder, tokenizer)
    if (number := tokenizer.vocabulary[unigram.PAD]) != PAD_ID:
        raise InputError(f"{path}: {unigram.PAD} has the id {number}, which is {PAD_ID} in XLM-RoBERTa; use its files")
    return text_of_fields(tokenizer.fields)


def _check_settings(folder: Path, tokenizer: unigram.Unigram) -> None:
    """Raise InputError if files beside a tokenizer.json make other tokens of a text than it does."""
    path, more = folder / SETTINGS, folder / "added_tokens.json"
    settings = files.read_object(path) if path.exists() else {}
    name = str(settings.get("tokenizer_class") or "").removesuffix("Fast").removesuffix("Tokenizer")
    if name not in ("", *OWN, *OF_THE_FILE):
        raise InputError(f"{path}: tokenizer_class is {name}Tokenizer; supported: {', '.join(OWN)}")
    if name not in OF_THE_FILE and not _is_own(tokenizer.fields):
        raise InputError(
            f"{folder / TOKENIZER}: has steps that transformers 5 leaves out for a {name or OWN[0]}Tokenizer; give "
            f"{path} the tokenizer_class PreTrainedTokenizerFast, which takes them as they are"
        )
    for role, token in {**ROLES, "mask_token": unigram.MASK}.items():
        stated = settings.get(role, token)
        if (stated.get("content") if isinstance(stated, dict) else stated) != token:
            raise InputError(f"{path}: {role} is {stated!a}; supported: {token}")
    if settings.get("add_prefix_space", True) is not True:
        raise InputError(
            f"{path}: add_prefix_space is {settings['add_prefix_space']!a}, but the tokenizer adds a space"
        )
    added = files.read_object(more) if more.exists() else {}
    if other := [token for token, number in added.items() if tokenizer.vocabulary.get(token) != number]:
        raise InputError(f"{more}: the added token {other[0]!a} is not in {TOKENIZER}; save it with transformers")


def _is_own(fields: dict[str, Any]) -> bool:
    """Return whether a tokenizer.json makes the tokens of the classes in `OWN`.

    Several spaces that become one are as one for them: texts are cut at white space.
    """
    cuts, first = fields["pre_tokenizer"], fields["normalizer"] or {}
    steps = first.get("normalizers", [first] if first else [])
    spaces = [step for step in steps if step["type"] == "Replace" and step["pattern"] == {"Regex": " {2,}"}]
    rest = [step["type"] for step in steps if step not in spaces]
    are_spaces = all(step["content"] in (" ", unigram.SPACE) for step in spaces)
    return rest in ([], ["Precompiled"]) and are_spaces and [p["type"] for p in cuts.get("pretokenizers", ())] == CUTS


def write_tokenizer(text: str, longest: int, folder: Path) -> dict[str, int]:
    """Write the files from which transformers reads a tokenizer; return the ids of special tokens for config.json.

    text: of `tokenizer.json`, which AutoTokenizer reads as it is. longest: in tokens.
    """
    with files.atomic_write(folder / TOKENIZER) as stream:
        stream.write(text)
    tokenizer = unigram.Unigram(folder / TOKENIZER)
    mask = {"content": unigram.MASK, "lstrip": tokenizer.mask_strips, "normalized": True}
    mask |= {"rstrip": False, "single_word": False}
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": longest}
    files.write_json(folder / SETTINGS, settings | ROLES | {"mask_token": {"__type": "AddedToken", **mask}})
    files.write_json(folder / "special_tokens_map.json", ROLES | {"mask_token": mask})
    return {f"{role}_token_id": tokenizer.vocabulary[ROLES[f"{role}_token"]] for role in ("bos", "eos", "pad")}


def of_run(path: Path, config: ModelConfig) -> str:
    """Return the content of the tokenizer.json of a run."""
    run.check_vocab_size(config, unigram.Unigram(path).vocabulary, path)
    return str(tokenizer_kind.content(path))


FILES = TokenizerFiles(read_tokenizer, write_tokenizer, of_run)
XLM_ROBERTA = replace(
    roberta.FAMILY,
    model_type="xlm-roberta",
    title="XLM-RoBERTa",
    classes="XLMRoberta",
    tokenizers={"unigram": FILES},
)
CAMEMBERT = replace(XLM_ROBERTA, model_type="camembert", title="CamemBERT", classes="Camembert")
