"""Texts of twelve languages, from a dump to tokens: nothing is lost, and each step does what other programs do.

The texts are invented: each is of a mill at a river, who built it, and that nobody knows.
"""

import json
from typing import NamedTuple

import pytest
from nltk import data as nltk_data
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from bert.text.normalization import TokenizerConfig
from bert.text.wordpiece import WordPiece
from data.vocab import train
from tests.wiki_dump import page


class Wiki(NamedTuple):
    """What a wiki of a language has, and a text of paragraphs and sentences."""

    file: str  # its name of the namespace of files
    magic: str  # its word for __NOTOC__
    heading: str
    paragraphs: list[list[str]]

    @property
    def sentences(self) -> list[str]:
        return [sentence for paragraph in self.paragraphs for sentence in paragraph]

    def text(self, code: str) -> list[str]:
        """The paragraphs as lines; sentences have spaces between them where the language has some."""
        return [("" if code in ("zh", "ja") else " ").join(paragraph) for paragraph in self.paragraphs]


WIKIS = {
    "de": Wiki(
        "Datei",
        "__KEIN_INHALTSVERZEICHNIS__",
        "Name",
        [["Die M\xfchle steht am Flu\xdf.", "Sie wurde 1945 zerst\xf6rt."], ["Wer baute sie?"]],
    ),
    "fr": Wiki(
        "Fichier",
        "__AUCUNSOMMAIRE__",
        "Nom",
        [["Le moulin est pr\xe8s de la rivi\xe8re.", "O\xf9 est l'\xe9t\xe9 ?"], ["Personne ne le sait."]],
    ),
    "ru": Wiki(
        "\u0424\u0430\u0439\u043b",
        "__\u0411\u0415\u0417_\u041e\u0413\u041b\u0410\u0412\u041b\u0415\u041d\u0418\u042f__",
        "\u0418\u043c\u044f",
        [
            [
                "\u0412\u043e\u0442 \u043c\u0435\u043b\u044c\u043d\u0438\u0446\u0430.",
                "\u0415\u0439 145 \u043b\u0435\u0442.",
            ],
            ["\u041a\u0442\u043e \u0435\u0451 \u0441\u0442\u0440\u043e\u0438\u043b?"],
        ],
    ),
    "el": Wiki(
        "\u0391\u03c1\u03c7\u03b5\u03af\u03bf",
        "__\u03a7\u03a9\u03a1\u0399\u03a3\u03a0\u03a0__",
        "\u038c\u03bd\u03bf\u03bc\u03b1",
        [
            [
                "\u039d\u03b1 \u03bf \u03bc\u03cd\u03bb\u03bf\u03c2.",
                "\u03a0\u03bf\u03b9\u03bf\u03c2 \u03ad\u03c7\u03c4\u03b9\u03c3\u03b5;",
                "\u0386\u03b3\u03bd\u03c9\u03c3\u03c4\u03bf.",
            ],
            ["\u03a0\u03b1\u03bb\u03b9\u03cc\u03c2 \u039c\u03cd\u03bb\u03bf\u03c2."],
        ],
    ),
    "tr": Wiki(
        "Dosya",
        "__\u0130\xc7\u0130NDEK\u0130LERYOK__",
        "Ad",
        [
            ["De\u011firmen \u0131rma\u011f\u0131n yan\u0131nda.", "\u0130stanbul uzakt\u0131r."],
            ["Onu kim yapt\u0131?"],
        ],
    ),
    "ar": Wiki(
        "\u0645\u0644\u0641",
        "__\u0644\u0627\u0641\u0647\u0631\u0633__",
        "\u0627\u0633\u0645",
        [
            [
                "\u0627\u0644\u0637\u0627\u062d\u0648\u0646\u0629 \u0642\u062f\u064a\u0645\u0629.",
                "\u0645\u0646 \u0628\u0646\u0627\u0647\u0627\u061f",
                "\u0644\u0627 \u0623\u062d\u062f \u064a\u0639\u0631\u0641.",
            ],
            ["\u0644\u0627 \u0634\u064a\u0621."],
        ],
    ),
    "fa": Wiki(
        "\u067e\u0631\u0648\u0646\u062f\u0647",
        "__\u0628\u06cc\u200c\u0641\u0647\u0631\u0633\u062a__",
        "\u0646\u0627\u0645",
        [
            [
                "\u0622\u0633\u06cc\u0627\u0628 \u0642\u062f\u06cc\u0645 \u0627\u0633\u062a.",
                "\u0686\u0647 \u06a9\u0633\u06cc \u0622\u0646 \u0631\u0627 \u0633\u0627\u062e\u062a\u061f",
            ],
            ["\u0646\u0645\u06cc\u200c\u062f\u0627\u0646\u06cc\u0645."],
        ],
    ),
    "hi": Wiki(
        "\u091a\u093f\u0924\u094d\u0930",
        "__\u0935\u093f\u0937\u092f_\u0938\u0942\u091a\u0940_\u0939\u0940\u0928__",
        "\u0928\u093e\u092e",
        [
            [
                "\u091a\u0915\u094d\u0915\u0940 \u0928\u0926\u0940 \u0915\u0947 \u092a\u093e\u0938 \u0939\u0948\u0964",
                "\u0907\u0938\u0947 \u0915\u093f\u0938\u0928\u0947 \u092c\u0928\u093e\u092f\u093e?",
            ],
            ["\u0915\u094b\u0908 \u0928\u0939\u0940\u0902 \u091c\u093e\u0928\u0924\u093e\u0964"],
        ],
    ),
    "th": Wiki(
        "\u0e44\u0e1f\u0e25\u0e4c",
        "__\u0e44\u0e21\u0e48\u0e21\u0e35\u0e2a\u0e32\u0e23\u0e1a\u0e31\u0e0d__",
        "\u0e0a\u0e37\u0e48\u0e2d",
        [
            [
                "\u0e42\u0e23\u0e07\u0e2a\u0e35\u0e2d\u0e22\u0e39\u0e48\u0e23\u0e34\u0e21\u0e41\u0e21\u0e48\u0e19\u0e49\u0e33"
            ],
            ["\u0e44\u0e21\u0e48\u0e21\u0e35\u0e43\u0e04\u0e23\u0e23\u0e39\u0e49"],
        ],
    ),
    "zh": Wiki(
        "\u6587\u4ef6",
        "__\u65e0\u76ee\u5f55__",
        "\u540d\u79f0",
        [
            ["\u78e8\u574a\u5728\u6cb3\u8fb9\u3002", "\u8c01\u5efa\u7684\uff1f"],
            ["\u6ca1\u6709\u4eba\u77e5\u9053\u3002"],
        ],
    ),
    "ja": Wiki(
        "\u30d5\u30a1\u30a4\u30eb",
        "__\u76ee\u6b21\u975e\u8868\u793a__",
        "\u540d\u524d",
        [
            [
                "\u6c34\u8eca\u306f\u5ddd\u306e\u305d\u3070\u306b\u3042\u308b\u3002",
                "\u8ab0\u304c\u5efa\u3066\u305f\u306e\u304b\uff1f",
            ],
            ["\u300c\u77e5\u3089\u306a\u3044\u3002\u300d"],
        ],
    ),
    "ko": Wiki(
        "\ud30c\uc77c",
        "__\ubaa9\ucc28\uc228\uae40__",
        "\uc774\ub984",
        [
            ["\ubc29\uc557\uac04\uc740 \uac15\uac00\uc5d0 \uc788\ub2e4.", "\ub204\uac00 \uc9c0\uc5c8\uc744\uae4c?"],
            ["\uc544\ubb34\ub3c4 \ubaa8\ub978\ub2e4."],
        ],
    ),
}
RULES = {
    "lower": TokenizerConfig(),
    "cased": TokenizerConfig(lower_case=False, strip_accents=False),
    "accents": TokenizerConfig(strip_accents=False),
}


