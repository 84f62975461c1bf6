"""The command prints each prompt with its continuation, the same ones each time, and refuses what it cannot do."""

import json
from pathlib import Path

import pytest

from bert.core.config import ModelConfig
from bert.core.errors import InputError, UsageError
from extensions.gpt import generate
from tests.extensions.gpt.runs import SIZES, write_run

POSITIONS = SIZES["max_position_embeddings"]
TEXTS = ["She saw the ship", "", "caf\u00e9 \u6c34"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("generate") / "run")


def lines(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict]:
    generate.main([*map(str, arguments), "--json"])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.slow
def test_each_prompt_is_continued_as_often_as_asked(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (run, *TEXTS, "--max_tokens", 5, "--count", 2, "--top_p", 0.9, "--seed", 3, "--batch", 4)
    found = lines(capsys, *arguments)
    assert [(line["prompt"], line["sample"]) for line in found] == [(text, n) for text in TEXTS for n in (0, 1)]
    assert {line["end"]: len(line["tokens"]) for line in found}["max_tokens"] == 5
    assert len({tuple(line["tokens"]) for line in found}) == 6
    assert lines(capsys, *arguments) == found


@pytest.mark.slow
def test_prompts_are_printed_with_what_follows_them(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (str(run), *TEXTS, "--max_tokens", "4", "--temperature", "0")
    expected = lines(capsys, *arguments)
    generate.main(list(arguments))
    output = capsys.readouterr()
    assert output.out == "-----\n".join(line["prompt"] + line["text"] + "\n" for line in expected)
    assert "3 texts" in output.err and "tokens/s" in output.err


@pytest.mark.slow
def test_a_long_prompt_is_refused_or_cut(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 7 + "y" * POSITIONS
    with pytest.raises(UsageError, match=f"prompt 2 has 44 tokens, but the model has {POSITIONS} positions"):
        generate.main([str(run), "short", long])
    arguments = ("--cut", "--max_tokens", 9, "--temperature", 0)
    (cut,), (same,) = lines(capsys, run, long, *arguments), lines(capsys, run, long[-29:], *arguments)
    assert cut["tokens"] == same["tokens"] and len(cut["tokens"]) == 9
    assert cut["prompt"] == long


@pytest.mark.slow
def test_the_last_position_is_reported(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generate.main([str(run), "y" * (POSITIONS - 1), "--top_k", "2"])
    assert f"1 of 1 texts ended at the model's {POSITIONS} positions" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--count", "2", "--temperature", "0"], "all texts are the same"),
        (["--top_p", "0"], "top_p"),
        (["--temperature", "-1"], "temperature"),
        (["--max_tokens", "0"], "max_tokens"),
    ],
)
def test_impossible_settings_are_usage_errors(run: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        generate.main([str(run), "a", *arguments])


def test_a_bert_is_refused(run: Path, tmp_path: Path) -> None:
    ModelConfig(**SIZES | {"causal": False}).save(tmp_path / "bert_config.json")
    with pytest.raises(UsageError, match="not a causal model"):
        generate.main([str(tmp_path), "a"])


def test_a_missing_run_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none"):
        generate.main([str(tmp_path / "none"), "a"])
