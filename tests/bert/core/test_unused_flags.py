"""Flags that have no effect beside others: which are refused, and which are not."""

import importlib
import json
from pathlib import Path

import pytest

from bert import recipes
from bert.core import cli
from bert.core.config import flatten
from bert.core.errors import UsageError
from squad import train as squad_train
from tasks import train as tasks_train
from tasks.recipes import RECIPES


class Started(Exception):
    """A command has accepted its flags."""


def start(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give flags to the command of a recipe. Raise Started if it would train now."""

    def begin(*_: object) -> None:
        raise Started

    recipe = line.split()[0]
    if recipe in recipes.RECIPES:
        recipes.choose(line.split(), prog="python -m bert.pretrain", description="")
        raise Started
    command = squad_train if recipe.startswith("squad") else tasks_train
    monkeypatch.setattr(command, "run", begin)
    command.main(line.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("classify --run.evaluate_every 100", "length.evaluations 1.*give --length.evaluations 0 as well"),
        ("classify --eval_steps 100", "run.evaluate_every has no effect beside length.evaluations 1"),
        ("classify --run.evaluate_every 100 --length.evaluations 0", ""),
        ("squad_base --run.evaluate_every 100", ""),  # has no evaluations in an epoch
        ("squad_base --run.evaluate_every 100 --length.evaluations 4", "has no effect beside length.evaluations 4"),
        ("squad_base --run.evaluate_sequences 100", "a development set is scored as a whole"),
        ("classify --optimizer.warmup_steps 0", "length.warmup 0.1.*give --length.warmup 0"),
        ("classify --optimizer.warmup_steps 0 --length.warmup 0", ""),
        ("classify --optimizer.warmup_steps 0 --run.steps 9", ""),  # a tenth of which is none
        ("classify --optimizer.warmup_steps 0 --run.steps 10", "give --length.warmup 0"),
        ("classify --optimizer.warmup_steps 9", ""),
        ("bert_base_phase1 --optimizer.warmup_steps 0", ""),  # which has no share
        ("bert_base_phase1 --batch.max_per_device 8", "max_per_device 8 has no effect beside batch.per_device 32"),
        ("bert_base --phase2.batch.max_per_device 4", "max_per_device 4 has no effect beside batch.per_device 8"),
        ("bert_base_phase1 --batch.max_per_device 8 --batch.per_device 0", ""),
        ("race --batch.per_device 8", ""),  # the recipe has 4 at most
        ("bert_base_phase1 --run.keep_every 1000", "run.keep_every 1000 is not a multiple of run.save_every 5000"),
        ("bert_base_phase1 --run.keep_every 1000 --run.save_every 500", ""),
        ("bert_base_phase1 --run.on_spike rollback --run.spike_factor 0", "run.on_spike rollback has no effect"),
        ("bert_base_phase1 --run.on_spike rollback", ""),
        ("bert_base_phase1 --model.rotary_base 5000", "without model.positions rotary"),
        ("bert_modern_small --model.rotary_base 5000", ""),
        ("bert_modern_small --model.global_every 2", "without model.local_window"),
        ("bert_modern_small --model.local_rotary_base 5000", "without model.local_window"),
        ("bert_base_phase1 --model.local_window 8 --model.local_rotary_base 5000", "without model.positions rotary"),
        ("bert_modern_small --model.local_window 8 --model.global_every 2 --model.local_rotary_base 5000", ""),
        ("bert_base_phase1 --init.checkpoint RUN --model.rotary_base 5000", ""),  # which the weights must have
        ("bert_tiny_phase1 --init.checkpoint RUN --model.position_initializer normal", "init.checkpoint.*has them"),
        ("bert_tiny --model.position_initializer normal", ""),
        ("classify --init.checkpoint RUN --model.position_initializer sinusoidal", "init.checkpoint.*has them"),
        ("classify --lora.targets query key", "lora.targets has no effect without lora.rank"),
        ("classify --lora.alpha 16", "lora.alpha has no effect without lora.rank"),
        ("classify --lora.targets query key --lora.rank 8", ""),
        ("classify --distill.temperature 3", "distill.temperature has no effect without distill.teacher"),
        ("bert_base_phase1 --distill.weight 0.9", "distill.weight has no effect without distill.teacher"),
        ("classify --distill.temperature 3 --distill.teacher RUN", ""),
        (
            "minilm_6x384 --distill.temperature 3 --distill.teacher RUN",
            "distill.temperature has no effect where the teacher's outputs are not learned",
        ),
        ("minilm_6x384 --distill.weight 0.3 --distill.teacher RUN", "distill.weight has no effect with .*outputs 0"),
        ("minilm_6x384 --distill.weight 0 --distill.teacher RUN", ""),  # nothing of the outputs, as it says
        ("distilbert --distill.weight 0 --distill.teacher RUN", ""),
        ("bert_large_phase1 --optimizer.name nvlamb --optimizer.clip_norm 5", "clips to a norm of 1 at most"),
        ("bert_large_phase1 --optimizer.name nvlamb --optimizer.clip_norm 0.5", ""),
        ("bert_large_phase1 --optimizer.schedule stable --optimizer.decay_power 2", "without optimizer.decay_start"),
        ("classify --optimizer.layer_decay 0.9 --init.frozen_encoder true", "no effect with init.frozen_encoder"),
    ],
)
def test_a_flag_without_effect_is_refused(line: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError if said else Started, match=said or None):
        start(line, monkeypatch)


def test_what_a_run_recorded_is_taken_and_a_flag_beside_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "config.json"
    config = flatten(RECIPES["classify"]()) | {"run.evaluate_every": 31, "optimizer.warmup_steps": 0}
    record.write_text(json.dumps({"recipe": "classify", "versions": {}, "config": config}), encoding="utf-8")
    with pytest.raises(Started):
        start(f"classify --config {record}", monkeypatch)
    with pytest.raises(UsageError, match=r"run\.evaluate_every has no effect"):
        start(f"classify --config {record} --run.evaluate_every 40", monkeypatch)


def test_a_run_that_has_begun_with_such_a_flag_goes_on_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = f"classify --run.directory {tmp_path} --lora.alpha 32"
    with pytest.raises(UsageError, match=r"lora\.alpha"):
        start(line, monkeypatch)
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(Started):
        start(line, monkeypatch)
    with pytest.raises(UsageError, match=r"run\.evaluate_every"):  # which the weights do not depend on
        start(f"{line} --run.evaluate_every 9", monkeypatch)


@pytest.mark.parametrize(
    ("module", "line", "said"),
    [
        ("bert.evaluate", "RUN --text FILE --sequences 9", "--sequences is for --data"),
        ("bert.evaluate", "RUN --text FILE --split train", "--split is for --data"),
        ("bert.evaluate", "RUN --data DIR --split train --sequences 9", ""),
        ("extensions.gpt.evaluate_lm", "RUN lambada FILE --stride 9", "--stride is for wikitext and heldout"),
        ("extensions.gpt.evaluate_lm", "RUN wikitext FILE --split train", "--split is for heldout"),
        ("extensions.gpt.evaluate_lm", "RUN heldout DIR --split train --stride 9", ""),
        ("bert.export.__main__", "onnx RUN DIR --version 3", "--version is for savedmodel and triton"),
        ("bert.export.__main__", "openvino RUN DIR --version 3", "--version is for savedmodel and triton"),
        ("bert.export.__main__", "triton RUN DIR --version 3", ""),
        ("bert.plan.__main__", "--gpu a100 --measured_ranks 8", "--measured_ranks has no effect without --measured"),
        ("bert.plan.__main__", "--gpu a100 --measured FILE --measured_ranks 8", ""),
        ("squad.predict", "RUN --question A --context B --nbest FILE", "--nbest is for --dataset"),
        ("squad.predict", "RUN --question A --context B --null_odds FILE", "--null_odds is for --dataset"),
        ("squad.predict", "RUN --dataset FILE --output OUT --nbest FILE --null_odds ODDS", ""),
        ("squad.metric", "DATASET FILE --na_prob_thresh 0.5", "--na_prob_thresh has no effect without --na_prob"),
        ("squad.metric", "DATASET FILE --na_prob_thresh 0.5 --na_prob ODDS", ""),
        ("squad.metric", "DATASET FILE --na_prob_thresh -1", ""),  # below the 0 that all have: no answer to any
        ("tasks.evaluate", "RUN --input FILE --split test", "--split is for --folder"),
        ("tasks.evaluate", "RUN --folder DIR --split test", ""),
        (
            "tasks.evaluate",
            "RUN --input FILE --predictions OUT --threshold 0.9",
            "--threshold has no effect with --pre",
        ),
        ("tasks.evaluate", "RUN --input FILE --predictions OUT --windows max", "--windows has no effect with --pred"),
        ("tasks.evaluate", "RUN --input FILE --predictions OUT --threshold 0", "--threshold has no effect with --pred"),
        ("tasks.evaluate", "RUN --input FILE --predictions OUT --limit 9", "--limit has no effect with --predictions"),
        ("tasks.evaluate", "RUN --input FILE --threshold 0.9 --windows max --stride 9", ""),
        ("tasks.predict", "RUN --text title -- words", "--text names columns of --input"),
        ("tasks.predict", "RUN --text title --input FILE --output OUT", ""),
        (
            "data.shards",
            "--source DIR --output OUT --shards 3 --max_shards 9",
            "--max_shards has no effect with --shards",
        ),
        ("data.shards", "--source DIR --output OUT --max_shards 9", ""),
    ],
)
def test_an_option_without_effect_is_refused(module: str, line: str, said: str) -> None:
    options, argv = importlib.import_module(module).Options, line.split()
    if not said:
        assert cli.parse(options, argv, prog=module, description="")
        return
    with pytest.raises(UsageError, match=said):
        cli.parse(options, argv, prog=module, description="")
