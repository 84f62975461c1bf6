"""Every reader of files takes a damaged file as something that is right, or refuses it with one line that names it.

A row of `READERS` has a reader, contents that are good, and drawn damage. A reader that cannot tell the damage from a
good file checks what it has read: a wrong value fails the test as an unexpected error does.
"""

import bz2
import contextlib
import dataclasses
import functools
import gzip
import io
import json
import math
import shutil
import struct
import tempfile
import typing
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save
from tokenizers import BertWordPieceTokenizer

from bert import report
from bert.convert import architecture, huggingface, run
from bert.core import files, journal
from bert.core.config import ModelConfig, flatten
from bert.runs import Run
from bert.text.vocabulary import SPECIAL, load_vocab
from bert.training import metrics
from data.fetch import archives, catalog, download_dir, wikimedia
from data.fetch.transfer import Client
from data.wiki import dump
from extensions.lora import peft
from extensions.pubmed.pubmed import Settings, SurveyTask, _document, survey
from extensions.pubmed.reader import Reader as CitationReader
from squad import examples, metric, model, threshold
from squad.recipes import RECIPES
from tasks import choices, conll, race, swag
from tasks.examples import ChoiceExample, Skipped, TaggedSentence
from tests import pubmed_xml
from tests.bert.convert import folders
from tests.properties.fuzz import fuzz
from tests.properties.mutations import damaged, damaged_json, survives
from tests.properties.test_text_sources import HARD
from tests.wiki_dump import page, xml

DEEP = b"[" * 100_000


@dataclasses.dataclass(frozen=True)
class Reader:
    """How one kind of file is read, and what is damaged."""

    file: str
    read: Callable[[Path], object]  # also checks what it has read
    good: Sequence[bytes]
    damage: st.SearchStrategy[bytes]
    hard: Sequence[bytes] = ()  # contents that readers have stumbled on
    beside: Callable[[Path], object] = lambda folder: None  # writes what else the reader needs
    longest: int = 1000  # characters of a refusal
    disagrees: bool = False  # whether it may disagree with another file: then a refusal may name that, or the folder
    slow: bool = False


def of_json(good: Any) -> tuple[list[bytes], st.SearchStrategy[bytes]]:
    """Return the text of an object, and the damage to it."""
    return [json.dumps(good).encode()], damaged_json(good)


# Multiple choice and tagging

PASSAGE = {
    "article": "The \U0001f600 Rhine is long.",
    "questions": ["Which river?", "The _ is _."],
    "options": [["Rhine", "Aare", "Thur", "Elbe"], ["a", "b", "c", "d"]],
    "answers": ["A", "D"],
}
ROW = '0,clip,3,He waits. He,He waits.,He,{},sits.,"says ""no"", twice.",leaves.,runs.,{}\n'
SWAG = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
SWAG += ROW.format("gold", 2) + ROW.format("gen-orig", 0)
CHOICE = {"id": "a", "context": "It rains.", "choices": ["Stay.", "Go.", "Sing."], "label": 1, "group": "b"}
CONLL = "-DOCSTART- -X- O O\n\nAnna NNP I-NP I-PER\r\n\u00ad VBD I-VP O\n \nBasel\tNNP\tI-NP\tI-LOC\n"
MARKS = [b"\t", b" ", b"\r", b"\n\n", b",", b'"', b"-DOCSTART- O\n", b"\xef\xbb\xbf", b"\xed\xa0\x80"]


def endings(path: Path, generated: bool) -> list[ChoiceExample]:
    return chosen(swag.read(path, Skipped(), generated), 4)


def chosen(found: Iterable[ChoiceExample], count: int) -> list[ChoiceExample]:
    listed = list(found)
    for example in listed:
        example.id.encode()
        assert len(example.pairs) == count
        assert all(first.strip() and second.strip() for first, second in example.pairs)
        assert example.label is None or 0 <= example.label < count
    return listed


