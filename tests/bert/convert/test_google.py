"""Checkpoints of google-research/bert are read and written exactly."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf.internal import encoder

from bert.convert import __main__ as convert
from bert.convert import bundle
from bert.core.config import ModelConfig
from bert.core.errors import InputError
from bert.training import checkpoint
from tests.bert.convert.folders import OF_NVIDIA, SMALL, original, original_folder, same_bits, their_folder, weights


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


def test_of_several_checkpoints_the_newest_is_read(tmp_path: Path) -> None:
    values = original(SMALL)
    original_folder(tmp_path / "google", values)
    for path in (tmp_path / "google").glob("bert_model.ckpt*"):
        path.unlink()
    saver = tf.train.Checkpoint(x=tf.Variable(0))  # TensorFlow's own list of checkpoints
    manager = tf.train.CheckpointManager(saver, str(tmp_path / "elsewhere"), 5, checkpoint_name="model.ckpt")
    for step in (90, 100):
        manager.save(step)
        more = {name: value + step for name, value in values.items()}
        checkpoint.write_bundle(tmp_path / f"google/model.ckpt-{step}", more)
    command = ["import", "google", str(tmp_path / "google"), str(tmp_path / "run")]
    with pytest.raises(
        InputError, match=r"a file 'checkpoint' that names one .* model\.ckpt-100\.index, model\.ckpt-90"
    ):
        convert.main(command)
    for written in (
        (tmp_path / "elsewhere/checkpoint").read_text(),
        'model_checkpoint_path: "C:\\\\out\\\\model.ckpt-100"',
    ):
        (tmp_path / "google/checkpoint").write_text(written)
        convert.main(command)
        bias = weights(tmp_path / "run")["next_sentence/bias"]
        same_bits({"bias": bias}, {"bias": values["cls/seq_relationship/output_bias"] + 100})
    (tmp_path / "google/checkpoint").write_text('model_checkpoint_path: "model.ckpt-110"')
    with pytest.raises(InputError, match=r"checkpoint: names 'model\.ckpt-110', which is not there"):
        convert.main(command)


def test_rows_that_were_filled_up_at_run_time_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """NVIDIA's run_pretraining.py makes vocab_size a multiple of 8, and the configuration has the number before."""
    values = original(SMALL)
    words, bias = "bert/embeddings/word_embeddings", "cls/predictions/output_bias"
    filled = {name: np.pad(values[name], [(0, 1), *[(0, 0)] * (values[name].ndim - 1)]) for name in (words, bias)}
    original_folder(tmp_path / "google", values | filled)  # 32 rows for 31 entries
    convert.main(["import", "google", str(tmp_path / "google"), str(tmp_path / "run")])
    found = weights(tmp_path / "run")
    same_bits(
        {"words": found["embeddings/word"], "bias": found["masked_lm/bias"]},
        dict(zip(("words", "bias"), filled.values(), strict=True)),
    )
    assert ModelConfig.load(tmp_path / "run/bert_config.json").vocab_size == 32
    assert "31 entries for 32 rows" in capsys.readouterr().err
    more = {name: np.pad(values[name], [(0, 2), *[(0, 0)] * (values[name].ndim - 1)]) for name in (words, bias)}
    original_folder(tmp_path / "other", values | more)
    with pytest.raises(InputError, match="use the weights and the configuration of one model"):
        convert.main(["import", "google", str(tmp_path / "other"), str(tmp_path / "none")])


def test_a_checkpoint_of_one_file_is_named_as_what_it_is(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("x", [2], use_resource=False)
        session.run(variable.initializer)
        saver = tf.compat.v1.train.Saver(write_version=tf.compat.v1.train.SaverDef.V1)
        saver.save(session, str(tmp_path / "bert_model.ckpt"), write_meta_graph=False)
    with pytest.raises(InputError, match="checkpoint of TensorFlow's format V1, one file"):
        convert.main(["import", "google", str(tmp_path), str(tmp_path / "run")])


def test_numbers_of_an_index_are_read_as_protobuf_writes_them() -> None:
    for number in [*range(300), *(1 << bits for bits in range(9, 60)), 2**35 - 1]:
        content = encoder._VarintBytes(number)
        assert bundle._varint(content + b"\1", 0) == (number, len(content))


def test_a_checkpoint_of_the_model_garden_is_refused_by_name(tmp_path: Path) -> None:
    original_folder(tmp_path / "garden", {})
    place = "model/layer_with_weights-0/embeddings/.ATTRIBUTES/VARIABLE_VALUE"
    checkpoint.write_bundle(tmp_path / "garden/bert_model.ckpt", {place: np.zeros([9, 4], np.float32)})
    with pytest.raises(
        InputError,
        match=r"model garden is not read; save it with save_pretrained.* convert_bert_original_tf2_checkpoint",
    ):
        convert.main(["import", "google", str(tmp_path / "garden"), str(tmp_path / "run")])