def dumped(code: str) -> str:
    wiki = WIKIS[code]
    first, *others = wiki.text(code)
    namespace = f'<namespace key="6" case="first-letter">{wiki.file}</namespace>'
    text = (
        f"{wiki.magic}\n[[{wiki.file}:a.jpg|thumb|[[{wiki.heading}]]]]\n{first}<ref>{wiki.heading}</ref>\n\n"
        f"=== {wiki.heading} ===\n" + "\n\n".join(others) + "\n[[en:Mill]]"
    )
    siteinfo = f"<siteinfo>\n<namespaces>\n{namespace}\n</namespaces>\n</siteinfo>\n"
    return f'<mediawiki xml:lang="{code}">\n{siteinfo}{page(1, wiki.heading, text)}</mediawiki>\n'


@pytest.mark.slow
@pytest.mark.parametrize("code", WIKIS)
def test_every_paragraph_and_sentence_of_a_dump_stays_and_no_markup(tmp_path, stage, read, code):
    (tmp_path / "dump.xml").write_text(dumped(code), encoding="utf-8")
    assert stage("wikipedia", "--source", tmp_path / "dump.xml", "--output", tmp_path / "wiki", "--workers", 1)[0] == 0
    assert read(tmp_path / "wiki")[0]["text"].split("\n") == WIKIS[code].text(code)
    command = ("--source", tmp_path / "wiki", "--output", tmp_path / "out", "--minimum_characters", 0, "--workers", 1)
    assert stage("documents", *command)[0] == 0
    assert read(tmp_path / "out")[0]["sentences"] == WIKIS[code].sentences
    assert (
        stage("shards", "--source", tmp_path / "out", "--output", tmp_path / "shards", "--held_out_fraction", 0.001)[0]
        == 0
    )
    for made in ("wiki", "out", "shards"):
        assert json.loads((tmp_path / made / "manifest.json").read_text())["extra"]["language"] == code


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("code", WIKIS)
def test_a_vocabulary_trained_on_a_language_gives_the_tokens_of_hugging_face(code, name):
    rules, sentences = RULES[name], WIKIS[code].sentences
    vocabulary = train(lambda: sentences * 3, 300, rules)
    theirs = Tokenizer(models.WordPiece({token: n for n, token in enumerate(vocabulary)}, unk_token="[UNK]"))
    theirs.normalizer = normalizers.BertNormalizer(lowercase=rules.lower_case, strip_accents=rules.strip_accents)
    theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ids, _ = WordPiece(vocabulary, rules).encode(sentences)
    assert list(ids) == [n for sentence in sentences for n in theirs.encode(sentence, add_special_tokens=False).ids]
    assert vocabulary.index("[UNK]") not in ids


