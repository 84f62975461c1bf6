"""Folders of transformers are read and written exactly, with tokenizer and vocabulary."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import save_file
from tokenizers import BertWordPieceTokenizer
from tokenizers import Tokenizer as Fast
from tokenizers.processors import BertProcessing

from bert.convert import __main__ as convert
from bert.core.errors import InputError, UsageError
from bert.model.heads import TaskModel
from bert.text.normalization import TokenizerConfig
from bert.text.tokenization import WordPieceTokenizer, tokenizer_for
from bert.text.vocabulary import load_vocab, rules_of
from squad.model import AnswerSpans
from tests.bert.convert.folders import (
    SMALL,
    WORDS,
    a_run,
    same_bits,
    their_folder,
    theirs,
    vocabulary,
    weights,
    widened,
)


@pytest.mark.parametrize(("kind", "exact"), [(np.float16, np.float64), (tf.bfloat16.as_numpy_dtype, None)])
def test_half_precision_is_read_exactly(kind: Any, exact: Any, tmp_path: Path) -> None:
    halves = {name: value.astype(kind) for name, value in theirs(SMALL).items()}
    their_folder(tmp_path / "theirs", tensors=halves)
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "run")])
    expected = halves["embeddings.word_embeddings.weight"]
    got = weights(tmp_path / "run")["embeddings/word"]
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, expected.astype(exact) if exact else widened(expected))


@pytest.mark.parametrize("outer", ["", "bert."])  # without a head, and with one
@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "model.", "module._orig_mod.", "encoder."])
def test_what_names_begin_with_in_a_wrapped_model_is_said_and_taken_off(
    prefix: str, outer: str, tmp_path: Path
) -> None:
    """Of torch.compile, DistributedDataParallel, Lightning, two of them, and a class of one's own."""
    plain = {f"{outer}{name}": value for name, value in theirs(SMALL).items()}
    their_folder(tmp_path / "theirs", tensors=plain)
    their_folder(tmp_path / "wrapped", tensors={f"{prefix}{name}": value for name, value in plain.items()})
    command = ["import", "huggingface", str(tmp_path / "wrapped"), str(tmp_path / "run")]
    with pytest.raises(InputError, match=f"names of its tensors begin with '{prefix}'.*--prefix '{prefix}' takes that"):
        convert.main(command)
    convert.main([*command, "--prefix", prefix])
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "plain")])
    same_bits(weights(tmp_path / "run"), weights(tmp_path / "plain"))
    with pytest.raises(UsageError, match=r"no tensor of .* begins with it"):
        convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "none"), "--prefix", "x."])


@pytest.mark.parametrize("wrapper", ["_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module."])
def test_wrappers_of_layers_are_said_and_taken_off(wrapper: str, tmp_path: Path) -> None:
    """Names as PyTorch gives them to layers that are compiled, sharded or computed again one by one."""
    tensors = theirs(SMALL)
    wrapped = {re.sub(r"(layer\.\d+\.)", rf"\1{wrapper}", name): value for name, value in tensors.items()}
    their_folder(tmp_path / "theirs", tensors=tensors)
    their_folder(tmp_path / "wrapped", tensors=wrapped)
    command = ["import", "huggingface", str(tmp_path / "wrapped"), str(tmp_path / "run")]
    with pytest.raises(InputError, match=f"--prefix '{wrapper}' takes that off"):
        convert.main(command)
    convert.main([*command, "--prefix", wrapper])
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "plain")])
    same_bits(weights(tmp_path / "run"), weights(tmp_path / "plain"))