def tagged(path: Path, options: conll.ReadOptions) -> list[TaggedSentence]:
    listed = list(conll.read(path, Skipped(), options))
    for sentence in listed:
        assert sentence.words and all(sentence.words)
        assert sentence.tags is None or (len(sentence.tags) == len(sentence.words) and all(sentence.tags))
    return listed


# Configurations and vocabularies

MODEL = dataclasses.asdict(ModelConfig(vocab_size=99))
PUBLISHED = {key: MODEL[key] for key in (*architecture.SIZES, *architecture.RATES, "hidden_act")} | {
    "model_type": "bert",
    "layer_norm_eps": 1e-12,
    "id2label": {"0": "no", "1": "yes"},
}
QUESTIONS = {"version": 1, "config": flatten(next(iter(RECIPES.values()))()), "versions": {"python": "3"}}
IMPORTED = {
    "imported": {"origin": "google x", "ignored": ["global_step"], "missing_heads": ["answer_span", "classifier"]},
    "config": flatten(ModelConfig(), "model."),
}
TUNED = {"threshold": -1.25, "exact": 81.5, "f1": 83.0, "total": 7, "dataset": "dev.json", "weights": "0123abcd"}
VOCABULARY = "\n".join([*SPECIAL, "the", "##s", "\u00e9", "\u2028", "\U0001f600"]).encode() + b"\n"


def is_of(value: Any, hint: Any) -> bool:
    """Whether a value is of a field's type; a whole number is also a float."""
    if typing.get_origin(hint) is Literal:
        return value in typing.get_args(hint)
    if hint is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is hint


def of_our_types(path: Path) -> ModelConfig:
    config = ModelConfig.load(path)
    for name, hint in typing.get_type_hints(ModelConfig).items():
        assert is_of(getattr(config, name), hint), name
    return config


def published(path: Path) -> ModelConfig:
    config = architecture.read_architecture(path)
    assert all(type(getattr(config, name)) is int and getattr(config, name) > 0 for name in architecture.SIZES)
    labels = architecture.labels(files.read_object(path), 2, path)
    assert labels is None or (len(labels) == 2 and {*map(type, labels)} == {str})
    return config


def windows(path: Path) -> object:
    found = model._trained_for(Run(path.parent, ModelConfig()))
    assert {type(value) for value in dataclasses.astuple(found.windowing)} == {int}
    assert 5 <= found.length <= ModelConfig.max_position_embeddings
    assert type(found.impossible) is bool
    return found


def finite_threshold(path: Path) -> float:
    value = threshold.load_threshold(path.parent, str(TUNED["weights"]))
    assert value is not None and math.isfinite(value)
    return value


def whole_vocabulary(path: Path) -> list[str]:
    tokens = load_vocab(path)
    assert len(set(tokens)) == len(tokens) and {*SPECIAL} <= {*tokens}
    assert not [token for token in tokens if not token or set(token) & set(" \t\r\f\v\n")]
    return list(tokens)


# Metrics

LINES = [
    {"step": step, "split": split, "loss": 9.5 - step, "mlm_accuracy": 0.125, "tokens_per_second": 1234.5}
    for step, split in ((1, "train"), (2, "train"), (2, "heldout"), (3, "train"))
]
JOURNAL = b"".join(json.dumps(line).encode() + b"\n" for line in LINES)
DAMAGED_JOURNAL = damaged(JOURNAL) | st.lists(damaged_json(LINES[2]), max_size=3).map(b"\n".join)


def gone_on(path: Path) -> object:
    """A run that resumes goes on below the lines that it can read; no content stops it."""
    try:
        log = metrics.Log(path.parent, steps=9, first=2, active=True)
        log.write(3, "train", {"loss": 1.5})
        log.close()
        lines = path.read_text(encoding="utf-8").splitlines()
    except Exception as error:
        raise AssertionError("a journal is never refused") from error
    assert json.loads(lines[-1])["loss"] == 1.5
    assert all(metrics._step_of(line.encode()) <= 2 for line in lines[:-1])
    return lines


def exported_scores(path: Path) -> object:
    """An export takes the scores that it can read; no content stops it."""
    try:
        scores = run._last_lines(path, 10**9)
    except Exception as error:
        raise AssertionError("a journal is never refused") from error
    assert all(isinstance(line["step"], int) and isinstance(line["split"], str) for line in scores)
    return scores