def test_a_language_that_contradicts_the_dump_or_the_source_is_refused_by_name(tmp_path, stage):
    (tmp_path / "dump.xml").write_text(dumped("de"), encoding="utf-8")
    source = ("--source", tmp_path / "dump.xml", "--output", tmp_path / "wiki", "--workers", 1)
    code, lines = stage("wikipedia", *source, "--language", "fr")
    assert (code, len(lines)) == (3, 1) and "its language is de, not --language fr" in lines[0]
    assert stage("wikipedia", *source, "--language", "de-AT")[0] == 2
    assert stage("wikipedia", *source, "--language", "de-at")[0] == 0
    code, lines = stage("documents", "--source", tmp_path / "wiki", "--output", tmp_path / "out", "--language", "el")
    assert code == 3 and "its language is de-at, not --language el" in lines[-1] and not (tmp_path / "out").exists()


def test_an_installed_model_of_a_given_language_is_taken_and_of_another_is_named(tmp_path, stage, read, monkeypatch):
    model = tmp_path / "nltk" / "tokenizers" / "punkt_tab" / "german"
    model.mkdir(parents=True)
    for name, content in {"abbrev_types.txt": "bzw\n", "collocations.tab": "", "sent_starters.txt": ""}.items():
        (model / name).write_text(content)
    (model / "ortho_context.tab").write_text("")
    monkeypatch.setattr(nltk_data, "path", [str(tmp_path / "none"), str(tmp_path / "nltk")])
    (tmp_path / "a.txt").write_text("Das Rad bzw. Das Wehr ist alt. Es steht noch.\n")
    told = {}
    for language in ("de", "fr"):
        source, made = tmp_path / f"text-{language}", ("--minimum_characters", 0, "--workers", 1)
        assert stage("text", "--source", tmp_path / "a.txt", "--output", source, "--language", language)[0] == 0
        out = tmp_path / f"out-{language}"
        code, lines = stage("documents", "--source", source, "--output", out, "--language", language, *made)
        assert code == 0
        told[language] = lines[-2]
    assert "german" in told["de"] and "trained on the text" in told["fr"]
    assert read(tmp_path / "out-de")[0]["sentences"] == ["Das Rad bzw. Das Wehr ist alt.", "Es steht noch."]
    code, lines = stage("documents", "--source", tmp_path / "text-de", "--output", tmp_path / "out", *made)
    assert code == 0 and "trained on the text" in lines[-2] and "--language de takes it" in lines[-2]