def test_earlier_names_copies_of_tied_weights_and_buffers_are_known(tmp_path: Path) -> None:
    tensors = {f"bert.{name}": value for name, value in theirs(SMALL).items()}
    earlier = {name: name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta") for name in tensors}
    old = {earlier[name]: value for name, value in tensors.items()}
    old["bert.embeddings.position_ids"] = np.arange(17)[None]
    old["cls.predictions.decoder.weight"] = old["bert.embeddings.word_embeddings.weight"].copy()
    for folder, stored in (("new", tensors), ("old", old)):
        their_folder(tmp_path / folder, tensors=stored)
        convert.main(["import", "huggingface", str(tmp_path / folder), str(tmp_path / f"from_{folder}")])
    same_bits(weights(tmp_path / "from_new"), weights(tmp_path / "from_old"))


def test_weights_in_several_files_are_one_model(tmp_path: Path) -> None:
    tensors = their_folder(tmp_path / "whole")
    their_folder(tmp_path / "parts")
    (tmp_path / "parts" / "model.safetensors").unlink()
    places = {name: f"model-{number % 3}.safetensors" for number, name in enumerate(sorted(tensors))}
    for file in set(places.values()):
        save_file({name: value for name, value in tensors.items() if places[name] == file}, tmp_path / "parts" / file)
    (tmp_path / "parts/model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    for folder in ("whole", "parts"):
        convert.main(["import", "huggingface", str(tmp_path / folder), str(tmp_path / f"from_{folder}")])
    same_bits(weights(tmp_path / "from_whole"), weights(tmp_path / "from_parts"))


@pytest.mark.parametrize("words", [WORDS, [*WORDS[:-1], "River"]], ids=["lower-cased", "cased"])
def test_their_tokenizer_gives_our_ids(words: list[str], tmp_path: Path) -> None:
    a_run(tmp_path / "run", SMALL, TaskModel(SMALL, 0, AnswerSpans.described), words)
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "theirs")])
    fast = Fast.from_file(str(tmp_path / "theirs/tokenizer.json"))
    text = "The River flows, unable! a  b? rivers xyz \u6c34"
    ours = tokenizer_for(tmp_path / "run/vocab.txt", SMALL)
    assert ours.encode([text])[0].tolist() == fast.encode(text, add_special_tokens=False).ids
    assert fast.encode(text).tokens[0] == "[CLS]" and fast.encode(text).tokens[-1] == "[SEP]"
    settings = json.loads((tmp_path / "theirs/tokenizer_config.json").read_text())
    assert settings["do_lower_case"] == ("River" not in words)


def test_a_vocabulary_is_found_in_tokenizer_json(tmp_path: Path) -> None:
    a_run(tmp_path / "run", SMALL, TaskModel(SMALL, 0, AnswerSpans.described))
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "theirs")])
    (tmp_path / "theirs/vocab.txt").unlink()
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "back")])
    assert (tmp_path / "back/vocab.txt").read_bytes() == (tmp_path / "run/vocab.txt").read_bytes()


def test_the_longest_word_of_tokenizer_json_counts(tmp_path: Path) -> None:
    a_run(tmp_path / "run", SMALL, TaskModel(SMALL, 0, AnswerSpans.described))
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "theirs")])
    path, beside = (tmp_path / "theirs" / name for name in ("tokenizer.json", "tokenizer_config.json"))
    settings = json.loads(beside.read_text())
    assert settings["max_input_chars_per_word"] == 200
    assert settings["tokenizer_class"] == "PreTrainedTokenizerFast"  # which reads the file; BertTokenizer has 100
    fast = json.loads(path.read_text())
    fast["model"]["max_input_chars_per_word"] = 100  # what transformers 5 saves of a BertTokenizer
    path.write_text(json.dumps(fast))
    beside.write_text(json.dumps(settings | {"tokenizer_class": "BertTokenizer"}))
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "back")])
    vocab = tmp_path / "back/vocab.txt"
    assert rules_of(vocab, load_vocab(vocab)).longest_word == 100


def test_another_form_of_lower_casing_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    their_folder(tmp_path / "theirs")
    (tmp_path / "theirs/tokenizer_config.json").write_text('{"do_lower_case": false}')
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "run")])
    assert "does not lower-case texts, but its vocabulary has no capitals" in capsys.readouterr().err
    rules = rules_of(tmp_path / "run/vocab.txt", load_vocab(tmp_path / "run/vocab.txt"))
    assert rules == TokenizerConfig(lower_case=False, strip_accents=False, longest_word=100, fast=True)


@pytest.mark.parametrize(
    "options", [{"strip_accents": False}, {"lowercase": False}, {"handle_chinese_chars": False}, {}]
)
def test_the_rules_in_a_tokenizer_json_are_taken_and_given_back(tmp_path: Path, options: dict[str, bool]) -> None:
    their_folder(tmp_path / "theirs")
    (tmp_path / "theirs/tokenizer_config.json").unlink(missing_ok=True)
    vocab = load_vocab(tmp_path / "theirs/vocab.txt")
    fast = BertWordPieceTokenizer({token: number for number, token in enumerate(vocab)}, **options)
    fast.add_special_tokens([vocab[-1]])
    fast.save(str(tmp_path / "theirs/tokenizer.json"))
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "run")])
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "back")])
    again = Fast.from_file(str(tmp_path / "back/tokenizer.json"))
    ours = WordPieceTokenizer(tmp_path / "run/vocab.txt")
    assert ours.rules.special == (vocab[-1],)
    for text in ("The caf\xe9 \xe9 a\u4e2d\u6587b THE", f"x{vocab[-1]}y", "a" * 101, *vocab[5:40]):
        expected = fast.encode(text, add_special_tokens=False)
        ids, _, begin, end = ours.encode_with_offsets([text])
        assert ids.tolist() == expected.ids == again.encode(text, add_special_tokens=False).ids
        assert list(zip(begin.tolist(), end.tolist(), strict=True)) == expected.offsets