def figures(path: Path) -> object:
    """A report makes figures of the whole lines."""
    found = report.read_metrics(path.parent).figures()
    json.dumps(report.as_json(found), allow_nan=False)
    report.table({"run$": found}).encode()
    return found


# Citations and dumps

CITATIONS = (
    pubmed_xml.xml(
        pubmed_xml.record(1),
        pubmed_xml.record(2, None),
        pubmed_xml.record(3, "<AbstractText>A <i>b</i> &#8211;</AbstractText>"),
        pubmed_xml.deletion(4),
    ).encode(),
    pubmed_xml.xml(
        pubmed_xml.record(5, '<AbstractText Label="AIM">Caf\u00e9 \U0001f41d.</AbstractText>', title="[Two].")
    ).encode(),
)
CITATION_TAGS = (
    *(b"<PubmedArticle>", b"</PubmedArticle>", b"<PMID Version='1'>", b"</PMID>", b"<DeleteCitation>", b"<![CDATA["),
    *(b"<!DOCTYPE a [<!ENTITY b 'c'>]>", b"&b;", b"</PubmedArticleSet>", b"<a xmlns:b=''>", b"<AbstractText Label=''>"),
)
DUMPS = (
    xml().encode(),
    xml(siteinfo="", content=[page(3, "A &amp; B &#8211; &#x110000;", "caf\u00e9 \U0001f41d")]).encode(),
)
DUMP_TAGS = (
    *(b"<page>", b"</page>", b"<title>", b"<id>", b"<ns>", b"<revision>", b"</mediawiki>", b"<!DOCTYPE ", b"&#1;"),
    NUMBER := b"&#" + b"9" * 5000 + b";",
)


def citations(path: Path) -> object:
    """Every citation is listed before it is read."""
    found = list(CitationReader(path).citations())
    for one in found:
        if one.content is not None:
            _document(one, Settings(True, True, "all", b""), Counter(), path).encode()
    assert len(survey(SurveyTask(path, None))) == 8 * len(found)
    return found


def pages(path: Path) -> object:
    """Every page is counted."""
    reader = dump.Reader(path, max_page=100_000)
    found, counts = list(reader.pages()), reader.counts
    assert counts["articles"] == len(found) and counts["rejected"] == len(reader.rejected)
    assert counts["pages"] == sum(counts[kind] for kind in ("articles", "redirects", "other_namespace", "rejected"))
    for one in found:
        assert one.content.startswith(dump.BEGIN) and one.content.endswith(dump.END)
        one.title.encode(), one.content.decode()
    return found


# What is downloaded

DAY = "20261101"
NAMES = [f"enwiki-{DAY}-pages-articles-multistream{part}.bz2" for part in (".xml", "1.xml-p1p9", "2.xml-p10p31")]
STATUS = {
    "jobs": {
        wikimedia.JOB: {
            "status": "done",
            "files": {name: {"size": 7 + len(name), "sha1": "ab" * 20} for name in NAMES},
        }
    }
}
STATUS_TEXT = json.dumps(STATUS).encode()
MIRROR = b'<html><a href="20261101/">20261101/</a> <a href="./20261020/">x</a> <a href="latest/">latest</a></html>'
MEMBERS = {"m/vocab.txt": b"[PAD]\n" * 37, "m/deep/weights": bytes(range(256)), "m/empty": b""}
RECORD = b"".join(json.dumps({"name": name, "sha256": "0" * 64}).encode() + b"\n" for name in "ab")


class Publisher:
    """Stands for the client: the list of a dump's files has the content of a file, or the page above it has."""

    def __init__(self, path: Path, status: bytes | None) -> None:
        self.content, self.status = path.read_bytes(), status

    def read(self, url: str, limit: int) -> bytes:
        return self.content if self.status is None or wikimedia.STATUS not in url else self.status


