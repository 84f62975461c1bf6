#!/usr/bin/env bash
# max_seq_length beyond the positions of a model is kept, and a long text ends in an error.
#
# Versions: sentence-transformers 6.2.0, transformers 5.24.0, torch 2.13.0.
# Expected: max_seq_length of sentence_bert_config.json is cut to the positions that the model has, as model_max_length
#   of tokenizer_config.json is when the former is missing.
# What happens: it is taken as it is. Short texts work; one that is longer than the positions raises a RuntimeError.
# Why it matters: a folder that was written by hand or by another program may have 512 for a model of fewer positions. A
#   service that was tested with short texts fails later. Set model.max_seq_length, or correct the file.
#
#   findings/longest_text.sh        # installs about 1 GB into a temporary folder; exit code 0: it is still so
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check sentence-transformers==6.2.0 transformers==5.24.0
HF_HUB_OFFLINE=1 "$folder/venv/bin/python" - "$folder" <<'PYTHON'
import json
import sys
from pathlib import Path

import sentence_transformers
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import BertConfig, BertModel, BertTokenizer

folder = Path(sys.argv[1])
words = "[PAD] [UNK] [CLS] [SEP] [MASK] the river flows".split()
(folder / "vocab.txt").write_text("\n".join(words) + "\n")
torch.manual_seed(0)
sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
BertModel(BertConfig(vocab_size=len(words), max_position_embeddings=32, **sizes)).save_pretrained(folder / "bert")
BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder / "bert")
SentenceTransformer(modules=[Transformer(str(folder / "bert")), Pooling(16)]).save(str(folder / "model"))


def loaded(file, **changes):
    """Return the model with other settings in a file, its length, and what a long text ends in."""
    path = folder / "model" / file
    before = path.read_text() if path.exists() else "{}"
    path.write_text(json.dumps(json.loads(before) | changes))
    model = SentenceTransformer(str(folder / "model"))
    path.write_text(before)
    model.encode("the river flows")
    try:
        model.encode("river " * 100)
    except (RuntimeError, IndexError) as error:
        return model.max_seq_length, type(error).__name__
    return model.max_seq_length, "an embedding"


print("sentence-transformers", sentence_transformers.__version__, "- positions of the model: 32")
by_tokenizer = loaded("tokenizer_config.json", model_max_length=64)
print("model_max_length 64:", *by_tokenizer)
by_module = loaded("sentence_bert_config.json", max_seq_length=64)
print("max_seq_length 64:", *by_module)
sys.exit(not (by_tokenizer == (32, "an embedding") and by_module[0] == 64 and by_module[1].endswith("Error")))
PYTHON
