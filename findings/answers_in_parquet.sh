#!/usr/bin/env bash
# List({...}) and Sequence({...}) of `datasets` are not two names of the same type.
#
# Versions: datasets 5.2.0 (with the pyarrow that it installs).
# Expected: List is the newer name of Sequence, so answers of questions that are typed by either are the same in
#   Parquet, and both take the same values.
# What happens: Sequence({...}) gives a struct of lists, List({...}) a list of structs, in memory and in Parquet. The
#   values of the one raise AttributeError in the other.
# Why it matters: programs that read the answers of SQuAD as {"text": [...], "answer_start": [...]} find a list in files
#   that were written with List. A reader of Parquet needs both forms.
#
#   findings/answers_in_parquet.sh        # installs into a temporary folder; exit code 0: it is still so
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check datasets==5.2.0
HF_HUB_OFFLINE=1 HF_HOME="$folder/home" HF_DATASETS_DISABLE_PROGRESS_BARS=1 \
    "$folder/venv/bin/python" - "$folder/a.parquet" <<'PYTHON'
import sys

import datasets
import pyarrow
import pyarrow.parquet
from datasets import Dataset, Features, List, Sequence, Value

FIELDS = {"text": Value("string"), "answer_start": Value("int32")}
VALUES = {
    "a list of dicts": [{"text": "a river", "answer_start": 3}],
    "a dict of lists": {"text": ["a river"], "answer_start": [3]},
}
print("datasets", datasets.__version__, "- pyarrow", pyarrow.__version__)
found = {}
for name, kind in (("Sequence", Sequence(FIELDS)), ("List", List(FIELDS))):
    for form, value in VALUES.items():
        try:
            made = Dataset.from_list([{"answers": value}], features=Features({"answers": kind}))
        except AttributeError:
            found[name, form] = "AttributeError"
        else:
            made.to_parquet(sys.argv[1])
            found[name, form] = str(pyarrow.parquet.read_schema(sys.argv[1]).field("answers").type)
        print(f"{name}, {form}: {found[name, form]}")
a, b = VALUES
is_so = (
    found["Sequence", a] == found["List", b] == "AttributeError"
    and found["Sequence", b].startswith("struct<text: list<")
    and found["List", a].startswith("list<element: struct<text: string")
)
sys.exit(not is_so)
PYTHON
