#!/usr/bin/env bash
# An adapter of the word embeddings of BertForMaskedLM is another model after it is merged.
#
# Versions: peft 0.21.0, transformers 5.24.0, torch 2.13.0.
# Expected: merge_and_unload gives a model with the same outputs as the model with the adapter, up to rounding; it does
#   for an adapter of other layers, as this script also shows.
# What happens: with word_embeddings in target_modules, the head of masked words of the live model still reads the table
#   of the base, which is its own. The merged model has one table for both, so its head reads the changed one: other
#   logits. ensure_weight_tying=True changes nothing: a warning says that no tied modules were added.
# Why it matters: scores that were measured with the adapter are not those of the merged model that is published. Give
#   word_embeddings in no adapter of this class, or measure the merged model.
#
#   findings/tied_adapter.sh        # installs about 1 GB into a temporary folder; exit code 0: it is still so
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check peft==0.21.0 transformers==5.24.0
HF_HUB_OFFLINE=1 "$folder/venv/bin/python" -W ignore - <<'PYTHON'
import sys

import peft
import torch
from peft import LoraConfig, get_peft_model
from transformers import BertConfig, BertForMaskedLM

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
SIZES |= {"vocab_size": 50, "max_position_embeddings": 16, "initializer_range": 0.3}


@torch.no_grad()
def difference(targets, **settings):
    """Return the largest differences of a logit: of the merged model to the live one, and of the latter to the base."""
    torch.manual_seed(0)
    base = BertForMaskedLM(BertConfig(**SIZES)).eval()
    ids = torch.arange(5, 13)[None]
    before = base(ids).logits
    adapted = get_peft_model(base, LoraConfig(r=2, target_modules=targets, init_lora_weights=False, **settings)).eval()
    live = adapted(ids).logits
    merged = adapted.merge_and_unload().eval()(ids).logits
    return float((merged - live).abs().max()), float((live - before).abs().max())


print("peft", peft.__version__)
found = {}
for name, targets, settings in (
    ("query", ["query"], {}),
    ("word_embeddings", ["word_embeddings"], {}),
    ("word_embeddings, ensure_weight_tying", ["word_embeddings"], {"ensure_weight_tying": True}),
):
    found[name] = difference(targets, **settings)
    print(f"{name}: merged - live {found[name][0]:.6f}, live - base {found[name][1]:.6f}")
assert all(changed > 0.01 for _, changed in found.values())
same, *others = (merged for merged, _ in found.values())
sys.exit(not (same < 1e-4 and all(other > 0.1 for other in others)))
PYTHON
