#!/usr/bin/env bash
# BERT's normalizer of `tokenizers` reads characters by several versions of Unicode at the same time.
#
# Versions: tokenizers 0.23.3, unicodedata2 17.0.0 (Unicode 17 as data).
# Expected: one version of Unicode in a release: a mark or punctuation of a version that the library knows is treated
#   as such, as Python's unicodedata has it; if capital letters of Unicode 17 become small, its marks are stripped.
# What happens: lower case is that of Unicode 17 (U+16EA0), but accents are stripped, and punctuation is divided off, by
#   about Unicode 9: U+0898 (a mark since Unicode 14) stays in the word, and U+2E52 (punctuation since 14) and U+061D do
#   not end it.
# Why it matters: the tokens of some texts in Bengali, Arabic and other scripts are not those of code that uses Python's
#   unicodedata, as Google's tokenization.py for BERT does.
#
#   findings/unicode_versions.sh        # installs into a temporary folder; exit code 0: it is still so
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check tokenizers==0.23.3 unicodedata2==17.0.0
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import tokenizers
import unicodedata2
from tokenizers import normalizers, pre_tokenizers


def bert(strip, lower):
    return normalizers.BertNormalizer(
        clean_text=False, handle_chinese_chars=False, strip_accents=strip, lowercase=lower
    ).normalize_str


strip, lower, divide = bert(True, False), bert(False, True), pre_tokenizers.BertPreTokenizer().pre_tokenize_str
marks = {character: strip(f"a{character}") == "a" for character in "\u0301\u0941\u0898\u09fe\u1ac1"}
points = {character: len(divide(f"a{character}b")) == 3 for character in "\u2e42\u061d\u2e52"}
capitals = {character: lower(character) != character for character in "\U00010400\ua7cb\U00010d50\U00016ea0"}
print("tokenizers", tokenizers.__version__, "- categories by Unicode", unicodedata2.unidata_version)
for name, found in (("stripped", marks), ("divided off", points), ("made small", capitals)):
    for character, is_so in found.items():
        print(f"U+{ord(character):04X} {unicodedata2.category(character)} {name}: {is_so}")
assert {unicodedata2.category(character) for character in marks} == {"Mn"}
assert {unicodedata2.category(character)[0] for character in points} == {"P"}
assert {unicodedata2.category(character) for character in capitals} == {"Lu"}
everything = map(chr, (*range(0xD800), *range(0xE000, 0x110000)))
kept = [one for one in everything if unicodedata2.category(one) == "Mn" and strip(f"a{one}") != "a"]
print(len(kept), "marks of category Mn are kept; the first:", *(f"U+{ord(one):04X}" for one in kept[:5]))
expected = [True, True, False, False, False], [True, False, False], [True, True, True, True]
sys.exit(([*marks.values()], [*points.values()], [*capitals.values()]) != expected)
PYTHON