# Capital sigmas; private and newer characters; new punctuation and marks; an ideograph that the library joins to words
ODD = ("A \u039f\u0394\u039f\u03a3 \u03a3\u03a3!", "a\ue000b \uf0b7a", "a\u2e52b a\u0898b", "a\U0002b820b \ua7cb")
ODD_WORDS = ["a", "b", "!", *"\u03bf\u03b4\u03c3\u03c2\ue000\u2e52\U0002b820\u0264", "##\u03c3", "##\u03c2", "##\u03b4"]
ODD_WORDS += ["##\u03bf", "##b", "##\ue000", "##\u0898", "##\u2e52", "##\U0002b820"]


def test_characters_are_those_of_the_tokenizer_that_a_model_came_with(tmp_path: Path) -> None:
    their_folder(tmp_path / "theirs")
    (tmp_path / "theirs/tokenizer_config.json").unlink(missing_ok=True)
    vocab = vocabulary(SMALL, ODD_WORDS)[: SMALL.vocab_size]
    (tmp_path / "theirs/vocab.txt").write_text("\n".join(vocab) + "\n")
    fast = BertWordPieceTokenizer({token: number for number, token in enumerate(vocab)})
    for stated in (False, True):  # transformers makes the same tokenizer of a vocab.txt
        if stated:
            fast.save(str(tmp_path / "theirs/tokenizer.json"))
        run, back = tmp_path / f"run{stated}", tmp_path / f"back{stated}"
        convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(run)])
        convert.main(["export", "huggingface", str(run), str(back)])
        ours, again = WordPieceTokenizer(run / "vocab.txt"), Fast.from_file(str(back / "tokenizer.json"))
        for text in ODD:
            expected = fast.encode(text, add_special_tokens=False)
            ids, _, begin, end = ours.encode_with_offsets([text])
            assert ids.tolist() == expected.ids == again.encode(text, add_special_tokens=False).ids
            assert list(zip(begin.tolist(), end.tolist(), strict=True)) == expected.offsets


def test_characters_of_a_run_of_ours_go_out_and_come_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*ODD_WORDS[:-1], "\U00010d50"]  # a capital letter since Unicode 16.0
    a_run(tmp_path / "run", SMALL, TaskModel(SMALL, 0, AnswerSpans.described), words)
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "out")])
    assert r"become other words in transformers: 1, such as '\U00010d50'" in capsys.readouterr().err
    convert.main(["import", "huggingface", str(tmp_path / "out"), str(tmp_path / "again")])
    ours, again = (WordPieceTokenizer(tmp_path / name / "vocab.txt") for name in ("run", "again"))
    theirs = Fast.from_file(str(tmp_path / "out/tokenizer.json"))
    assert ours.rules == again.rules == TokenizerConfig()
    for text in ODD:
        ids = ours.encode([text])[0].tolist()
        assert ids == again.encode([text])[0].tolist() == theirs.encode(text, add_special_tokens=False).ids
    sigma = [
        ours.vocab.index(token)
        for token in ("a", "\u03bf", "##\u03b4", "##\u03bf", "##\u03c2", "\u03c3", "##\u03c2", "!")
    ]
    assert ours.encode([ODD[0]])[0].tolist() == sigma  # as Python's str.lower has it, and so Google's tokenization.py


def test_files_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    their_folder(tmp_path / "theirs")
    vocab = load_vocab(tmp_path / "theirs/vocab.txt")
    fast = BertWordPieceTokenizer({token: number for number, token in enumerate(vocab)}, lowercase=False)
    fast.save(str(tmp_path / "theirs/tokenizer.json"))
    (tmp_path / "theirs/tokenizer_config.json").write_text('{"do_lower_case": true}')
    with pytest.raises(InputError, match=r"do_lower_case is False, but True in tokenizer_config\.json"):
        convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "run")])


