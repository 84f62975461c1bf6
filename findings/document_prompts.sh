#!/usr/bin/env bash
# The prompt "passage" of an embedding model is never put before a document.
#
# Versions: sentence-transformers 6.2.0, transformers 5.24.0, torch 2.13.0.
# Expected: encode_document takes the first prompt that there is of "document", "passage" and "corpus", as its
#   documentation says; and a default prompt is used where there is none of these.
# What happens: a model always has the prompts "query" and "document"; those that it was not given are empty texts. So
#   "passage", "corpus" and the default prompt are not used by encode_document, nor the latter by encode_query. Only
#   encode uses the default prompt. A message says that an empty prompt overrides the default one.
# Why it matters: models in the way of E5 read "query: " and "passage: ". Saved with these names, queries have their
#   prompt and documents have none, and the search finds worse. Name the prompt of documents "document".
#
#   findings/document_prompts.sh        # installs about 1 GB into a temporary folder; exit code 0: it is still so
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check sentence-transformers==6.2.0 transformers==5.24.0
HF_HUB_OFFLINE=1 "$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys
from pathlib import Path

import numpy as np
import sentence_transformers
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import BertConfig, BertModel, BertTokenizer

folder = Path(sys.argv[1])
words = "[PAD] [UNK] [CLS] [SEP] [MASK] passage query : the river flows".split()
(folder / "vocab.txt").write_text("\n".join(words) + "\n")
torch.manual_seed(0)
sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
BertModel(BertConfig(vocab_size=len(words), max_position_embeddings=32, **sizes)).save_pretrained(folder / "bert")
BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder / "bert")
prompts = {"query": "query : ", "passage": "passage : "}
made = SentenceTransformer(
    modules=[Transformer(str(folder / "bert")), Pooling(16)], prompts=prompts, default_prompt_name="passage"
)
made.save(str(folder / "model"))
model = SentenceTransformer(str(folder / "model"))
modules = [Transformer(str(folder / "bert")), Pooling(16)]
without_query = SentenceTransformer(
    modules=modules, prompts={"passage": "passage : "}, default_prompt_name="passage"
)
texts = ["the river flows"]
plain, passage = model.encode(texts, prompt=""), model.encode(texts, prompt_name="passage")
found = {
    "encode has the default prompt": np.allclose(model.encode(texts), passage, atol=1e-6),
    "encode_query has its prompt": np.allclose(
        model.encode_query(texts), model.encode(texts, prompt="query : "), atol=1e-6
    ),
    "encode_query without a prompt of its own has the default prompt": np.allclose(
        without_query.encode_query(texts), without_query.encode(texts), atol=1e-6
    ),
    "encode_document has the prompt passage": np.allclose(model.encode_document(texts), passage, atol=1e-6),
    "encode_document has no prompt": np.allclose(model.encode_document(texts), plain, atol=1e-6),
    "its documentation names passage and corpus": all(
        f'"{name}"' in SentenceTransformer.encode_document.__doc__ for name in ("passage", "corpus")
    ),
}
print("sentence-transformers", sentence_transformers.__version__)
print("given:", prompts, "- the model has:", model.prompts, "- default:", model.default_prompt_name)
for what, is_so in found.items():
    print(f"{what}: {is_so}")
assert not np.allclose(plain, passage, atol=1e-6)
sys.exit(list(found.values()) != [True, True, False, False, True, True])
PYTHON
