"""Damaged folders of transformers are refused, or give values of the right shapes."""

import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import BertWordPieceTokenizer

from bert.convert import huggingface
from bert.core.files import read_json
from tests.bert.convert import folders
from tests.properties.fuzz import fuzz
from tests.properties.mutations import damaged, damaged_json, survives

pytestmark = pytest.mark.slow

WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folders.their_folder(tmp_path / "theirs")
    return tmp_path / "theirs"


def check(folder: Path) -> None:
    """The folder is refused, or its values have their shapes and are finite."""
    model = survives(lambda: [huggingface.input_files(folder), huggingface.read_model(folder)][1])
    if model:
        assert isinstance(model, huggingface.Model) and len(model.vocab) == model.config.vocab_size
        for weight in model.match.weights:
            assert model.values[weight.ours].shape == weight.shape
            assert np.isfinite(model.values[weight.ours]).all()


@given(data=st.data())
@fuzz
def test_safetensors_are_refused_or_fit(data: st.DataObject, folder: Path) -> None:
    good = folder.with_name(WEIGHTS)
    if not good.exists():
        shutil.copy(folder / WEIGHTS, good)
    content = good.read_bytes()
    size = 8 + struct.unpack("<Q", content[:8])[0]
    if data.draw(st.booleans()):
        changed = data.draw(damaged(content[: size + 8])) + content[size + 8 :]
    else:
        header = data.draw(damaged_json(json.loads(content[8:size])))
        changed = struct.pack("<Q", len(header)) + header + content[size:]
    (folder / WEIGHTS).write_bytes(changed)
    check(folder)


@given(data=st.data())
@fuzz
def test_an_index_of_weights_is_refused_or_fits(data: st.DataObject, folder: Path) -> None:
    if (folder / WEIGHTS).exists():
        (folder / WEIGHTS).rename(folder / "part.safetensors")
    index = {"metadata": {"total_size": 99}, "weight_map": {"a": "part.safetensors", "b": "part.safetensors"}}
    (folder / huggingface.INDEX).write_bytes(data.draw(damaged_json(index)))
    check(folder)


@given(data=st.data())
@fuzz
def test_a_tokenizer_is_refused_or_gives_the_vocabulary(data: st.DataObject, folder: Path) -> None:
    (folder / "vocab.txt").unlink(missing_ok=True)
    tokens = {token: number for number, token in enumerate(folders.vocabulary(folders.SMALL))}
    good = json.loads(BertWordPieceTokenizer(vocab=tokens).to_str())
    (folder / "tokenizer.json").write_bytes(data.draw(damaged_json(good) | damaged_json({"model": good["model"]})))
    check(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
@given(data=st.data())
@fuzz
def test_the_settings_beside_weights_are_refused_or_fit(data: st.DataObject, name: str, folder: Path) -> None:
    original = folder.with_name(name)
    if not original.exists():
        settings = {"do_lower_case": True} if name == huggingface.TOKENIZER_CONFIG else read_json(folder / name)
        more = {"architectures": ["BertForPreTraining"], "id2label": {"0": "x"}}
        original.write_text(json.dumps(settings | more))
    (folder / name).write_bytes(data.draw(damaged_json(read_json(original))))
    check(folder)