def test_rows_of_another_form_are_refused(tmp_path: Path) -> None:
    their_folder(tmp_path / "theirs")
    vocab = load_vocab(tmp_path / "theirs/vocab.txt")
    fast = BertWordPieceTokenizer({token: number for number, token in enumerate(vocab)})
    fast._tokenizer.post_processor = BertProcessing(("[CLS]", vocab.index("[CLS]")), ("[SEP]", vocab.index("[SEP]")))
    fast.save(str(tmp_path / "theirs/tokenizer.json"))
    with pytest.raises(InputError, match=r"other rows than \[CLS\] A \[SEP\]"):
        convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "run")])


def test_an_unused_entry_that_was_added_is_one_token(tmp_path: Path) -> None:
    their_folder(tmp_path / "theirs")
    path = tmp_path / "theirs/vocab.txt"
    vocab = [*load_vocab(path)[:-1], "[unused1]"]
    path.write_bytes(("\ufeff" + "\r\n".join(vocab) + "\r\n").encode())  # as some editors save it
    fast = BertWordPieceTokenizer({token: number for number, token in enumerate(vocab)})
    fast.add_special_tokens(["[unused1]"])
    fast.save(str(tmp_path / "theirs/tokenizer.json"))
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "run")])
    text = "a [unused1] b[unused1]!"
    ids = WordPieceTokenizer(tmp_path / "run/vocab.txt").encode([text])[0].tolist()
    assert ids == fast.encode(text, add_special_tokens=False).ids and ids.count(len(vocab) - 1) == 2


@pytest.mark.parametrize("stated", ["tokenizer.json", "tokenizer_config.json"])
def test_special_tokens_that_were_added_behind_the_vocabulary_are_entries(stated: str, tmp_path: Path) -> None:
    """As `add_special_tokens` and `resize_token_embeddings` of transformers leave a model."""
    their_folder(tmp_path / "theirs")
    (tmp_path / "theirs/tokenizer_config.json").unlink(missing_ok=True)
    path = tmp_path / "theirs/vocab.txt"
    every = load_vocab(path)
    path.write_text("\n".join(every[:-2]) + "\n")
    fast = BertWordPieceTokenizer({token: number for number, token in enumerate(every[:-2])})
    fast.add_special_tokens(["[E1]", "</e>"])
    added = {number: {"id": number, "content": token} for number, token in enumerate(("[E1]", "</e>"), len(every) - 2)}
    if stated == "tokenizer.json":
        fast.save(str(tmp_path / "theirs/tokenizer.json"))
    else:
        decoder = {str(number): {"content": one["content"], "special": True} for number, one in added.items()}
        (tmp_path / "theirs/tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": decoder}))
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "run")])
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "back")])
    ours, again = WordPieceTokenizer(tmp_path / "run/vocab.txt"), Fast.from_file(str(tmp_path / "back/tokenizer.json"))
    assert ours.rules.special == ("[E1]", "</e>") and ours.vocab == [*every[:-2], "[E1]", "</e>"]
    for text in ("a [E1] the</e>b", "[e1] </E>", "[E1][E1]</e>", "E1 e"):
        ids = ours.encode([text])[0].tolist()
        assert (
            ids == fast.encode(text, add_special_tokens=False).ids == again.encode(text, add_special_tokens=False).ids
        )


@pytest.mark.parametrize("stated", ["added_tokens.json", "tokenizer_config.json"])
def test_tokens_that_were_added_to_a_vocab_txt_are_one_token_each_or_refused(stated: str, tmp_path: Path) -> None:
    their_folder(tmp_path / "theirs")
    path = tmp_path / "theirs/vocab.txt"
    vocab = [*load_vocab(path)[:-1], "[unused1]"]
    path.write_text("\n".join(vocab) + "\n")

    def state(content: str) -> None:
        decoder = {"added_tokens_decoder": {"7": {"content": content, "special": True}, "0": {"content": "[PAD]"}}}
        listed = {content: 7, "[PAD]": 0}
        (tmp_path / "theirs" / stated).write_text(json.dumps(listed if stated.startswith("added") else decoder))

    state("[unused1]")
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "run")])
    ids = WordPieceTokenizer(tmp_path / "run/vocab.txt").encode(["a [unused1] b[unused1]!"])[0].tolist()
    assert ids.count(len(vocab) - 1) == 2
    state("[E1]")
    with pytest.raises(InputError, match=rf"{stated}: the added token '\[E1\]' is not a special one"):
        convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "again")])
