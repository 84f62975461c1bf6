#!/usr/bin/env bash
# ja_sentence_segmenter ends a sentence within the parentheses that Japanese texts have.
#
# Versions: ja_sentence_segmenter 0.3.0.
# Expected: split_between_parens is False by default, so a full stop within parentheses ends no sentence.
# What happens: this holds for ASCII parentheses and for the quotation marks U+300C and U+300D. Within fullwidth ones
#   (U+FF08, U+FF09), which Japanese texts mostly have, the full stop ends the sentence, and the closing mark begins the
#   next one.
# Why it matters: a text for pretraining gets sentences that end too early, and others that begin with a closing mark,
#   which a next-sentence or sentence-order head learns as what follows what.
#
#   findings/japanese_parentheses.sh        # installs into a temporary folder; exit code 0: it is still so
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check ja_sentence_segmenter==0.3.0
PYTHONUTF8=1 "$folder/venv/bin/python" - <<'PYTHON'
import inspect
import sys
from importlib import metadata

from ja_sentence_segmenter.split.simple_splitter import split_punctuation

HE, GO, SAID, NEXT = "\u5f7c\u306f", "\u884c\u304f\u3002", "\u3068\u8a00\u3063\u305f\u3002", "\u6b21\u306e\u6587\u3002"
print("ja_sentence_segmenter", metadata.version("ja_sentence_segmenter"))
print("split_between_parens:", inspect.signature(split_punctuation).parameters["split_between_parens"].default)
found = {}
for name, begin, end in (("ASCII", "(", ")"), ("quotation", "\u300c", "\u300d"), ("fullwidth", "\uff08", "\uff09")):
    found[name] = list(split_punctuation(f"{HE}{begin}{GO}{end}{SAID}{NEXT}"))
    print(f"{name}:", *found[name], sep=" / ")
is_so = (
    found["ASCII"] == [f"{HE}({GO}){SAID}", NEXT]
    and found["quotation"] == [f"{HE}\u300c{GO}\u300d{SAID}", NEXT]
    and found["fullwidth"] == [f"{HE}\uff08{GO}", f"\uff09{SAID}", NEXT]
)
sys.exit(not is_so)
PYTHON
