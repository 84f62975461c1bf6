"""A run directory is opened in one place, which checks it first."""

import dataclasses
import time
from pathlib import Path

import numpy as np
import pytest

from bert.core import manifest
from bert.core.errors import InputError, IntegrityError
from bert.labels import Head
from bert.model.encoder import Encoder, variables
from bert.model.heads import Pooler
from bert.runs import Run
from tests.bert.export.served import CONFIG, VOCAB, a_run
from tests.training import sign

HEAD = Head(kind="classifier", labels=("no", "yes"))


@pytest.mark.slow
def test_a_run_has_its_configuration_tokenizer_settings_head_and_weights(tmp_path: Path) -> None:
    run = Run.open(a_run(tmp_path / "run", HEAD, {"recipe": "mine"}))
    assert (run.config, run.tokenizer.vocab, run.settings["recipe"], run.head) == (CONFIG, VOCAB, "mine", HEAD)
    assert run.has("classifier") and not run.has("tags")
    encoder, pooler = Encoder(CONFIG, 7), Pooler(CONFIG, 7)
    before = variables(encoder)["embeddings/word"].numpy()
    run.load(encoder, pooler)
    assert not np.array_equal(variables(encoder)["embeddings/word"], before)
    assert run.checkpoint == run.path / "checkpoints/step-00000003"
    assert run.weights == manifest.content_hash(run.checkpoint)
    ids = np.array([[2, 9, 8, 3]], np.int32)
    again = Run.open(run.path).encoder().function(lambda states, mask: states[0])
    assert again(ids, np.ones_like(ids), np.zeros_like(ids)).shape == (1, 4, CONFIG.hidden_size)


def test_what_is_no_run_or_has_changed_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing: no such folder; give the run directory of a trained model"):
        Run.open(tmp_path / "nothing")
    run = a_run(tmp_path / "run", None)
    assert Run.open(run).head is None
    (run / "bert_config.json").write_text("{")
    with pytest.raises(IntegrityError, match=r"bert_config\.json: not the file that .* records"):
        Run.open(run)


def test_a_description_of_a_far_larger_model_is_refused_before_that_is_built(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", None)
    dataclasses.replace(CONFIG, num_hidden_layers=1000).save(run / "bert_config.json")
    sign(run)  # a forged configuration
    begun = time.perf_counter()
    with pytest.raises(IntegrityError, match=r"describes [0-9,]+ weights of an encoder, but its checkpoint has only"):
        Run.open(run)
    assert time.perf_counter() - begun < 15  # it would take minutes, and memory
