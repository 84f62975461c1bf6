"""Folders of sentence-transformers: `bert.encode` gives their embeddings, by their definition in NumPy."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert import encode
from bert.convert import __main__ as convert
from bert.core.errors import InputError
from tests.bert.convert.folders import their_folder

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
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "back")])
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
    a_folder(tmp_path / "prompt", "mean", ["Pooling"])
    (tmp_path / "prompt/config_sentence_transformers.json").write_text('{"default_prompt_name": "query"}')
    refused("prompt", "default_prompt_name puts words before each text")
    a_folder(tmp_path / "outside", "mean", ["Pooling"])
    (tmp_path / "outside/modules.json").write_text(json.dumps([{"path": "../dense", "type": f"{TYPE}Transformer"}]))
    refused("outside", "not a list of modules with type and path")
    (tmp_path / "outside/modules.json").write_text("{")
    refused("outside", r"modules\.json: not JSON")
    a_folder(tmp_path / "cased", "mean", ["Pooling"], do_lower_case=True)
    (tmp_path / "cased/tokenizer_config.json").write_text('{"do_lower_case": false}')
    refused("cased", "do_lower_case is true, but the tokenizer keeps capitals")
