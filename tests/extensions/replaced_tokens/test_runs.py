"""Runs with replaced tokens: resumed and on two ranks as without, evaluated, exported, read by other commands."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from bert import evaluate, pretrain
from bert.convert import __main__ as convert
from bert.core.config import ModelConfig, ObjectiveConfig
from bert.core.errors import InputError, UsageError
from bert.model.encoder import variables
from bert.runs import Run
from bert.text.vocabulary import SPECIAL
from bert.training import checkpoint
from extensions.replaced_tokens.model import ReplacedTokensModel
from tests.training import EVALUATED, TINY, losses, measured, same_bits, sign, train_here, weights, write_dataset
from tests.training import pretrain as in_a_process

ELECTRA = ["--objective.name", "replaced_tokens", "--objective.generator_width", "0.4", "--model.pooler_act", "gelu"]
ELECTRA += ["--model.embedding_size", "12", "--run.steps", "8", "--run.save_every", "4"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("records") / "data", pairs="none")


def train(data: Path, run: Path, *more: str) -> None:
    flags = ["--data.train", str(data), "--run.directory", str(run), "--batch.per_device", "3", *TINY, *EVALUATED]
    pretrain.main(["demo_phase1", *flags, *ELECTRA, *more])


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("electra") / "run"
    train(data, run, "--run.save_every", "3")
    return run


@pytest.mark.slow
def test_a_resumed_run_has_the_bits_of_one_that_was_not_stopped(data: Path, trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    for later in ("step-00000006", "step-00000008"):
        shutil.rmtree(tmp_path / "run" / "checkpoints" / later)
    path = tmp_path / "run" / "config.json"
    written = json.loads(path.read_text())
    assert "objective.embeddings" not in written["config"]
    for value in ("disentangled", "shared"):  # as earlier versions wrote it
        path.write_text(json.dumps(written | {"config": written["config"] | {"objective.embeddings": value}}))
        sign(tmp_path / "run")
        if value == "disentangled":
            with pytest.raises(UsageError, match=r"objective\.embeddings disentangled was removed: both"):
                train(data, tmp_path / "run", "--run.save_every", "3")
    train(data, tmp_path / "run", "--run.save_every", "3")
    same_bits(weights(tmp_path / "run", 8), weights(trained, 8))
    whole = measured(trained)
    assert all(line == whole[key] for key, line in measured(tmp_path / "run").items() if key[1] == "train")
    assert {"mlm_accuracy", "rtd_loss", "rtd_accuracy", "rtd_recall"} < whole[8, "heldout"].keys()


@pytest.mark.slow
def test_other_commands_see_the_encoder_and_the_head_of_the_detection(
    data: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate.main([str(trained), "--data", str(data), "--batch", "4"])
    found = json.loads(capsys.readouterr().out)
    expected = measured(trained)[8, "heldout"]
    for name in ("mlm_loss", "mlm_accuracy", "rtd_loss", "rtd_accuracy", "rtd_recall"):
        assert found[name] == pytest.approx(expected[name], rel=1e-4), name
    with pytest.raises(InputError, match="has no head 'masked_lm'"):
        evaluate.main([str(trained), "--text", str(tmp_path / "no.txt")])

    convert.main(["export", "huggingface", str(trained), str(tmp_path / "theirs")])
    assert json.loads((tmp_path / "theirs/config.json").read_text())["architectures"] == ["ElectraForPreTraining"]
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "back")])
    ours, back = weights(trained, 8), weights(tmp_path / "back", 0)
    assert {name.split("/")[0] for name in ours.keys() - back.keys()} == {
        "adam_m", "adam_v", "generator", "guard", "loss_scale", "run", "spikes"
    }  # fmt: skip
    same_bits(back, {name: ours[name] for name in back})
    assert Run.open(trained).encoder().dtype.name == "float32"


def test_an_export_as_bert_which_has_no_such_head_is_refused(model_config: ModelConfig, tmp_path: Path) -> None:
    generator, run = ObjectiveConfig(name="replaced_tokens").further(model_config), tmp_path / "run"
    assert generator is not None
    run.mkdir()
    model_config.save(run / "bert_config.json")
    (run / "vocab.txt").write_text("\n".join([*SPECIAL, *(f"w{number}" for number in range(94))]) + "\n")
    checkpoint.save(run, 3, variables(ReplacedTokensModel(model_config, generator, seed=5)), keep=1)
    with pytest.raises(InputError, match=r"BERT has no head replaced_token .* pretrain with --model\.pooler_act gelu"):
        convert.main(["export", "huggingface", str(run), str(tmp_path / "theirs")])
    assert not (tmp_path / "theirs").exists()


def like(run: Path, one: Path) -> None:
    """Check that the losses and weights of a run are those of one rank's within rounding."""
    few, many = losses(one), losses(run)
    assert few.keys() == many.keys() and list(many.values()) == pytest.approx(list(few.values()), rel=1e-4)
    found = weights(run, 8)
    for name, value in weights(one, 8).items():
        if not name.endswith("key/bias"):  # whose gradient is zero, but for rounding
            np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.multiprocess
@pytest.mark.thorough
def test_two_ranks_train_like_one_with_the_whole_batch(data: Path, tmp_path: Path) -> None:
    flags = [*ELECTRA, "--model.hidden_dropout_prob", "0", "--model.attention_probs_dropout_prob", "0"]
    train_here(data, tmp_path / "1", *flags, per_device=6)
    done = in_a_process(data, tmp_path / "2", *flags, ranks=2)
    assert done.returncode == 0, done.stderr
    like(tmp_path / "2", tmp_path / "1")


@pytest.mark.multiprocess
@pytest.mark.thorough
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("layout", "ranks"),
    [
        ([], 1),
        (["--parallel.tensor", "2", "--parallel.shard_optimizer", "true", "--parallel.overlap", "true"], 4),
    ],
    ids=["whole", "parts and replicas"],
)
def test_parts_of_both_models_train_like_one_rank_and_go_on_in_other_layouts(
    layout: list[str], ranks: int, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [*ELECTRA, "--model.num_attention_heads", "4", "--objective.generator_width", "0.5"]  # 2 heads of 5, 14
    train_here(data, tmp_path / "one", *flags)
    run = tmp_path / "run"
    stopped = in_a_process(data, run, *flags, "--parallel.tensor", "2", "--run.stop_at", "4", ranks=2)
    assert stopped.returncode == 75, stopped.stderr
    if ranks == 1:
        train_here(data, run, *flags, *layout)
    else:
        done = in_a_process(data, run, *flags, *layout, ranks=ranks)
        assert done.returncode == 0, done.stderr
    like(run, tmp_path / "one")
    evaluated = measured(run)[8, "heldout"]
    capsys.readouterr()
    evaluate.main([str(run), "--data", str(data), "--batch", "4"])  # by one rank
    found = json.loads(capsys.readouterr().out)
    assert found["rtd_loss"] == pytest.approx(evaluated["rtd_loss"], rel=1e-4)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--parallel.overlap", "true", "--precision.xla", "true"], "computes a generator twice"),
        (["--model.norm_placement", "pre", "--model.embedding_size", "0"], "needs model.norm_placement post"),
        (["--objective.name", "masked_words"], "objective.generator_width has no effect without"),
        (["--objective.generator_width", "0.65"], "a generator of width 13 cannot have 3 heads"),
    ],
)
def test_what_has_no_exact_form_is_refused(flags: list[str], message: str, data: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        train(data, tmp_path / "run", *flags)


def test_data_with_pairs_are_refused(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="was made with --pairs nsp"):
        train(dataset, tmp_path / "run")
