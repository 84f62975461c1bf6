#!/usr/bin/env bash
# Runs the tests of what depends on TensorFlow's version with TensorFlow 2.17, in .venv-tf217: devices, model, training,
# export, records, tokenizers. NVIDIA's last TensorFlow container has that version, the oldest supported.
#
#   scripts/test_tf217.sh [ARGUMENTS OF PYTEST]
#
# The interpreter is Python 3.11, the last one that both TensorFlow 2.17 and its tensorflow-text have wheels for.
set -euo pipefail

cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
found=$("$python" -c 'import sys; print(*sys.version_info[:2], sep=".")')
if [ "$found" != 3.11 ]; then
    echo "tests with TensorFlow 2.17: left out, $python is Python $found; set PYTHON to a Python 3.11 for them" >&2
    exit 0
fi
tests=(tests/bert/hardware/test_devices.py tests/bert/training/test_{step,optimizer,checkpoint}.py
    tests/bert/model/test_{encoder,attention,heads,inference,fused_ops}.py tests/extensions/kernels/test_cudnn.py
    tests/bert/text/test_{records,tokenization,wordpiece}.py
    tests/bert/export/test_{main,texts,tokenizer,warmup,words}.py tests/squad/test_export.py)
exec scripts/extra_venv.sh tf217 .venv-tf217/bin/python -m pytest -n 2 --dist worksteal \
    -m "not (multiprocess or thorough or parity)" "${tests[@]}" "$@"
