"""Encodings: Unicode and Western European text are read, everything else is refused by name, never guessed."""

from pathlib import Path

import pytest

from bert.core.errors import UsageError
from data.pipeline import decoding

WESTERN = {
    "english": "It was a \u201cfine\u201d day \u2014 the doctor\u2019s house\u2026 caf\xe9.",
    "french": "O\xf9 est la biblioth\xe8que ? L\u2019\xe9l\xe8ve a mang\xe9 des cr\xeapes \xe0 No\xebl, \xe7a va.",
    "german": "Die Stra\xdfe ist gro\xdf, die \xdcbung sch\xf6n f\xfcr M\xe4dchen.",
    "spanish": "\xbfC\xf3mo est\xe1 el ni\xf1o? \xa1Qu\xe9 sorpresa!",
    "portuguese": "N\xe3o \xe9 mau, s\xe3o cora\xe7\xf5es e emo\xe7\xf5es.",
    "swedish": "\xc5sa \xe5ker till sj\xf6n f\xf6r att bada.",
}
RUSSIAN = "\u0420\u0435\u043a\u0430 \u0442\u0435\u0447\u0451\u0442 \u0447\u0435\u0440\u0435\u0437."
OTHERS = {
    "cp1251": RUSSIAN,
    "koi8-r": RUSSIAN,
    "iso8859-2": "Dzi\u015b jest pi\u0119kny dzie\u0144, \u0142\xf3d\u017a p\u0142yn\u0119\u0142a.",
    "cp1250": "A foly\xf3 \xe1tfolyik, j\xf3 id\u0151 volt, eg\xe9sz nap s\xe9t\xe1ltunk.",
    "cp1254": "Bug\xfcn hava \xe7ok g\xfczel, \u015fehirde a\u011fa\xe7lar alt\u0131nda.",
    "cp1253": "\u039f \u03c0\u03bf\u03c4\u03b1\u03bc\u03cc\u03c2 \u03c0\u03b5\u03c1\u03bd\u03ac.",
    "cp1256": "\u0647\u0630\u0627 \u0643\u062a\u0627\u0628 \u062c\u062f\u064a\u062f.",
    "cp1255": "\u05d4\u05e0\u05d4\u05e8 \u05d6\u05d5\u05e8\u05dd \u05d3\u05e8\u05da \u05d4\u05e2\u05d9\u05e8.",
    "cp874": "\u0e41\u0e21\u0e48\u0e19\u0e49\u0e33\u0e44\u0e2b\u0e25\u0e1c\u0e48\u0e32\u0e19",
    "gb18030": "\u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002\u6211\u4eec\u53bb\u516c\u56ed\u6563\u6b65\uff01",
    "big5": "\u4eca\u5929\u5929\u6c23\u5f88\u597d\u3002\u6211\u5011\u53bb\u516c\u5712\u6563\u6b65\uff01",
    "shift_jis": "\u4eca\u65e5\u306f\u5929\u6c17\u304c\u3044\u3044\u3067\u3059\u3002",
    "euc_jp": "\u4eca\u65e5\u306f\u5929\u6c17\u304c\u3044\u3044\u3067\u3059\u3002",
    "cp949": "\uc624\ub298 \ub0a0\uc528\uac00 \uc88b\uc2b5\ub2c8\ub2e4.",
    "iso8859-15": "Le c\u0153ur de la s\u0153ur bat fort \xe0 l'\u0153uvre.",
    "cp850": "L'\xe9l\xe8ve a mang\xe9 des cr\xeapes \xe0 No\xebl.",
    "mac_roman": "L'\xe9l\xe8ve a mang\xe9 des cr\xeapes \xe0 No\xebl.",
}


@pytest.mark.parametrize("language", WESTERN)
def test_western_european_text_is_read(language: str, tmp_path: Path) -> None:
    path, text = tmp_path / "a.txt", WESTERN[language] * 3
    path.write_bytes(text.encode("cp1252"))
    assert decoding.detect(path) == "cp1252"
    with decoding.open_text(path, "cp1252") as stream:
        assert stream.read() == text


@pytest.mark.parametrize("encoding", OTHERS)
def test_other_encodings_are_refused_and_read_when_named(encoding: str, tmp_path: Path) -> None:
    path, text = tmp_path / "a.txt", f"{OTHERS[encoding]} " * 9
    path.write_bytes(text.encode(encoding))
    with pytest.raises(ValueError, match=r"not Unicode; it may be .*; give --encoding"):
        decoding.detect(path)
    with decoding.open_text(path, encoding) as stream:
        assert stream.read() == text
    path.write_bytes(text.encode())
    assert decoding.detect(path) == "utf-8"


def test_japanese_of_seven_bits_is_refused_and_read_when_named(tmp_path: Path) -> None:
    """Its bytes are ASCII, so they would be valid UTF-8: "$B:#F|" for the first two ideographs."""
    path, text = tmp_path / "a.txt", "\u4eca\u65e5\u306f\u5929\u6c17\u304c\u3044\u3044\u3067\u3059\u3002\n" * 9
    for encoding in ("iso2022_jp", "iso2022_jp_2", "iso2022_jp_ext"):
        path.write_bytes(f"Subject: river\n{text}".encode(encoding))
        with pytest.raises(ValueError, match=r"not Unicode; it may be iso2022_jp.*; give --encoding"):
            decoding.detect(path)
        with decoding.open_text(path, encoding) as stream:
            assert stream.read() == f"Subject: river\n{text}"
    path.write_text("A terminal writes \x1b[1mbold\x1b(B\x1b[m text.")
    assert decoding.detect(path) == "utf-8"


def test_an_english_text_with_a_few_words_of_another_encoding_is_refused(tmp_path: Path) -> None:
    text = "The word for China is \u4e2d\u56fd and the river is called \u957f\u6c5f. It flows through many cities. "
    (tmp_path / "a.txt").write_bytes((text * 9).encode("gb18030"))
    with pytest.raises(ValueError, match="gb18030"):
        decoding.detect(tmp_path / "a.txt")


def test_text_that_is_not_in_the_named_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff\xff river")
    with (
        pytest.raises(ValueError, match="not in the encoding gb18030"),
        decoding.open_text(tmp_path / "a.txt", "gb18030") as stream,
    ):
        stream.read()
    decoding.check("gb18030")
    for name in ("klingon", "base64", "rot13"):
        with pytest.raises(UsageError, match=f"--encoding {name}: no encoding of text"):
            decoding.check(name)
