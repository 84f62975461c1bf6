"""Checkpoints of google-research/bert are read and written exactly."""

import json
from pathlib import Path

import pytest
import tensorflow as tf

from bert.convert import __main__ as convert
from tests.bert.convert.folders import (
    OF_NVIDIA,
    SMALL,
    original,
    original_folder,
    same_bits,
    their_folder,
    weights,
)


def test_every_variable_of_an_original_checkpoint_is_accounted_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = original(SMALL)
    original_folder(tmp_path / "google", values)
    convert.main(["import", "google", str(tmp_path / "google"), str(tmp_path / "run")])
    ours = weights(tmp_path / "run")
    assert len(ours) == len(values)
    assert sorted(value.size for value in ours.values()) == sorted(value.size for value in values.values())
    transposed = values["cls/seq_relationship/output_weights"]
    same_bits({"kernel": ours["next_sentence/kernel"]}, {"kernel": transposed.T})
    kernel = values["bert/encoder/layer_1/attention/self/key/kernel"]
    same_bits({"kernel": ours["layer_1/attention/key/kernel"]}, {"kernel": kernel})
    ignored = json.loads((tmp_path / "run/config.json").read_text())["imported"]["ignored"]
    assert len(ignored) == 2 * len(values) + 1 + len(OF_NVIDIA) and {"global_step", *OF_NVIDIA} <= {*ignored}
    assert f"and {len(ignored) - 4} more" in capsys.readouterr().err

    convert.main(["export", "google", str(tmp_path / "run"), str(tmp_path / "back")])
    reader = tf.train.load_checkpoint(str(tmp_path / "back" / "bert_model.ckpt"))
    same_bits({name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}, values)


def test_both_formats_give_one_model(tmp_path: Path) -> None:
    their_folder(tmp_path / "huggingface")
    encoder = {name: value for name, value in original(SMALL).items() if name.startswith("bert/")}
    original_folder(tmp_path / "google", encoder)
    for form in ("huggingface", "google"):
        convert.main(["import", form, str(tmp_path / form), str(tmp_path / f"from_{form}")])
    same_bits(weights(tmp_path / "from_huggingface"), weights(tmp_path / "from_google"))
