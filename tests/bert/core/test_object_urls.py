"""A URL of an object store has one local path, which has that URL; other URLs are refused by name."""

import dataclasses
from pathlib import Path

import pytest

from bert.core import cli, object_urls
from bert.core.config import PretrainConfig, flatten
from bert.core.errors import UsageError
from bert.recipes import RECIPES


@pytest.fixture(autouse=True)
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BERT_WORKDIR", str(tmp_path / "work"))
    return tmp_path / "work"


@pytest.mark.parametrize("url", ["s3://b/k", "gs://b.c-d/k/l m/ä.txt", "az://container/a=b/c@d"])
def test_the_path_of_a_url_has_that_url(url: str, workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = object_urls.local(url + "/")
    assert path == workdir / "stores" / url.replace("://", "/") and object_urls.url_of(path) == url
    assert object_urls.url_of(path / "below") == f"{url}/below"
    monkeypatch.chdir(workdir.parent)
    monkeypatch.setenv("BERT_WORKDIR", "work")
    assert object_urls.url_of(object_urls.local(url)) == object_urls.url_of(path) == url


def test_other_paths_have_none(workdir: Path) -> None:
    for path in (workdir, workdir / "stores/s3", workdir / "stores/s3/b", workdir / "stores/x/b/k", Path("s3/b/k")):
        assert object_urls.url_of(path) is None


@pytest.mark.parametrize(
    "url",
    [
        *("s3://", "s3://b", "s3://b/", "s3:///k", "s3://b/../k", "s3://b/k/../../l", "s3://b//k", "s3://b/.k"),
        *("s3://b/k?x", "s3://b/\nk", "s3://b/k*", "http://b/k", "hdfs://b/k", "gcs://b/k", "s3a://b/k", "file:///k"),
    ],
)
def test_what_is_no_folder_of_a_store_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match=r"give |rename"):
        object_urls.local(url)


def test_a_path_that_was_made_of_a_url_is_refused() -> None:
    with pytest.raises(UsageError, match="s3://b/k: give a URL as a string"):
        object_urls.path(Path("s3://b/k"))
    assert object_urls.path("s3://b/k") == object_urls.local("s3://b/k") and object_urls.path("k") == Path("k")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    stored: cli.Stored[tuple[Path, ...]]
    """may be in a store"""
    plain: Path
    """may not"""


def test_a_flag_takes_a_url_or_refuses_it_by_name() -> None:
    flags = ["--stored", "s3://b/k", "x", "--plain", "y"]
    options = cli.parse(Options, flags, prog="p", description=None)
    assert options == Options(stored=(object_urls.local("s3://b/k"), Path("x")), plain=Path("y"))
    for bad, words in (("s3://b/k", "--plain: s3://b/k: is a URL, which this argument does not take"),):
        with pytest.raises(UsageError, match=words):
            cli.parse(Options, [*flags[:-1], bad], prog="p", description=None)
    with pytest.raises(UsageError, match="--stored: http://b/k: http:// is not read or written here"):
        cli.parse(Options, ["--stored", "http://b/k", "--plain", "y"], prog="p", description=None)


def test_a_configuration_records_the_url_and_not_the_path_of_this_machine() -> None:
    flags = ["--data.train", "s3://b/records", "--run.directory", "s3://b/run", "--init.checkpoint", "s3://b/init"]
    config = cli.override(RECIPES["demo_phase2"].phases[0].config, flags, prog="p", description=None)
    assert isinstance(config, PretrainConfig)
    recorded = flatten(config)
    assert recorded["data.train"] == "s3://b/records" and recorded["run.directory"] == "s3://b/run"
    assert recorded["init.checkpoint"] == "s3://b/init"