def dump_files(path: Path) -> object:
    client = cast(Client, Publisher(path, None))
    for _ in range(2):  # the second time from the folder
        date, found = wikimedia.find_dump(client, "", "enwiki", DAY, path.parent)
    listed = wikimedia.article_files("enwiki", date, found, ())
    for file in listed:
        assert Path(file.name).name == file.name and file.size and len(file.digests["sha1"]) == 40
    return listed


def newest_dump(path: Path) -> object:
    (path.parent / wikimedia.STATUS).unlink(missing_ok=True)
    found = wikimedia.find_dump(cast(Client, Publisher(path, STATUS_TEXT)), "", "enwiki", None, path.parent)
    assert len(found[0]) == 8 and found[0].isdecimal()
    return found


def listed_books(path: Path) -> object:
    found = list(catalog.pg19_books("train", path, "http://localhost"))
    assert all(file.name.startswith("train/") and file.name.count("/") == 1 and ".." not in file.name for file in found)
    return found


def hashes(path: Path) -> object:
    known = download_dir._recorded(path.parent.with_suffix(""), path.parent)
    assert all(type(name) is type(sha256) is str for name, sha256 in known.items())
    return known


def zipped(method: int, force_zip64: bool) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        archive.comment = b"of this test" * force_zip64
        for name, body in MEMBERS.items():
            info = zipfile.ZipInfo(name, (2020, 2, 20, 20, 20, 20))
            info.compress_type = method
            with archive.open(info, "w", force_zip64=force_zip64) as member:
                member.write(body)
    return stream.getvalue()


