"""Templates show what their documentation says; what is not known of them is dropped with its sentence and counted."""

import html
import json
import re
from pathlib import Path

import pytest

from data import wikipedia
from data.wiki import templates, wikitext
from tests.wiki_dump import page, xml

LANGUAGES = "en fr de es it pt nl pl cs sv ru uk el tr ar he fa hi ja ko zh ca"
TABLE = Path(templates.__file__).with_name("templates.tsv")

SHOWN = [
    line.split("\t")
    for line in Path(__file__).with_name("templates_shown.tsv").read_text("utf-8").splitlines()
    if not line.startswith("#")
]


def shown(text: str, language: str) -> str:
    content = f"<page><title>T</title><ns>0</ns><text>{html.escape(text, quote=False)}</text></page>"
    prepared = wikitext.prepared(content.encode(), set(), "keep", templates.load((language,))).content.decode()
    return html.unescape(prepared.partition("<text>")[2].partition("</text>")[0])


@pytest.mark.parametrize(("language", "text", "right"), SHOWN)
def test_templates_show_what_their_documentation_says(language: str, text: str, right: str) -> None:
    line = shown(f"It is {text} there.", language)
    if right == "?":
        assert templates.HOLE in line and not re.search(r"\d", line)
    else:
        assert line == f"It is {right} there."


@pytest.mark.parametrize(
    ("text", "is_hole"),
    [
        ("It was built by {{zz|A. Mason}} in 1900.", True),
        ("It is {{zz}} high.", True),
        ("{{zz|It}} is high.", True),
        ("l'{{zz|eau}} est claire", True),
        ("\u05d4\u05d9\u05d0 \u05d1{{zz}} \u05e9\u05dd", True),
        ("\u05d4\u05d9\u05d0 \u05e9\u05dd\u05e9{{zz}} \u05e9\u05dd", False),
        ("a Hawai{{zz}}i b", True),
        ("\u9ad8\u3055{{zz|30}}\u306e\u5854", True),
        ("\u6587\u3002{{zz|30}}\u306f\u9ad8", True),
        ("\u6587\u3001{{zz|30}}\u3001\u6587", True),
        ("\u6587\u3002{{zz|30}}\u6587", False),
        ("{{nowrap|{{zz|5}} km}} long", True),
        ("{{lang|de|{{zz|Turm}}}} is", True),
        ("(built {{zz|5}} years ago)", True),
        ("The tower is high.{{zz}}", False),
        ("The tower is high. {{zz}} It is old.", False),
        ("The tower{{zz}} is high.", False),
        ("The tower (German: ''Turm'' {{zz}}; born) is", False),
        ("{{zz}}'''Tower''' is", False),
        ("{{zz|a}} {{zz|b}}", False),
        ("* {{zz|a}}", False),
        ("A 10{{zz|6}} of", True),
        ("A word{{zz|6}} of", False),
        ("A 10<sup>{{zz|6}}</sup> of", True),
        ('A "{{zz|6}}" of', True),
        ("A {{zz\n|a=b\n}} tower", False),
        ("A {{cn|date=x}} tower{{sfn|A}}.", False),
    ],
)
def test_a_template_that_is_not_known_leaves_a_hole_where_a_word_is_missing(text: str, is_hole: bool) -> None:
    assert (templates.HOLE in shown(text, "en")) == is_hole


@pytest.mark.parametrize(
    ("line", "kept", "names"),
    [
        ("One is. Two HOLE is. Three is.", "One is. Three is.", ["zz"]),
        ("HOLE is high.", "", ["zz"]),
        ("One is. The St. HOLE and Dr. Two HOLE is 3.5 km. The U.S. law.", "One is. The U.S. law.", ["zz", "zz"]),
        ("La tour HOLE, av. J.-C. alors. Puis elle.", "Puis elle.", ["zz"]),
        ("Am 14. Juli HOLE war es. Dann nicht.", "Dann nicht.", ["zz"]),
        ("\u4e00\u3067\u3059\u3002HOLE\u3067\u3059\u3002\u4e09\u3002", "\u4e00\u3067\u3059\u3002\u4e09\u3002", ["zz"]),
        ("\u05d0\u05d1\u05d2 HOLE. \u05d0\u05d1\u05d2.", "\u05d0\u05d1\u05d2.", ["zz"]),
    ],
)
def test_a_sentence_with_a_hole_is_dropped_alone(line: str, kept: str, names: list[str]) -> None:
    assert templates.without_holes(line.replace("HOLE", templates.hole("Zz "))) == (kept, names)


