"""The invented corpus is in the formats of the real ones, the same each time, and its questions need reading."""

import bz2
import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bert.core.errors import UsageError
from data.synthetic import __main__ as synthetic
from data.synthetic import grammar
from data.synthetic.grammar import ARTICLE, RELATIONS
from data.wiki import dump, extractor

SIZES = {"articles": 23, "books": 3, "train_questions": 301, "dev_questions": 97}
EXPORT = "{http://www.mediawiki.org/xml/export-0.11/}"
LAST = [last for kind in grammar.LAST.values() for last in kind]
NAME = re.compile(rf"\b(?:{'|'.join(grammar.FIRST)})(?:{'|'.join(LAST)})\b", re.I)


def made(folder: Path, **changes: int) -> Path:
    folder.mkdir()
    synthetic.write(folder, synthetic.Options(output=folder, **(SIZES | changes)))
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("synthetic") / "corpus")


def content(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def questions(path: Path) -> list[tuple[str, dict]]:
    dataset = json.loads(path.read_text())
    assert dataset["version"] == "1.1"
    return [(p["context"], qa) for title in dataset["data"] for p in title["paragraphs"] for qa in p["qas"]]


def test_same_seed_same_bytes_other_seed_other_text(corpus, tmp_path):
    assert content(made(tmp_path / "again")) == content(corpus)
    other = content(made(tmp_path / "other", seed=8))
    assert other.keys() == content(corpus).keys()
    assert all(other[name] != digest for name, digest in content(corpus).items())


def test_dump_is_well_formed_xml_with_the_articles_asked_for(corpus):
    kinds: Counter[tuple[str | None, bool]] = Counter()
    ids, titles = [], []
    with bz2.open(corpus / "wiki.xml.bz2") as stream:
        for _, element in ElementTree.iterparse(stream):
            if element.tag == f"{EXPORT}page":
                redirect = element.find(f"{EXPORT}redirect") is not None
                kinds[element.findtext(f"{EXPORT}ns"), redirect] += 1
                ids.append(element.findtext(f"{EXPORT}id"))
                titles.append(element.findtext(f"{EXPORT}title"))
                assert element.findtext(f"{EXPORT}revision/{EXPORT}text")
    assert kinds["0", False] == SIZES["articles"]
    assert kinds["0", True] > 0 and kinds["10", False] > 0 and kinds["14", False] > 0
    assert len(set(ids)) == len(ids) and len(set(titles)) == len(titles)


def test_wikiextractor_digests_the_dump(corpus):
    articles = list(extractor.extract(dump.Reader(corpus / "wiki.xml.bz2"), 1, 60))
    assert len(articles) == SIZES["articles"]
    for article in articles:
        paragraphs = [line for line in article.text.splitlines() if line.count(".") > 2]
        assert len(paragraphs) == synthetic.PARAGRAPHS
        assert not re.search(r"\[\[|\{\{|'''|<ref|Survey", article.text)


def test_books_are_wrapped_text(corpus):
    books = sorted((corpus / "books").glob("*.txt"))
    assert len(books) == SIZES["books"]
    assert all(len(line) <= synthetic.WRAP for book in books for line in book.read_text().splitlines())


@pytest.mark.parametrize("split", ["train", "dev"])
def test_every_answer_stands_at_its_offset(corpus, split):
    asked = questions(corpus / f"{split}.json")
    assert len(asked) == SIZES[f"{split}_questions"]
    assert len({qa["id"] for _, qa in asked}) == len(asked)
    for context, qa in asked:
        assert 1 <= len(qa["answers"]) <= 3
        for answer in qa["answers"]:
            assert context[answer["answer_start"] :].startswith(answer["text"])


def test_no_name_of_dev_occurs_anywhere_else(corpus):
    def names(text: str) -> set[str]:
        return {name.lower() for name in NAME.findall(text)}

    elsewhere = [bz2.decompress((corpus / "wiki.xml.bz2").read_bytes()).decode(), (corpus / "train.json").read_text()]
    elsewhere += [book.read_text() for book in (corpus / "books").glob("*.txt")]
    dev = names((corpus / "dev.json").read_text())
    assert len(dev) > 50
    assert not dev & names("\n".join(elsewhere))


def reader(template: str) -> re.Pattern[str]:
    """A statement or question turned round: what was put into it."""
    return re.compile(re.escape(template).replace(r"\{s\}", "(?P<s>.+)").replace(r"\{o\}", "(?P<o>.+)"), re.I)


def facts_in(context: str) -> set[tuple[int, str, str]]:
    """What a passage says, read sentence by sentence: relation, subject, object."""
    found = set()
    for sentence in re.findall(r"[^.]+\.", context):
        for number, relation in enumerate(RELATIONS):
            for statement in relation.statements:
                if match := reader(statement).fullmatch(sentence.strip()):
                    found.add((number, bare(match["s"]), bare(match["o"])))
    return found


def bare(name: str) -> str:
    return re.sub("^(?:the|its) ", "", name.lower())


@pytest.mark.parametrize("split", ["train", "dev"])
def test_a_question_has_one_right_answer_that_relation_and_sometimes_thing_decide(corpus, split):
    needs_relation = needs_thing = 0
    asked = questions(corpus / f"{split}.json")
    for context, qa in asked:
        facts, right, gold = facts_in(context), set(), bare(qa["answers"][0]["text"])
        for number, relation in enumerate(RELATIONS):
            for question in relation.ask_object + relation.ask_subject:
                if match := reader(question).fullmatch(qa["question"]):
                    given, known = ("s", 1) if "{s}" in question else ("o", 2)
                    hits = [fact for fact in facts if fact[0] == number and fact[known] == bare(match[given])]
                    right |= {fact[3 - known] for fact in hits}
                    needs_thing += len({fact[3 - known] for fact in facts if fact[0] == number}) > 1
                    needs_relation += len({fact[3 - known] for fact in facts if fact[known] == bare(match[given])}) > 1
        assert right == {gold}, (context, qa)
    assert needs_thing > len(asked) / 20
    assert needs_relation > len(asked) / 2  # the others ask for the subject, of which a name gives only one


def test_statements_and_articles_of_a_kind_agree():
    assert set(ARTICLE) <= set(grammar.KINDS)
    statements = [statement for relation in RELATIONS for statement in relation.statements]
    assert all(statement.count("{s}") == statement.count("{o}") == 1 for statement in statements)


@pytest.mark.parametrize("name", [*SIZES, "seed"])
def test_a_size_below_one_is_refused(name, tmp_path):
    with pytest.raises(UsageError, match=name):
        synthetic.Options(output=tmp_path, **{name: -1})
