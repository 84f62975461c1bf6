"""Embeddings and their scores equal those of sentence-transformers."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import bert
from bert import encode
from bert.convert import __main__ as convert
from bert.model.dropout import DropoutRng
from bert.model.encoder import Mode, variables
from bert.runs import Run
from bert.text.vocabulary import SPECIAL
from bert.training import checkpoint
from extensions.embeddings import retrieval
from extensions.embeddings.denoising import DenoisingModel
from extensions.embeddings.similarity import ScoredPairs
from extensions.search import search
from tasks.examples import Skipped
from tests.bert.convert.test_cross_encoder import a_folder as of_pairs
from tests.bert.convert.test_cross_encoder import come_in
from tests.bert.convert.test_sentence import a_folder
from tests.extensions.embeddings.test_embedding import trained
from tests.parity.test_transformers import oracle

pytestmark = [pytest.mark.parity, pytest.mark.slow]
TEXTS = ["ant bee", "the ant and the kiwi", "fig", "", "kiwi " * 60]


@pytest.mark.parametrize(("pool", "normalize"), [("mean", "true"), ("cls", "false"), ("max", "true")])
def test_a_trained_run_gives_the_same_vectors_there(
    pool: str, normalize: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained(tmp_path, monkeypatch, "--data.pool", pool, "--data.normalize", normalize, "--length.epochs", "1")
    convert.main(["export", "huggingface", str(run), str(tmp_path / "folder")])
    (tmp_path / "texts").write_text("\n".join(TEXTS) + "\n")
    ours = tmp_path / "ours.npz"
    encode.main(["--model", str(run), "--input", str(tmp_path / "texts"), "--output", str(ours)])
    (longest,) = oracle(("embedded", tmp_path / "folder", TEXTS, tmp_path / "theirs.npy"))
    found, theirs = np.load(ours)["features"][:, 0], np.load(tmp_path / "theirs.npy")
    np.testing.assert_allclose(found, theirs, atol=1e-5)
    assert longest == 33


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean", "manhattan"])
def test_an_import_gives_the_vectors_and_likenesses_of_the_folder(similarity: str, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    a_folder(folder, "mean", ["Pooling", "Normalize"], max_seq_length=None)
    for name in ("sentence_bert_config.json", "tokenizer_config.json"):
        said = {"model_max_length": 13, "do_lower_case": True} if name.startswith("tokenizer") else {}
        (folder / name).write_text(json.dumps(said))
    prompts = {"query": "the river ! ", "document": "unable", "other": "a b "}
    asked = {"prompts": prompts, "default_prompt_name": "other", "truncate_dim": 7, "similarity_fn_name": similarity}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(asked))
    convert.main(["import", "huggingface", str(folder), str(tmp_path / "run")])
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "back")])
    texts = ["river river flow", "a b ! the " * 9, "flow"]
    places = [tmp_path / "theirs.npz", tmp_path / "back.npz"]
    oracle(*(("asked", one, texts, place) for one, place in zip((folder, tmp_path / "back"), places, strict=True)))
    theirs, back = (np.load(place) for place in places)
    model = bert.load(tmp_path / "run")
    ours = {"": model.embed(texts)} | {name: model.embed(texts, prompt=name) for name in ("query", "document")}
    for name, found in ours.items():
        np.testing.assert_allclose(found, theirs[f"embedded{name}"], atol=1e-5)
        np.testing.assert_array_equal(back[f"embedded{name}"], theirs[f"embedded{name}"])
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    search.main(["index", str(tmp_path / "texts.txt"), str(tmp_path / "index"), "--model", str(tmp_path / "run")])
    for number, query in enumerate(texts):
        likeness = {hit.text: hit.score for hit in model.search(tmp_path / "index", query)}
        for place in (0, 2):  # the other one is cut into passages
            assert likeness[texts[place]] == pytest.approx(theirs["likeness"][number, place], abs=1e-4)


@pytest.mark.parametrize(
    ("classes", "activation"), [(1, "activation.Sigmoid"), (1, "linear.Identity"), (1, ""), (3, "activation.Sigmoid")]
)
def test_a_cross_encoder_gives_the_scores_of_predict(classes: int, activation: str, tmp_path: Path) -> None:
    said = {"activation_fn": f"torch.nn.modules.{activation}"} if activation else {}
    theirs = of_pairs(tmp_path, classes, said, {}, longest=12)
    pairs = [["river", "the"], ["a b a b a b a", "river flow river flow"], ["a b a", "b " * 13], ["b b " * 9, "a " * 9]]
    run, back = come_in(theirs), tmp_path / "back"
    convert.main(["export", "huggingface", str(run), str(back)])
    model, texts = bert.load(run), [[pair[n] for pair in pairs] for n in (0, 1)]
    if classes == 1:
        ours = np.array(model.regress(*texts))
    else:
        ours = np.array([[*found.probabilities.values()] for found in model.label(*texts)])
    for scores in oracle(("predicted", theirs, pairs), ("predicted", back, pairs)):
        np.testing.assert_allclose(ours, scores, atol=1e-5)


def test_tsdae_has_the_same_loss_and_gradients(tmp_path: Path) -> None:
    folder, sizes = tmp_path / "start", {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}
    sizes |= {"vocab_size": 29, "intermediate_size": 40, "max_position_embeddings": 33}
    random = np.random.default_rng(5)
    lengths = np.array([[5, 3, 9], [11, 7, 13]])  # of three texts, without some words and whole
    mask = (np.arange(13) < lengths[..., None]).astype(int)
    ids = random.integers(1, 29, mask.shape) * mask
    batch = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *(f"w{n}" for n in range(29 - len(SPECIAL)))]) + "\n")
    rows = {name: values.tolist() for name, values in batch.items()}
    jobs = ("make", "BertForMaskedLM", folder, 7, sizes), ("denoised", folder, rows, tmp_path / "theirs.npz")
    _, expected = oracle(*jobs)
    theirs = np.load(tmp_path / "theirs.npz")

    convert.main(["import", "huggingface", str(folder), str(tmp_path / "run")])
    config = Run.open(tmp_path / "run").config
    model = DenoisingModel(config, 1, "cls")
    checkpoint.load_weights(tmp_path / "run", variables(model), ("embedding",))
    names = {"value": "self.value", "output": "output.dense", "norm": "output.LayerNorm"}
    parts = {"kernel": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
    for number, layer in enumerate(model.decoder.to_embedding):
        for (ours, name), (part, of_part) in itertools.product(names.items(), parts.items()):
            if (variable := getattr(getattr(layer, ours), part, None)) is not None:
                value = theirs[f"added/bert.encoder.layer.{number}.crossattention.{name}.{of_part}"]
                variable.assign(value.T)
    given = {"input_ids": ids, "input_mask": mask, "segment_ids": np.zeros_like(ids)}
    features = {name: tf.constant(values.transpose(1, 0, 2), tf.int32) for name, values in given.items()}
    first = model.encoder.layers[0]
    wanted = {
        "bert.embeddings.word_embeddings.weight": model.encoder.embeddings.word,
        "bert.encoder.layer.0.attention.self.query.weight": first.attention.query.kernel,
        "bert.encoder.layer.1.crossattention.self.value.weight": model.decoder.to_embedding[1].value.kernel,
        "cls.predictions.bias": model.decoder.masked_lm.bias,
    }
    with tf.GradientTape() as tape:
        measure = model.denoise(features, Mode(tf.float32, DropoutRng(None)))
        loss = measure.loss / (lengths[1] - 1).sum()
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    for name, found in zip(wanted, tape.gradient(loss, [*wanted.values()]), strict=True):
        gradient = tf.convert_to_tensor(found).numpy()
        assert np.abs(gradient).max() > 1e-4, name
        kernel = gradient.T if "embeddings" not in name else gradient
        np.testing.assert_allclose(kernel, theirs[f"gradient/{name}"], atol=2e-6, err_msg=name)


def test_scores_of_retrieval_and_of_pairs_are_theirs(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    queries, documents = random.normal(size=(23, 5)), random.normal(size=(331, 5))
    wanted = [sorted({*random.integers(0, 331, random.integers(1, 40)).tolist()}) for _ in queries]
    pairs, scores = random.normal(size=(57, 2, 7)), random.integers(0, 6, 57).astype(float)
    jobs = ("retrieved", queries.tolist(), documents.tolist(), wanted), ("similar", pairs.tolist(), scores.tolist())
    theirs, of_pairs = oracle(*jobs)

    (tmp_path / "qrels").mkdir()
    rows = [{"_id": f"d{n:04d}", "text": f"d{n}"} for n in range(331)]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [{"_id": f"q{n}", "text": f"q{n}"} for n in range(23)]
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = [f"q{n}\td{number:04d}\t1\n" for n, numbers in enumerate(wanted) for number in numbers]
    (tmp_path / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    rows_of = {f"q{n}": row for n, row in enumerate(queries)} | {f"d{n}": row for n, row in enumerate(documents)}

    def made(texts: Sequence[str], prompt: str | None = None) -> np.ndarray:
        return np.stack([rows_of[text] for text in texts])

    found = retrieval.Retrieval(tmp_path, "test").scores(made)
    assert found.values == pytest.approx({name: 100 * theirs[name] for name in found.values}, abs=1e-4)

    lines = [f"{n}\tsecond {n}\t{score:g}\n" for n, score in enumerate(scores)]
    (tmp_path / "pairs.tsv").write_text("a\tb\tscore\n" + "".join(lines))
    ranked = ScoredPairs([tmp_path / "pairs.tsv"], ("a", "b"), "score", Skipped())
    mine = ranked.scores(lambda texts, prompt=None: pairs.reshape(-1, 7)).values
    assert mine == pytest.approx({name: 100 * value for name, value in of_pairs.items()}, abs=1e-4)
