"""The table of names has every variable, with its shape and its place in each format."""

from pathlib import Path

from bert.convert import __main__ as convert
from bert.convert import names
from tests.bert.convert.folders import LAYER, SMALL, same_bits, their_folder, weights


def test_kernels_are_transposed_and_nothing_else_is(tmp_path: Path) -> None:
    tensors = their_folder(tmp_path / "theirs")
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "run")])
    ours = weights(tmp_path / "run")
    assert len(ours) == len(tensors)
    same_bits({"word": ours["embeddings/word"]}, {"word": tensors["embeddings.word_embeddings.weight"]})
    for number in range(SMALL.num_hidden_layers):
        for module, (here, _) in LAYER.items():
            leaf, bias = ("gamma", "beta") if "Norm" in module else ("kernel", "bias")
            value = tensors[f"encoder.layer.{number}.{module}.weight"]
            same_bits(
                {leaf: ours[f"layer_{number}/{here}/{leaf}"], bias: ours[f"layer_{number}/{here}/{bias}"]},
                {leaf: value.T, bias: tensors[f"encoder.layer.{number}.{module}.bias"]},
            )


def test_names_in_a_message_have_no_control_characters() -> None:
    assert names.shortened(["plain", "a\0\x1b[2J"]) == r"plain, 'a\x00\x1b[2J'"
