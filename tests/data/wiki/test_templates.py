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

# Right values: the documentation page of each template on the wiki of its language; for `convert`, its ranges and its
# several units, Template:Convert and Module:Convert; for `siglo` without the word, what MediaWiki expands it to.
SHOWN = """
en|{{convert|5|ft|10|in|cm}}|5 ft 10 in
en|{{convert|10|st|4|lb|kg}}|10 st 4 lb
en|{{convert|3|mi|2|furlong|1|chain|km}}|3 mi 2 furlong 1 chain
en|{{convert|3|by|4|by|5|m|ft}}|3 by 4 by 5 m
en|{{convert|3|x|4|x|5|m}}|3 \u00d7 4 \u00d7 5 m
en|{{convert|7|+/-|1|km}}|7 \u00b1 1 km
en|{{cvt|60|to(-)|75|cm|in}}|60 to 75 cm
en|{{cvt|484|\u2013|578|mm|in|abbr=on}}|484\u2013578 mm
en|{{convert|1500|-|2000|km|sigfig=2}}|1,500\u20132,000 km
en|{{convert|13+7/8|in}}|13 7/8 in
en|{{convert|356|mm|in|1|abbr=on}}|356 mm
en|{{convert|4|{{frac|1|2}}|ft}}|?
en|{{convert|1.5e6|km|mi}}|1.5\u00d710^6 km
en|{{convert|5|ft|3|m}}|?
en|{{convert|5|to|km}}|?
en|{{convert|5|km|mi|disp=out}}|?
en|{{convert|5|km2|sqmi}}|5 km\xb2
en|{{circa|1850|1900}}|c. 1850 \u2013 c. 1900
en|{{circa}}|c.
en|{{val|1.234|0.005|u=kg}}|1.234 \xb1 0.005 kg
en|{{val|1.674|+0.002|-0.003|e=-27|ul=kg}}|(1.674 +0.002 \u22120.003)\u00d710^-27 kg
en|{{val|1.00794|(7)|u=u}}|1.00794(7) u
en|{{val|10|-|20|u=m|up=s}}|10\u201320 m/s
en|{{val|5|end=x}}|?
en|{{start date|1993|2|24}}|February 24, 1993
en|{{start date|1993|02|24|df=yes}}|24 February 1993
en|{{start date|1993|13|24}}|?
en|{{birth date and age|1941|4|1}}|April 1, 1941
en|{{age|1950|3|1|2000|1|1}}|49
en|{{age|1950|3|1}}|?
en|{{height|ft=5|in=10}}|5 ft 10 in
en|{{height|m=1.78}}|1.78 m
en|{{US$|5 million}}|US$5 million
en|{{INR|500}}|\u20b9500
en|{{INR|5|c}}|?
en|{{GBP}}|\xa3
en|{{\u20ac|7.50}}|\u20ac7.50
en|{{currency|5|JPY}}|\xa55
en|{{mvar|n}}|n
en|{{math|1=x = n + 1}}|x = n + 1
en|{{math|1=x<sup>2</sup>}}|formula
en|{{ill|Foo|de|Bar|lt=Baz}}|Baz
en|{{ill|de|Foo}}|Foo
en|{{coord|13|19|N|169|9|W|type:event}}|13\xb019\u2032N 169\xb09\u2032W
en|{{harvtxt|Smith|2001}}|Smith (2001)
en|{{harvtxt|A|B|C|2001}}|?
en|{{music|flat}}|\u266d
en|{{formatnum:12345.6}}|12,345.6
en|{{USS|Enterprise}}|USS Enterprise
fr|{{s-|XIV|e}}, {{s|I}}, {{s2-|XVIII|XIX}}|XIVe si\xe8cle, Ier si\xe8cle, XVIIIe et XIXe si\xe8cles
fr|{{-s|V|e}} {{sp-|XVI|e|au|XVII|e}}|Ve si\xe8cle av. J.-C. XVIe au XVIIe si\xe8cle
fr|{{date-|14 juillet 1789}} {{date|1|1|2001}}|14 juillet 1789 1er janvier 2001
fr|{{date|32|1|2001}}|?
fr|{{nombre|1234|m}} {{unit\xe9|1.5|km|2}}|1 234 m 1,5 km\xb2
fr|{{heure|4|5}}, {{euro|77.80}}|4 h 05, 77,80 \u20ac
fr|{{Citation|Elle est belle}}|\xab Elle est belle \xbb
fr|{{lien|langue=en|trad=Old Tower|fr=Vieille Tour}}|Vieille Tour
fr|{{lien|Vieille Tour|texte=la tour}}|la tour
fr|10{{exp|6}} {{1er|champion}} {{84e|Congr\xe8s}}|10^6 1er champion 84e Congr\xe8s
fr|{{r\xe9f\xe9rence n\xe9cessaire|sans source}}|sans source
de|{{"|Es ist|lang=de}} {{enS|Tower}}|\u201eEs ist\u201c englisch Tower
de|{{H\xf6he|1115|DE-NHN}} {{formatnum:12345.6}}|1.115 m 12.345,6
es|{{siglo|XIX||s}} {{siglo|IV|a|s}} {{siglo|XVII}}|siglo XIX siglo IV a. C. XVII
es|{{fecha|5|3|1950}} {{esd}}km|5 de marzo de 1950  km
es|{{convertir|3|a|5|km}}|3 a 5 km
it|{{M|1500|u=m}} {{TA|30 km}} {{converti|5|km|mi}}|1.500 m 30 km 5 km
it|{{senza fonte|in alcune zone|maggio 2012}}|in alcune zone
pt|{{s\xe9c|XIII}} {{-s\xe9c|IV}} {{dtlink|4|10|1959}}|s\xe9culo XIII s\xe9culo IV a.C. 4 de outubro de 1959
pt|{{fmtn|90000}} {{fmtn|25|km}}|90 000 25 km
nl|{{bron?|in brand gestoken|2019|04|15}}|in brand gestoken
pl|{{fakt|w tym czasie|data=2010}}|w tym czasie
cs|{{datum narozen\xed|1934|4|15}}|15. dubna 1934
sv|{{formatnum:12345}} {{k\xe4lla beh\xf6vs|alla}}|12 345 alla
ru|{{\u043d\u043f5|\u0421\u043c\u0438\u0442|\u0421\u043c\u0438\u0442\u0430|en|Smith}}|\u0421\u043c\u0438\u0442\u0430
ru|{{\u043d\u043f3|\u0424\u043e\u0440\u0434||en|Ford}}|\u0424\u043e\u0440\u0434
ru|{{\u043d\u0435 \u043f\u0435\u0440\u0435\u0432\u0435\u0434\u0435\u043d\u043e|\u043d\u0430\u0434\u043e=\u0424}}|\u0424
ru|{{\u0447\u0438\u0441\u043b\u043e|1234}}|1 234
uk|{{num|12345}}|12 345
el|{{formatnum:12345.5}}|12.345,5
tr|{{do\u011fum tarihi|1950|3|5}}|5 Mart 1950
ar|{{\u0623\u0644\u0645\u0627\u0646\u064a\u0629|Spree}}|Spree
he|{{\u05d0\u05e0\u05d2\u05dc\u05d9\u05ea|Spree}}|Spree
fa|{{\u0622\u0644\u0645\u0627\u0646\u06cc|Berlin}}|Berlin
hi|{{\u091c\u0928\u094d\u092e \u0924\u093f\u0925\u093f|1950|3|5}}|5 \u092e\u093e\u0930\u094d\u091a 1950
ja|{{\u4eee\u30ea\u30f3\u30af|\u8a18\u4e8b\u540d|en|title}}|\u8a18\u4e8b\u540d
ja|{{\u8aad\u307f\u4eee\u540d|\u6f22\u5b57|\u304b\u3093\u3058}}|\u6f22\u5b57\uff08\u304b\u3093\u3058\uff09
ja|{{llang|en|Tower}} {{\u5358\u4f4d\u5909\u63db|100|km}}|Tower 100 km
ko|{{llang|ja|\u5343}} {{\ud55c\uc790|\uc11c\uc6b8|\u4eac}}|\u5343 \uc11c\uc6b8(\u4eac)
zh|{{tsl|en|Foo|\u672c\u5730}} {{le|\u81a0|glue}} {{link-en|\u672c|Foo|\u672b}}|\u672c\u5730 \u81a0 \u672b
zh|{{bd|1923\u5e74|5\u67087\u65e5|1999\u5e74|1\u67082\u65e5}}|1923\u5e745\u67087\u65e5\uff0d1999\u5e741\u67082\u65e5
ca|{{segle|XIII|s}} {{data naixement|1950|4|5}}|segle XIII 5 d\u2019abril de 1950
de|{{start date|1993|2|24}} {{nowrap|a b}}|24 Februar 1993 a b
vi|{{lien|fr=Vieille Tour}}|Vieille Tour
"""


def shown(text: str, language: str) -> str:
    content = f"<page><title>T</title><ns>0</ns><text>{html.escape(text, quote=False)}</text></page>"
    prepared = wikitext.prepared(content.encode(), set(), "keep", templates.load((language,))).content.decode()
    return html.unescape(prepared.partition("<text>")[2].partition("</text>")[0])


@pytest.mark.parametrize("case", SHOWN.strip().split("\n"))
def test_templates_show_what_their_documentation_says(case: str) -> None:
    language, rest = case.split("|", 1)
    text, right = rest.rsplit("|", 1)
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
        ("a Hawai{{zz}}i b", True),
        ("\u9ad8\u3055{{zz|30}}\u306e\u5854", True),
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