def test_the_name_of_a_hole_is_any_name() -> None:
    name = "\u0447\u0438\u0441\u043b\u043e \u4eee"
    assert templates.names_of_holes(f"a {templates.hole(name)} b {templates.hole('#expr:1+1')}") == [name, "#expr"]


def test_every_row_of_the_table_is_in_its_form_and_names_a_template_once() -> None:
    seen = set()
    languages = set()
    for line in TABLE.read_text("utf-8").split("\n"):
        if not line or line.startswith("# ") or line == "#":
            continue
        names, codes, _ = line.split("\t")
        languages |= set(codes.split(","))
        for pair in ((name.strip().lower(), code) for name in names.split("|") for code in codes.split(",")):
            assert pair not in seen, pair
            seen.add(pair)
    assert set(LANGUAGES.split()) <= languages
    for code in sorted(languages - {"*"}):
        templates.load((code,)).check()


TEXT = (
    "The tower was built by {{zz|A. Mason}} in 1900. It is {{unknown height|30}} high. "
    "It stands by the river and is {{measure|30|m}} wide. It was {{unknown height|20}} high before that time."
)
KEPT = "It stands by the river and is 30 m wide."


def test_a_table_of_the_user_is_an_input_and_what_is_lost_is_listed(tmp_path, stage, read, capsys):
    (tmp_path / "dump.xml").write_text(xml(content=[page(1, "Tower", TEXT)]))
    (tmp_path / "own.tsv").write_text("# my wiki\nMeasure|zzz\ten\t{1:quantity} {2}\n")
    given = ("--source", tmp_path / "dump.xml", "--templates", tmp_path / "own.tsv", "--workers", "1")
    for _ in range(2):  # the second time nothing is done again
        wikipedia.main([*map(str, given), "--output", str(tmp_path / "out"), "--lost"])
        assert capsys.readouterr().out == "2\tunknown height\n1\tzz\n"
    assert [document["text"] for document in read(tmp_path / "out")] == [KEPT]
    found = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert found["extra"]["lost"] == {"unknown height": 2, "zz": 1} and "own.tsv" in json.dumps(found["inputs"])
    characters = found["extra"]["characters"]
    assert characters.pop("in") == sum(characters.values())
    dropped = "The tower was built by  in 1900. It is  high.  It was  high before that time."
    assert characters["sentences with unknown templates"] == len(dropped)
    (tmp_path / "own.tsv").write_text("Unknown height|zz\t*\t{1}\nmeasure\ten\t{1} {2}\n")
    assert stage("wikipedia", *given, "--output", tmp_path / "out")[0] == 0  # made again: the table is another
    assert [document["text"].count("Mason") for document in read(tmp_path / "out")] == [1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("name\ten", "line 1: 2 columns instead of 3"),
        ("ok\ten\ta\nname\tEnglish\t{1}", "line 2: names divided by"),
        ("name\ten\t{1", "line 1: a brace or backslash"),
        ("name\ten\t[{1}", "line 1: a bracket without its pair"),
        ("name\ten\t{1:quantty}", "line 1: there is no filter quantty"),
        ("name\ten\t@conv", "line 1: there is no function @conv"),
    ],
)
def test_a_wrong_line_of_a_table_is_named_before_the_work(tmp_path, stage, content, message):
    (tmp_path / "dump.xml").write_text(xml())
    (tmp_path / "own.tsv").write_text(content)
    given = ("--source", tmp_path / "dump.xml", "--templates", tmp_path / "own.tsv", "--output", tmp_path / "out")
    code, lines = stage("wikipedia", *given)
    assert code == 3 and len(lines) == 1 and message in lines[0] and not (tmp_path / "out").exists()
