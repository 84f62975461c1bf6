"""A fine-tuning whose run directory is in an object store, stopped on one machine and finished on another."""

from pathlib import Path

import pytest

from bert.core.errors import Stopped
from bert.training import selection
from extensions.stores import object_store
from tasks import predict, thresholds
from tests.object_server import BUCKET, needs_server, served
from tests.tasks.test_train_predict import fine_tune, folder
from tests.training import same_bits, weights

__all__ = ["folder"]  # a fixture
pytestmark = [pytest.mark.slow, needs_server]


def test_a_run_in_a_store_is_finished_elsewhere_as_one_in_a_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, flags = f"s3://{BUCKET}/runs/animals", ["--run.save_every", "20", "--run.keep", "1"]

    def on(host: str) -> Path:
        monkeypatch.setenv("BERT_WORKDIR", str(tmp_path / host))
        return tmp_path / host / "stores/s3" / url.removeprefix("s3://")

    on("alone")
    alone = fine_tune(folder, "multilabel", tmp_path / "run", *flags)
    with served(tmp_path) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        object_store._store.cache_clear()
        on("one")
        with pytest.raises(Stopped):
            fine_tune(folder, "multilabel", url, *flags, "--run.stop_at", "25")
        here = on("two")
        fine_tune(folder, "multilabel", url, *flags)
        same_bits(weights(here, 60), weights(alone, 60))
        for path in (path for path in here.rglob("*") if path.is_file() and not path.name.startswith(".")):
            assert server.ask("GET", f"runs/animals/{path.relative_to(here)}") == path.read_bytes()
        of_run = (here / "thresholds.json").read_bytes()
        thresholds.main(["--model", url, "--input", str(folder / "train_labels.jsonl")])
        assert of_run != (here / "thresholds.json").read_bytes() == server.ask("GET", "runs/animals/thresholds.json")
        thresholds.main(["--model", url, "--input", str(folder / "dev_labels.jsonl")])
        on("three")
        given, found = str(folder / "dev_labels.jsonl"), list[str]()
        for model in (url, str(alone)):
            predict.main(["--model", model, "--input", given, "--output", str(output := tmp_path / "out.jsonl")])
            found.append(output.read_text())
        object_store._store.cache_clear()
    assert found[0] == found[1] and len(found[0]) > 1000
    assert (here / "thresholds.json").exists() and selection.read(here) == selection.read(alone)
