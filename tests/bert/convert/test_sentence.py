"""Folders of sentence-transformers: `bert.encode` gives their embeddings, by their definition in NumPy."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import bert
from bert import encode
from bert.convert import __main__ as convert
from bert.convert import sentence
from bert.core.errors import InputError, UsageError
from bert.embedding import Embedding
from bert.export import __main__ as export
from extensions.search import search
from tasks import evaluate
from tests.bert.convert.folders import SMALL, their_folder

TEXTS = ["the river flows", "a b ! ? the unable rivers a b a b", "", "river"]
TYPE = "sentence_transformers.models."
MODES = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}


def a_folder(folder: Path, pool: str, modules: list[str], place: str = "", **changes: Any) -> None:
    """A folder as SentenceTransformer.save writes it; changes: of sentence_bert_config.json."""
    their_folder(folder / place)
    (folder / place / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": 9, "do_lower_case": False} | changes)
    )
    rows = [{"idx": 0, "name": "0", "path": place, "type": f"{TYPE}Transformer"}]
    for number, kind in enumerate(modules, start=1):
        rows.append({"idx": number, "name": str(number), "path": f"{number}_{kind}", "type": f"{TYPE}{kind}"})
        (folder / f"{number}_{kind}").mkdir()
    (folder / "modules.json").write_text(json.dumps(rows))
    flags = {
        f"pooling_mode_{mode}": mode == MODES.get(pool, pool) for mode in (*MODES.values(), "mean_sqrt_len_tokens")
    }
    (folder / "1_Pooling/config.json").write_text(json.dumps({"word_embedding_dimension": 20} | flags))


def encoded(run: Path, *more: str) -> Any:
    (run.parent / "texts").write_text("\n".join(TEXTS) + "\n")
    output = run.parent / f"{run.name}{len(more)}.npz"
    encode.main(["--model", str(run), "--input", str(run.parent / "texts"), "--output", str(output), *more])
    return np.load(output)


def expected(run: Path, pool: str, normalize: bool) -> np.ndarray:
    """The pooled states of each text, cut to 9 tokens."""
    states = encoded(run, "--pool", "none")
    lengths = np.diff(states["row_splits"])
    assert lengths.max() == 9 and lengths.min() == 2
    pooled = []
    for begin, end in zip(states["row_splits"], states["row_splits"][1:], strict=False):
        x = states["features"][begin:end, 0].astype(np.float64)
        x = {"cls": x[0], "mean": x.mean(0), "max": x.max(0)}[pool]
        pooled.append(x / np.sqrt((x**2).sum()) if normalize else x)
    return np.stack(pooled)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pool", "modules", "place"),
    [
        ("mean", ["Pooling", "Normalize"], ""),
        ("cls", ["Pooling"], "0_Transformer"),
        ("max", ["Pooling", "Normalize"], "0_Transformer"),
    ],
)
def test_embeddings_are_by_their_definition_and_go_out(
    pool: str, modules: list[str], place: str, tmp_path: Path
) -> None:
    a_folder(tmp_path / "theirs", pool, modules, place)
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "run")])
    found = encoded(tmp_path / "run")["features"][:, 0]
    np.testing.assert_allclose(found, expected(tmp_path / "run", pool, len(modules) > 1), atol=1e-6)
    given = encoded(tmp_path / "run", "--pool", pool)["features"][:, 0]
    np.testing.assert_allclose(given, expected(tmp_path / "run", pool, False), atol=1e-6)  # as it is asked for
    said = {"prompts": {"query": "", "document": ""}, "default_prompt_name": None, "similarity_fn_name": "cosine"}
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "back")])
    written = json.loads((tmp_path / "back/config_sentence_transformers.json").read_text())
    assert written == said | {"model_type": "SentenceTransformer"}
    convert.main(["import", "huggingface", str(tmp_path / "back"), str(tmp_path / "again")])
    np.testing.assert_array_equal(encoded(tmp_path / "again")["features"][:, 0], found)
    settings = [json.loads((tmp_path / name / "config.json").read_text())["embedding"] for name in ("run", "again")]
    assert settings[0] == settings[1] == {"pool": pool, "normalize": len(modules) > 1, "length": 9}


def test_what_is_not_supported_is_refused_by_name(tmp_path: Path) -> None:
    def refused(name: str, message: str) -> None:
        with pytest.raises(InputError, match=message):
            convert.main(["import", "huggingface", str(tmp_path / name), str(tmp_path / "run")])
        assert not (tmp_path / "run").exists()

    a_folder(tmp_path / "dense", "mean", ["Pooling", "Dense"])
    refused("dense", r"modules\.json: 'Dense' \(2_Dense\) is not supported; --head none imports the encoder")
    convert.main(["import", "huggingface", str(tmp_path / "dense"), str(tmp_path / "alone"), "--head", "none"])
    assert "embedding" not in json.loads((tmp_path / "alone/config.json").read_text())
    a_folder(tmp_path / "root", "mean_sqrt_len_tokens", ["Pooling"])
    refused("root", r"config\.json: pools by pooling_mode_mean_sqrt_len_tokens; supported: one of mean, cls, max")
    a_folder(tmp_path / "long", "mean", ["Pooling"], max_seq_length="9")
    refused("long", r"max_seq_length is '9', not a number of tokens")
    a_folder(tmp_path / "outside", "mean", ["Pooling"])
    (tmp_path / "outside/modules.json").write_text(json.dumps([{"path": "../dense", "type": f"{TYPE}Transformer"}]))
    refused("outside", "not a list of modules with type and path")
    (tmp_path / "outside/modules.json").write_text("{")
    refused("outside", r"modules\.json: not JSON")
    a_folder(tmp_path / "cased", "mean", ["Pooling"], do_lower_case=True)
    (tmp_path / "cased/tokenizer_config.json").write_text('{"do_lower_case": false}')
    refused("cased", "do_lower_case is true, but the tokenizer keeps capitals")


HUGE = 1000000000000000019884624838656  # int(1e30), by which transformers says that there is no limit
TEXT = {"method": "forward", "method_output_name": "last_hidden_state"}


@pytest.mark.parametrize(
    ("transformer", "tokenizer", "length"),  # SentenceTransformer(folder).max_seq_length of 6.2.0, with 17 positions
    [
        ({}, {"model_max_length": 12}, 12),
        ({"modality_config": {"text": TEXT}, "module_output_name": "token_embeddings"}, {"model_max_length": 12}, 12),
        ({"max_seq_length": None}, {"model_max_length": 12}, 12),
        ({"max_seq_length": 7}, {"model_max_length": 12}, 7),
        ({"max_seq_length": 14}, {"model_max_length": 12}, 14),
        ({"processor_kwargs": {"model_max_length": 5}, "max_seq_length": 7}, {"model_max_length": 12}, 5),
        ({"tokenizer_args": {"model_max_length": 5}}, {"model_max_length": 12}, 5),
        ({}, {"max_len": 11}, 11),
        ({}, {"max_len": 11, "model_max_length": 12}, 12),
        ({}, {}, None),
        ({}, {"model_max_length": None}, None),
        ({}, {"model_max_length": HUGE}, None),
        ({}, {"model_max_length": 1e30}, None),
        ({}, {"model_max_length": 17}, None),
    ],
)
def test_the_length_is_that_of_sentence_transformers(
    transformer: dict[str, Any], tokenizer: dict[str, Any], length: int | None, tmp_path: Path
) -> None:
    a_folder(tmp_path, "mean", ["Pooling"])
    for name in ("sentence_bert_config.json", "sentence_roberta_config.json"):  # also the name of earlier versions
        (tmp_path / "sentence_bert_config.json").unlink(missing_ok=True)
        (tmp_path / name).write_text(json.dumps(transformer))
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokenizer))
        read = sentence.read(tmp_path, True, SMALL)
        assert read is not None and read.length == length


def test_padding_on_the_left_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In sentence-transformers 6.2 it moves the positions of a text by what a longer one of its batch has more."""
    a_folder(tmp_path, "mean", ["Pooling"])
    for side in ("right", "left"):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"padding_side": side}))
        sentence.read(tmp_path, True, SMALL)
        assert ("padding_side moves texts" in capsys.readouterr().err) == (side == "left")


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("tokenizer_config", {"model_max_length": "12"}, "model_max_length is '12', not a number of tokens"),
        ("tokenizer_config", {"model_max_length": 12.0}, "model_max_length is 12.0, not a number of tokens"),
        ("tokenizer_config", {"model_max_length": 0}, "model_max_length is 0, not a number of tokens"),
        ("tokenizer_config", {"truncation_side": "left"}, "truncation_side cuts off the beginning"),
        ("sentence_bert_config", {"processing_kwargs": {"text": {"max_length": 5}}}, "processing_kwargs is"),
        ("sentence_bert_config", {"query_length": 8}, "query_length is 8, which is not supported; --head none"),
        ("sentence_bert_config", {"config_args": {"hidden_act": "relu"}}, "config_kwargs has 'hidden_act': 'relu'"),
        ("sentence_bert_config", {"transformer_task": "fill-mask"}, "transformer_task is 'fill-mask'; only"),
        ("sentence_bert_config", {"modality_config": {"text": TEXT | {"method": "other"}}}, "modality_config is"),
        ("1_Pooling/config", {"pooling_mode": ["mean", "max"]}, "pools by mean, max; supported: one of"),
        ("1_Pooling/config", {"pooling_mode": "lasttoken"}, "pools by lasttoken; supported: one of"),
        ("2_Normalize/config", {"module_input_name": "token_embeddings"}, "normalises 'token_embeddings'"),
        ("config_sentence_transformers", {"similarity_fn_name": "maxsim"}, "similarity_fn_name is 'maxsim'"),
        ("config_sentence_transformers", {"truncate_dim": -2}, "truncate_dim is -2, not a number of dimensions"),
        ("config_sentence_transformers", {"default_prompt_name": "x"}, "default_prompt_name is 'x', which is none"),
        ("config_sentence_transformers", {"prompts": ["a: "]}, "not texts by name"),
        ("config_sentence_transformers", {"default_prompt_name": ["x"]}, r"default_prompt_name is \['x'\], which is"),
    ],
)
def test_settings_that_change_the_embeddings_are_refused_by_name(
    file: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    a_folder(tmp_path, "mean", ["Pooling", "Dropout", "Normalize"])
    (tmp_path / "3_Normalize").rename(tmp_path / "2_Normalize")
    (tmp_path / "modules.json").write_text((tmp_path / "modules.json").read_text().replace("3_N", "2_N"))
    assert sentence.read(tmp_path, True, SMALL) == Embedding(pool="mean", normalize=True, length=9)
    (tmp_path / "sentence_bert_config.json").write_text("{}")
    path = tmp_path / f"{file}.json"
    before = {} if file.startswith("sentence") or not path.exists() else json.loads(path.read_text())
    path.write_text(json.dumps(before | changes))
    with pytest.raises(InputError, match=message):
        sentence.read(tmp_path, True, SMALL)


def test_a_pooling_without_the_prompt_is_refused_where_there_is_one(tmp_path: Path) -> None:
    a_folder(tmp_path, "cls", ["Pooling"])
    pooling = json.loads((tmp_path / "1_Pooling/config.json").read_text()) | {"include_prompt": False}
    (tmp_path / "1_Pooling/config.json").write_text(json.dumps(pooling))
    assert sentence.read(tmp_path, True, SMALL) == Embedding(pool="cls", length=9)
    (tmp_path / "config_sentence_transformers.json").write_text('{"prompts": {"query": "a: ", "document": ""}}')
    with pytest.raises(InputError, match="include_prompt is false"):
        sentence.read(tmp_path, True, SMALL)


def test_a_class_of_another_package_is_refused(tmp_path: Path) -> None:
    a_folder(tmp_path, "mean", ["Pooling"])
    text = (tmp_path / "modules.json").read_text()
    (tmp_path / "modules.json").write_text(text.replace(f"{TYPE}Pooling", "custom_st.Pooling"))
    with pytest.raises(InputError, match=r"'custom_st.Pooling' \(1_Pooling\) is not supported"):
        sentence.read(tmp_path, True, SMALL)


@pytest.mark.slow
def test_prompts_dimensions_and_similarity_are_used_by_search_and_scores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_folder(tmp_path / "theirs", "mean", ["Pooling", "Normalize"], max_seq_length=13)
    prompts = {"query": "the river ! ", "document": "unable ", "passage": "b b "}
    said = {"prompts": prompts, "default_prompt_name": "passage", "truncate_dim": 7, "similarity_fn_name": "euclidean"}
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "plain")])
    (tmp_path / "theirs/config_sentence_transformers.json").write_text(json.dumps(said))
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "run")])
    plain, model = bert.load(tmp_path / "plain"), bert.load(tmp_path / "run")

    def x(before: str, texts: list[str]) -> np.ndarray:
        return plain.embed([before + text for text in texts])[:, :7].astype(np.float64)

    texts, queries = ["river flow", "a b", "flow flow !"], ["river", "b", "! !"]
    np.testing.assert_array_equal(model.embed(texts), x("b b ", texts))  # the default prompt
    np.testing.assert_array_equal(encoded(tmp_path / "run", "--prompt", "query")["features"][:, 0].shape, (4, 7))
    assert model.embed([]).shape == (0, 7)
    export.main(["savedmodel", str(tmp_path / "run"), str(tmp_path / "served")])
    signature = tf.saved_model.load(str(tmp_path / "served/1")).signatures["serving_default"]
    np.testing.assert_allclose(signature(text=tf.constant(texts))["embedding"], model.embed(texts), atol=1e-5)
    with pytest.raises(
        UsageError, match="prompt 'q': the model has none of this name; it has document, passage, query"
    ):
        model.embed(texts, prompt="q")
    distances = np.linalg.norm(x("the river ! ", queries)[:, None] - x("unable ", texts), axis=2)

    corpus = tmp_path / "beir/corpus.jsonl"
    (tmp_path / "beir/qrels").mkdir(parents=True)
    corpus.write_text("".join(json.dumps({"_id": f"d{n}", "text": text}) + "\n" for n, text in enumerate(texts)))
    rows = [{"_id": f"q{n}", "text": text} for n, text in enumerate(queries)]
    (tmp_path / "beir/queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "beir/qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq0\td1\t1\nq1\td2\t1\nq2\td0\t1\n")
    search.main(["index", str(corpus), str(tmp_path / "index"), "--model", str(tmp_path / "run")])
    found = model.search(tmp_path / "index", queries)
    for number, hits in enumerate(found):
        assert [hit.id for hit in hits] == [f"d{place}" for place in np.argsort(distances[number])]
        np.testing.assert_allclose([hit.score for hit in hits], -np.sort(distances[number]), atol=1e-5)
    capsys.readouterr()
    evaluate.main(["--model", str(tmp_path / "run"), "--folder", str(tmp_path / "beir"), "--split", "test"])
    scores = json.loads(capsys.readouterr().out)
    ranks = [1 + int((distances[n] < distances[n, right]).sum()) for n, right in enumerate((1, 2, 0))]
    assert scores["mrr@10"] == pytest.approx(100 * np.mean([1 / rank for rank in ranks]), abs=0.01)
    lines = [f"{first}\t{second}\t{n}\n" for n, (first, second) in enumerate(zip(queries, texts, strict=True))]
    (tmp_path / "pairs.tsv").write_text("sentence1\tsentence2\tscore\n" + "".join(lines))
    evaluate.main(
        ["--model", str(tmp_path / "run"), "--input", str(tmp_path / "pairs.tsv"), "--text", "sentence1", "sentence2"]
    )
    of_pairs = -np.linalg.norm(x("b b ", queries) - x("b b ", texts), axis=1)
    expected = 100 * np.corrcoef(of_pairs, [0, 1, 2])[0, 1]
    assert json.loads(capsys.readouterr().out)["pearson"] == pytest.approx(expected, abs=0.01)
