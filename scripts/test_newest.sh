#!/usr/bin/env bash
# Try the newest TensorFlow, pre-releases too: the tests of what depends on its version, and ranks that communicate
# through TensorFlow alone, because Horovod may not build with it. The environment is .venv-newest, with neither Horovod
# nor tensorflow-text. .ci/newest runs this.
#
#   scripts/test_newest.sh [ARGUMENTS OF PYTEST]
#
# TENSORFLOW names another version than the newest, as tensorflow==2.22.0rc0; PYTHON another interpreter.
set -euo pipefail

cd "$(dirname "$0")/.."
PATH=${VENV:-.venv}/bin:$PATH
command -v uv >/dev/null || { echo "error: ${VENV:-.venv} has no uv ; install with: make setup" >&2 && exit 2; }
venv=.venv-newest
[ -x $venv/bin/python ] || python scripts/uv.py venv --quiet --python "${PYTHON:-python3}" $venv
# What the tests need besides TensorFlow is what they need with TensorFlow 2.17.
python -c 'import tomllib
group = tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["tf217"]
print(*(line for line in group if not line.startswith(("tensorflow", "numpy"))), sep="\n")' |
    python scripts/uv.py pip install --quiet --upgrade --prerelease allow --python $venv/bin/python \
        "${TENSORFLOW:-tensorflow>=2.22.0rc0}" tensorboard --requirement -
tests=(tests/bert/hardware/test_devices.py tests/bert/training/test_{step,optimizer,checkpoint}.py
    tests/extensions/collectives/test_collectives.py
    tests/bert/model/test_{encoder,attention,heads,inference,fused_ops}.py tests/extensions/kernels/test_cudnn.py
    tests/bert/text/test_{records,sampler,tokenization}.py tests/squad/test_{features,answers}.py
    tests/bert/test_pretrain.py)
# Without Horovod there is nothing to compare with; the ranks that add up without it are tried.
VENV=$venv exec $venv/bin/python -m pytest "${tests[@]}" -m "not (slow or parity or thorough or faults)" \
    --deselect tests/extensions/collectives/test_collectives.py::test_two_ranks_have_the_bits_of_horovod "$@"
