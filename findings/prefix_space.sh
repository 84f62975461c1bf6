#!/usr/bin/env bash
# add_prefix_space=True changes no token in transformers 5, but the saved folder says that it is there.
#
# Versions: transformers 5.24.0 with tokenizers 0.23.3, and transformers 4.57.1 with tokenizers 0.22.1.
# Expected: with AutoTokenizer.from_pretrained(FOLDER, add_prefix_space=True) a space is put before the first word of a
#   text, as in version 4, and save_pretrained writes it into both files of the tokenizer.
# What happens: for a tokenizer.json with bytes as characters (ByteLevel), whose class is PreTrainedTokenizerFast, as
#   that of ModernBERT, version 5 tokenizes as before. Yet it saves add_prefix_space true in tokenizer_config.json, and
#   false in tokenizer.json. Version 5 reads that folder without the space, version 4 with it (PreTrainedTokenizerFast,
#   which says that the class is another one, but nothing of the space; AutoTokenizer does not know the saved class).
# Why it matters: words that get tags need the space. A model that was fine-tuned by one version has other tokens in the
#   other one. Change tokenizer.json itself.
#
#   findings/prefix_space.sh        # installs into a temporary folder; exit code 0: it is still so
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
install() {
    python3 -m venv "$folder/$1"
    "$folder/$1/bin/pip" install --quiet --disable-pip-version-check "transformers==$1" "tokenizers==$2"
}
install 5.24.0 0.23.3
install 4.57.1 0.22.1
cat >"$folder/check.py" <<'PYTHON'
import json
import sys
from pathlib import Path

import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

folder, version = Path(sys.argv[1]), transformers.__version__
made = folder / f"made{version}"
made.mkdir()
entries = ["[UNK]", *sorted(pre_tokenizers.ByteLevel.alphabet())]
tokenizer = Tokenizer(models.BPE({entry: number for number, entry in enumerate(entries)}, [], unk_token="[UNK]"))
tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tokenizer.save(str(made / "tokenizer.json"))
(made / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"}')
(made / "config.json").write_text('{"model_type": "modernbert"}')
loaded = AutoTokenizer.from_pretrained(made, add_prefix_space=True)
saved = folder / f"saved{version}"
loaded.save_pretrained(saved)
settings = json.loads((saved / "tokenizer_config.json").read_text())["add_prefix_space"]
step = json.loads((saved / "tokenizer.json").read_text())["pre_tokenizer"]["add_prefix_space"]
tokens = loaded.tokenize("ab")
print(f"transformers {version}: tokens of 'ab': {tokens}")
print(f"    add_prefix_space that it saved: tokenizer_config.json {settings}, tokenizer.json {step}")
again = {
    path.name: PreTrainedTokenizerFast.from_pretrained(path).tokenize("ab") for path in sorted(folder.glob("saved*"))
}
print(f"    read by {version}: {again}")
without, with_space = ["a", "b"], ["\u0120", "a", "b"]
if version == "5.24.0":
    sys.exit([tokens, settings, step, *again.values()] != [without, True, False, without])
sys.exit([tokens, settings, step, *again.values()] != [with_space, True, True, with_space, with_space])
PYTHON
for version in 5.24.0 4.57.1; do
    HF_HUB_OFFLINE=1 "$folder/$version/bin/python" "$folder/check.py" "$folder"
done