ARCHIVES, UNKNOWN = (
    [zipped(method, force) for method in methods for force in (False, True)]
    for methods in ((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED), (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
)


def unpacked(path: Path) -> object:
    """Nothing but the files of the archive is there afterwards, and nothing at all if it is refused."""
    target, around = path.with_name("target"), path.parents[2]
    before = {one: one.stat().st_size for one in around.rglob("*")}
    try:
        made = {name: (target / name).read_bytes() for name in archives.unpack(path, target)}
        assert sum(map(len, made.values())) < 1 << 20
        shutil.rmtree(target)
    finally:
        assert {one: one.stat().st_size for one in around.rglob("*")} == before
    return made


# Questions and predictions

TEXT = "The \U0001f600 river Rhine is 1,233 km long. Kr\u00f6nungsfest, the end."


def question(number: int, **changes: Any) -> dict[str, Any]:
    answer = {"text": "Rhine", "answer_start": TEXT.index("Rhine")}
    return {"id": f"q{number}", "question": "Which river?", "answers": [answer]} | changes


PARAGRAPHS = [
    {"context": TEXT, "qas": [question(1), question(2, answers=[], is_impossible=True)]},
    {"context": TEXT[::-1], "qas": [question(3, answers=[{"text": "gnol", "answer_start": 0}])]},
]
SET = json.dumps({"version": "v2.0", "data": [{"title": "Rhine", "paragraphs": PARAGRAPHS}]}).encode()
PIECES = b"".join(json.dumps(question(number) | {"context": TEXT}).encode() + b"\n" for number in range(3))
PREDICTIONS = {"q1": "Rhine", "q2": "", "q3": "the end"}
ODDS = {"q1": -3.5, "q2": 7.25, "q3": 0}


def answered(dataset: examples.Dataset) -> examples.Dataset:
    """Every question is accounted for, and every span is in its passage."""
    for text in (*dataset.passages, *(fault.reason for fault in dataset.faults)):
        text.encode()
    for one in dataset.examples:
        f"{one.id}{metric.normalize(one.question)}".encode()
    found = examples.spans(dataset, impossible=True)
    assert len(found.spans) + len(found.dropped) == len(dataset.examples)
    for span in found.spans:
        if span.start >= 0:
            passage = dataset.passages[span.example.passage]
            assert passage[span.start : span.end] == span.example.answers[0].text
    return dataset


def asked(path: Path, strict: bool) -> object:
    found = answered(examples.read_dataset(path, strict=strict))
    assert not (strict and found.faults)
    return found


def asked_by_line(path: Path, strict: bool) -> object:
    return [answered(piece) for piece in examples.read_pieces(path, strict=strict, questions=1)]


def scored(path: Path) -> object:
    """The scores that the command prints of this file, as predictions or as odds beside good predictions."""
    dev, good = path.with_name("set.json"), path.with_name("good.json")
    words = [dev, good, "--na_prob", path] if path.name == "odds.json" else [dev, path]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        metric.main([*map(str, words)])
    scores = json.loads(said.getvalue())
    assert 0 <= scores["exact"] <= scores["f1"] <= 100
    return scores


def questions_beside(folder: Path) -> None:
    (folder / "set.json").write_bytes(SET)
    (folder / "good.json").write_text(json.dumps(PREDICTIONS))


# Folders of transformers

WEIGHTS = "model.safetensors"
INDEX = {"metadata": {"total_size": 99}, "weight_map": {"a": "part.safetensors", "b": "part.safetensors"}}
TOKENS = {token: number for number, token in enumerate(folders.vocabulary(folders.SMALL))}
TOKENIZER = json.loads(BertWordPieceTokenizer(vocab=TOKENS).to_str())


def made_folder() -> dict[str, bytes]:
    """Return the files of a folder of transformers."""
    with tempfile.TemporaryDirectory(prefix="theirs") as folder:
        folders.their_folder(Path(folder) / "theirs")
        return {path.name: path.read_bytes() for path in (Path(folder) / "theirs").iterdir()}


THEIRS = made_folder()
HEADER = 8 + struct.unpack("<Q", THEIRS[WEIGHTS][:8])[0]


def theirs(*left_out: str, part: bool = False) -> Callable[[Path], object]:
    """Return a function that writes the folder, with the weights as one of several files if asked."""

    def write(folder: Path) -> None:
        for name, content in THEIRS.items():
            if name not in left_out:
                (folder / ("part.safetensors" if part and name == WEIGHTS else name)).write_bytes(content)

    return write


QUERY = "base_model.model.encoder.layer.0.attention.self.query"
ADAPTER = {
    peft.CONFIG: json.dumps(
        {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "task_type": None, "use_dora": False}
    ).encode(),
    peft.WEIGHTS: save(
        {
            f"{QUERY}.lora_A.weight": np.ones((2, folders.SMALL.hidden_size), np.float32),
            f"{QUERY}.lora_B.weight": np.ones((folders.SMALL.hidden_size, 2), np.float32),
        }
    ),
}


def adapter(folder: Path) -> None:
    """The files of an adapter, and the run of its base."""
    (folder / "theirs").mkdir()
    theirs()(folder / "theirs")
    (folder / "base").mkdir()
    run.write_model(huggingface.read_model(folder / "theirs"), folder / "base")
    for name, content in ADAPTER.items():
        (folder / name).write_bytes(content)


def adapted(path: Path) -> object:
    """The updates have the shapes of the base."""
    peft.input_files(path.parent)
    found = peft.read_model(path.parent, "auto", path.parent / "base")
    assert all(np.isfinite(value).all() for value in found.updates.values())
    assert {"layer_0/attention/query/lora_a", "layer_0/attention/query/lora_b"} <= found.updates.keys()
    return found


def imported(path: Path) -> object:
    """The values have their shapes and are finite."""
    huggingface.input_files(path.parent)
    found = huggingface.read_model(path.parent)
    assert isinstance(found, huggingface.Model) and len(found.vocab) == found.config.vocab_size
    for weight in found.match.weights:
        assert found.values[weight.ours].shape == weight.shape
        assert np.isfinite(found.values[weight.ours]).all()
    return found


def with_header(header: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + THEIRS[WEIGHTS][HEADER:]


def settings(name: str) -> Any:
    more = {"architectures": ["BertForPreTraining"], "id2label": {"0": "x"}}
    return json.loads(THEIRS.get(name, b'{"do_lower_case": true}')) | more


READERS = {
    "a passage of RACE": Reader(
        "dev/high/1.txt",
        lambda path: chosen(race.read(path.parents[2], "dev", ("high",), Skipped()), 4),
        *of_json(PASSAGE),
    ),
    **{
        f"rows of SWAG, {generated=}": Reader(
            "train.csv",
            functools.partial(endings, generated=generated),
            [SWAG.encode()],
            damaged(SWAG.encode(), MARKS),
        )
        for generated in (True, False)
    },
    "choices": Reader(
        "dev.jsonl",
        lambda path: chosen(choices.read(path, Skipped()), 3),
        [json.dumps(CHOICE).encode()],
        damaged_json(CHOICE).map(lambda line: json.dumps(CHOICE).encode() + b"\n" + line),
    ),
    **{
        f"tagged sentences, {number}": Reader(
            "train.txt",
            functools.partial(tagged, options=options),
            [CONLL.encode()] if number == 0 else [],
            damaged(CONLL.encode(), MARKS),
        )
        for number, options in enumerate(
            (
                conll.ReadOptions(),
                conll.ReadOptions(separator="tab", tags=False),
                conll.ReadOptions(separator="space", word="1", tag="0"),
            )
        )
    },
    "our architecture": Reader("bert_config.json", of_our_types, *of_json(MODEL), slow=True),
    "their architecture": Reader("config.json", published, *of_json(PUBLISHED), longest=5000, slow=True),
    "windows of a run": Reader("config.json", windows, *of_json(QUESTIONS), slow=True),
    "windows of an import": Reader("config.json", windows, *of_json(IMPORTED), slow=True),
    "a threshold": Reader(threshold.NAME, finite_threshold, *of_json(TUNED), slow=True),
    "a vocabulary": Reader("vocab.txt", whole_vocabulary, [VOCABULARY], damaged(VOCABULARY) | st.binary(max_size=40)),
    "the journal of a run that resumes": Reader(journal.NAME, gone_on, [JOURNAL], DAMAGED_JOURNAL),
    "the journal of a report": Reader(journal.NAME, figures, [JOURNAL], DAMAGED_JOURNAL),
    "the journal of an export": Reader(journal.NAME, exported_scores, [JOURNAL], DAMAGED_JOURNAL),
    "citations": Reader(
        "pubmed.xml",
        citations,
        CITATIONS,
        damaged(CITATIONS, CITATION_TAGS),
        [
            CITATIONS[0].replace(b"Moss", text)
            for text in (
                b"<i>" * 200_000,
                b"<i>" * 200_000 + b"Moss" + b"</i>" * 200_000,
                b"&amp;#" + b"9" * 5000 + b";",
            )
        ],
    ),
    "compressed citations": Reader(
        "pubmed.xml.gz", citations, packed := [*map(gzip.compress, CITATIONS)], damaged(packed)
    ),
    "a dump": Reader(
        "dump.xml",
        pages,
        DUMPS,
        damaged(DUMPS, DUMP_TAGS),
        [
            DUMPS[0].replace(b"<title>Blank", b"<title>" + NUMBER),
            DUMPS[0].replace(b"<id>23<", b"<id>" + b"2" * 5000 + b"<"),
        ],
    ),
    "a compressed dump": Reader("dump.xml.bz2", pages, packed := [*map(bz2.compress, DUMPS)], damaged(packed)),
    "the files of a dump": Reader(
        wikimedia.STATUS,
        dump_files,
        [STATUS_TEXT],
        damaged(STATUS_TEXT, HARD) | damaged_json(STATUS),
        [
            b'{"jobs": ' + DEEP,
            STATUS_TEXT.replace(b'"' + b"ab" * 20 + b'"', b"7"),
            STATUS_TEXT.replace(b"p10p31", b"p10p" + b"3" * 5000),
            json.dumps({"jobs": {wikimedia.JOB: {"status": "done", "files": 7}}}).encode(),
        ],
    ),
    "the page of a mirror": Reader("enwiki", newest_dump, [MIRROR], damaged(MIRROR) | st.binary(max_size=60)),
    "a list of books": Reader("train_files.list", listed_books, [], damaged(b"train/10.txt\ntrain/7.txt\n123\n")),
    "the hashes of a download": Reader(f"out.incoming/{download_dir.RECORD}", hashes, [RECORD], damaged(RECORD)),
    "an archive": Reader(
        "around/inside/a.zip",
        unpacked,
        ARCHIVES,
        damaged([*ARCHIVES, *UNKNOWN]),
        [*UNKNOWN, b"", b"PK\5\6" + bytes(18), b"PK\5\6" + b"\xff" * 18],
    ),
    **{
        f"questions, {strict=}": Reader(
            "dev.json",
            functools.partial(asked, strict=strict),
            [SET],
            damaged_json(json.loads(SET)) | damaged(SET, HARD),
            [SET.replace(b'"q1"', b'"' + b"q" * 9999 + b'"').replace(b"question", b"questions")],
        )
        for strict in (False, True)
    },
    **{
        f"questions by line, {strict=}": Reader(
            "dev.jsonl",
            functools.partial(asked_by_line, strict=strict),
            [PIECES],
            damaged(PIECES, HARD) | damaged_json(question(1) | {"context": TEXT}),
            [b'{"id": "a", ' + b", ".join(b'"k%d": 1' % number for number in range(999)) + b"}"],
        )
        for strict in (False, True)
    },
    **{
        name: Reader(
            f"{name}.json",
            scored,
            [json.dumps(good).encode()],
            damaged_json(good) | damaged(json.dumps(good).encode(), HARD),
            beside=questions_beside,
        )
        for name, good in (("predictions", PREDICTIONS), ("odds", ODDS))
    },
    "safetensors": Reader(
        WEIGHTS,
        imported,
        [THEIRS[WEIGHTS]],
        damaged(THEIRS[WEIGHTS][: HEADER + 8]).map(lambda begin: begin + THEIRS[WEIGHTS][HEADER + 8 :])
        | damaged_json(json.loads(THEIRS[WEIGHTS][8:HEADER])).map(with_header),
        beside=theirs(),
        slow=True,
    ),
    **{
        f"{name} of peft": Reader(name, adapted, [ADAPTER[name]], damage, beside=adapter, slow=True)
        for name, damage in (
            (peft.CONFIG, damaged_json(json.loads(ADAPTER[peft.CONFIG]))),
            (peft.WEIGHTS, damaged(ADAPTER[peft.WEIGHTS])),
        )
    },
    "an index of safetensors": Reader(
        huggingface.INDEX, imported, *of_json(INDEX), beside=theirs(part=True), slow=True
    ),
    "a tokenizer": Reader(
        "tokenizer.json",
        imported,
        [json.dumps(TOKENIZER).encode()],
        damaged_json(TOKENIZER) | damaged_json({"model": TOKENIZER["model"]}),
        beside=theirs("vocab.txt"),
        slow=True,
    ),
    **{
        f"{name} beside weights": Reader(
            name, imported, *of_json(settings(name)), beside=theirs(), disagrees=True, slow=True
        )
        for name in ("config.json", huggingface.TOKENIZER_CONFIG)
    },
}


def tried(reader: Reader, path: Path, content: bytes) -> object:
    """Return what is read of a content, or None if it is refused by a line of bounded length that names it."""
    path.write_bytes(content)

    def read() -> object:
        try:
            return reader.read(path)
        except AssertionError:
            raise
        except Exception as error:
            named = path.parent if reader.disagrees else path.name
            assert len(str(error)) < reader.longest and str(named) in str(error)
            raise

    return survives(read)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * reader.slow) for name, reader in READERS.items()]
)
def test_a_damaged_file_is_refused_or_read_right(name: str, tmp_path: Path) -> None:
    reader, path = READERS[name], tmp_path / READERS[name].file
    path.parent.mkdir(parents=True, exist_ok=True)
    reader.beside(tmp_path)
    for content in reader.good:
        assert tried(reader, path, content) is not None
    for content in reader.hard:
        tried(reader, path, content)

    @given(content=reader.damage)
    @fuzz
    def check(content: bytes) -> None:
        tried(reader, path, content)

    check()
