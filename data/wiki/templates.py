"""What templates show, from a table of their names and patterns: `data/wiki/templates.tsv`, and one of the user.

A line of a table has three columns, divided by tabs: the names of a template, divided by `|`; the codes of the
languages of its wikis, divided by commas, or `*`; and its text. Lines that begin with `# ` are comments. Names are in
any case. In a name `#` is a number, and `*` at the end any end. A name that ends with a colon is one of a function of
MediaWiki.

| in a text | what it becomes |
|---|---|
| `{1}`, `{name}` | the value of a parameter; without one, the text cannot be made |
| `{a/b/1}` | the first of these that has a value |
| `{1..}`, `{2..", "}` | all values from the first or second on, with what is in quotes between them |
| `{0}` | the name of the template, as written |
| `[...]` | this, if all of its parameters have values; otherwise nothing |
| `a|b` | the first of these texts that can be made |
| `{1:filter}` | the value changed, or the text of it: `FILTERS` below, or a list of the table whose name is `:filter` |
| `@name` | what a function of `data/wiki/quantities.py` makes of all parameters |
| `~` | nothing, as of a note: words around it stay words |
| `\\s`, `\\|`, `\\[` | a space at an end, and characters that have a meaning here |

An empty text is nothing within a word. A value that a filter refuses makes the whole template one that is not known: a
part of a date or number is never shown in place of it. Such a template, and one that no table has, leaves a hole where
it stands in a sentence (`is_hole`); the sentence is dropped later, and counted by the name of the template.
"""

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bert.core import files
from bert.core.errors import InputError
from data.splitting import sentences
from data.wiki import quantities
from data.wiki.quantities import Refused, Wiki

Arguments = Mapping[str, str]
SEPARATOR = re.compile(r"\|(?![^\[\]]*\]\])")  # between arguments, not within a link
NAMED = re.compile(r"\s*[\w'+\u00b1\u2212 -]{1,30}=")
MAX_SHOWN = 10_000  # characters of a template that shows its arguments
MAX_TABLE = 10_000_000  # bytes of a table of the user
DIGITS = re.compile(r"\d+")
LANGUAGE_CODE = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*")
MARKUP = re.compile("[<>{}_^\ufdef]|&[a-z]+;")
RAISED = re.compile(r"\d<su[bp]>\Z")  # before a power or an index
LENGTH = re.compile(r"\d[\d.,]*\s?(?:mm|cm|m|in|ft)")
LANGUAGE = re.compile(r"[a-z]{2,12}(?:-[a-z]{2,8})*")
TOKEN = re.compile(
    r"\\(?P<escape>.)|\{(?P<field>[^{}]*)\}|(?P<mark>[\[\]|])|(?P<note>~)|(?P<text>[^\\{}\[\]|~]+)", re.S
)
ESCAPE = re.compile(r"\\(.)")
FIELD = re.compile(r'(?P<names>[^:".]+?)(?P<all>\.\.(?:"(?P<between>[^"]*)")?)?(?::(?P<filter>[^:]+))?')
ESCAPES = {"s": " ", "n": "\n"}
NOTE = "\ufdee"  # is shown for a template that shows nothing

# A hole: this character, which is none of any text, and the name of the template in characters of private use.
HOLE, BASE, LAST = "\ufdef", 0xF0000, 0xFFFFD
HOLES = re.compile(f"{HOLE}([{chr(BASE)}-{chr(LAST)}]*)")
MAX_NAME = 40  # characters
STOP = re.compile(
    r"(?:(?P<dotted>\.?)\b(?P<word>\w{1,40})|(?<![.!?\u2026]))"
    rf"(?P<mark>[.!?\u2026]++)[{sentences.CLOSING}]*+\s++"
)
BEFORE = 300  # characters of the line before a template, that tell whether it stands in a sentence
MARKERS = " \t*#:;'\u2063\ufeff"
OPENING = "([{\u00ab\u201c\u2018\u201e\u201a\uff08\u300c\u300e\u3010\u300a\u3008-\u2013\u2014/"
ENDS = ".!?\u2026\u3002\uff01\uff1f\u061f\u06d4\u0964"
QUOTES = "\"')]\u2019\u201d\xbb\u203a\u300d\u300f\uff09"
# The end of a line where the next word is joined to one before: l'eau, and prefixes in Hebrew and Arabic.
ELISION = re.compile(
    "(?:[^\\W\\d_]['\u2019]|(?:\\A|[\\s(])(?:[\u05d0-\u05ea]{1,2}|[\u0628\u0644\u0648\u0643\u0641]{1,2}))\\Z"
)
# Short for other words, before capitals: av. J.-C., ul. Nowa.
ABBREVIATIONS = {
    *("abb", "abs", "abt", "av", "bd", "bp", "bzw", "dr", "gen", "hl", "inc", "jr"),
    *("ltd", "mgr", "mr", "mrs", "ms", "nr", "op", "prof", "sen", "sr", "sv", "tel"),
    *("ul", "vgl", "vol", "vs", "c\u00eds", "in\u017c", "\u015bw", "\u0438\u043c", "\u0441\u0432", "\u0443\u043b"),
}
PARTICLES = "\u306f\u304c\u3092\u306b\u3067\u3082"  # of Japanese: what is before them is a noun
UNSPACED = re.compile(
    "[\u3001\u30fb\uff0c\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
)


def hole(name: str) -> str:
    """Return what stands for a template that is not known, until its sentence is dropped."""
    if "#" in name:  # a function of MediaWiki, with its first argument
        name = name.partition(":")[0]
    name = HOLES.sub("", name).strip().lower()[:MAX_NAME]
    return HOLE + "".join(chr(min(BASE + ord(character), LAST)) for character in name)


def names_of_holes(text: str) -> list[str]:
    """Return the names of the templates whose holes a text has."""
    return ["".join(chr(ord(character) - BASE) for character in match[1]) for match in HOLES.finditer(text)]


def is_hole(before: str, after: str) -> bool:
    """Return whether a template between two parts of a line of text stands in a sentence, as a word of it.

    Otherwise it is a note, such as a missing reference, a box, or a pronunciation in parentheses.
    """
    line, last, first = before, before[-1:], after[:1]
    before, after = before.strip(MARKERS), after.strip(" \t'")
    if not (before or after):
        return False
    start = after[:1]
    if not before:  # a sentence begins with it, or it is a box above one
        return start.islower() or start in ",\u060c\u3001" or (start.isalpha() and start.upper() == start.lower())
    if max(before.rfind("("), before.rfind("\uff08")) > max(before.rfind(")"), before.rfind("\uff09")):
        return start.isalnum() or last in "$\xa3\u20ac"
    if start and start in PARTICLES:
        return True
    if last.isspace():
        return before.rstrip(QUOTES)[-1:] not in ENDS or start.islower()
    if last + first == '""' or (last == ">" and RAISED.search(line)):
        return True
    if last.isdecimal() or (last.isalnum() and first.isalnum()):  # a power, or a unit: a number is whole or absent
        return True
    if UNSPACED.match(last):
        return True
    return last in OPENING or bool(ELISION.search(line))


def without_holes(line: str) -> tuple[str, list[str]]:
    """Return a paragraph without the sentences that have holes, and the names of the templates of these."""
    kept: list[str] = []
    names: list[str] = []
    at = 0
    for part in sentences.parts(line):
        at = line.index(part, at)
        if kept and line[at - 1] == " " and kept[-1][-1] != " ":
            kept.append(" ")
        at += len(part)
        for sentence in _sentences(part):
            if HOLE in sentence:
                names += names_of_holes(sentence)
            else:
                kept.append(sentence)
    return "".join(kept).strip(), names


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text. In doubt, two stay together: an abbreviation or a number may have a full stop."""
    start = 0
    for end in STOP.finditer(text):
        word, following = end["word"], text[end.end() : end.end() + 1]
        if word and end["mark"] == "." and (end["dotted"] or _is_abbreviation(word, following)):
            continue
        if not following.islower():
            yield text[start : end.end()]
            start = end.end()
    if start < len(text):
        yield text[start:]


def _is_abbreviation(word: str, following: str) -> bool:
    """Return whether a word before a full stop may be short for another, or is a number such as of a day."""
    if word.isdecimal():
        return len(word) < 3
    if word.upper() == word.lower():
        return len(word) < 2
    if word in ABBREVIATIONS:
        return True
    return len(word) < 2 or (len(word) < 4 and (word[0].isupper() or following == HOLE))


class Row(NamedTuple):
    """A line of a table."""

    names: tuple[str, ...]
    languages: tuple[str, ...]
    text: str
    where: str  # the file and the line, for messages


class Table:
    """What the templates of a wiki show."""

    def __init__(self, rows: Sequence[Row], languages: Sequence[str], own: Sequence[Row] = ()) -> None:
        """Use rows for the wiki's languages before rows for all wikis, and rows of `own` before all others.

        A row for other languages counts only if its name has other characters than ASCII. Such a name means the same
        template in every wiki. This serves wikis with an unknown language or with translated articles. A name such as
        "page" may mean another template in each wiki.
        """
        self._languages = tuple(languages) or ("en",)
        self._lists: dict[str, dict[str, Row]] = {}  # by kind and language
        ranked: dict[str, tuple[int, Row | None]] = {}
        for is_own, row in [*((False, row) for row in rows), *((True, row) for row in own)]:
            rank = self._rank(row)
            is_other = rank > len(self._languages)
            rank -= 1_000 if is_own else 0
            for name in row.names:
                if name.startswith(":"):
                    self._lists.setdefault(name[1:], {}).update(dict.fromkeys(row.languages, row))
                    continue
                if is_other and name.isascii():
                    continue
                before, other = ranked.get(name, (rank + 1, None))
                if rank < before or (rank == before and not is_other):
                    ranked[name] = rank, row
                elif rank == before and other and other.text != row.text:
                    ranked[name] = rank, None  # two other wikis have different templates of this name
        self._rows = {name: row for name, (_, row) in ranked.items() if row}
        self._prefixes = tuple(sorted((name[:-1] for name in self._rows if name.endswith("*")), key=len, reverse=True))
        self._compiled: dict[str, _Compiled] = {}
        self._wikis: dict[str, Wiki] = {}

    def _rank(self, row: Row) -> int:
        ranks = [at for at, code in enumerate(self._languages) if code in row.languages]
        return min(ranks) if ranks else len(self._languages) + ("*" not in row.languages)

    def shown(self, inner: str) -> str | None:
        """Return the text that a template shows; None if it is not known. inner: what is in the template's braces.

        `NOTE` is returned for a template that shows no text and stands apart from the words around it.
        """
        name, bar, rest = inner.partition("|")
        name = name.strip()
        key = name.replace("_", " ").lower()
        compiled = self._compiled.get(key)
        if compiled is None:
            found = self._found(key)
            if not found:
                return None
            compiled = self._compiled.get(found) or self._compile(found)
            self._compiled[found] = compiled
            if found.endswith(":"):
                name, _, first = name.partition(":")
                rest = f"{first}{bar}{rest}"
        if compiled.constant is not None:
            return compiled.constant
        return compiled.of(name, rest) if len(inner) <= MAX_SHOWN else None

    def check(self) -> None:
        """Compile all rows. Raise InputError if one is not of the form above."""
        for name in self._rows:
            self._compile(name)

    def _found(self, key: str) -> str | None:
        """Return the name of the row of a template."""
        if key in self._rows:
            return key
        if ":" in key and (function := key.partition(":")[0] + ":") in self._rows:
            return function
        if self._prefixes and key.startswith(self._prefixes):
            return next(prefix for prefix in self._prefixes if key.startswith(prefix)) + "*"
        return pattern if DIGITS.search(key) and (pattern := DIGITS.sub("#", key)) in self._rows else None

    def _compile(self, name: str) -> "_Compiled":
        row = self._rows[name]
        codes = [code for code in self._languages if code in row.languages or "*" in row.languages]
        return _compiled(row, self._wiki((*codes, *row.languages)[0]), self._lists)

    def _wiki(self, code: str) -> Wiki:
        """Return the lists of a language."""
        if code not in self._wikis:
            lists = {kind: _list(row) for kind, rows in self._lists.items() if (row := rows.get(code) or rows.get("*"))}
            self._wikis[code] = Wiki(code, lists)
        return self._wikis[code]


def _list(row: Row) -> dict[str, str]:
    """Return the values of a list by their keys; those without a key are numbered from 1."""
    pairs = [one.partition("=") for one in row.text.split("|")]
    return {
        key.strip() if equals else str(number): _unescaped(rest if equals else key)
        for number, (key, equals, rest) in enumerate(pairs, 1)
    }


def _unescaped(text: str) -> str:
    return ESCAPE.sub(lambda match: ESCAPES.get(match[1], match[1]), text.strip())


class _Missing(Exception):
    """A parameter has no value."""


Part = Callable[[Arguments], str]
Choices = tuple[tuple[Part, ...], ...]


class _Compiled(NamedTuple):
    """The compiled text of a row."""

    choices: Choices
    constant: str | None  # if it has no parameters

    def of(self, name: str, rest: str) -> str | None:
        """Return the text for parameters as they are written. None if it cannot be made."""
        try:
            return _first(self.choices, _arguments(name, rest))
        except (_Missing, Refused):
            return None


def _first(choices: Choices, arguments: Arguments) -> str:
    for parts in choices[:-1]:
        with contextlib.suppress(_Missing):
            return "".join([part(arguments) for part in parts])
    return "".join([part(arguments) for part in choices[-1]])


def _optional(choices: Choices, arguments: Arguments) -> str:
    try:
        return _first(choices, arguments)
    except _Missing:
        return ""


def _arguments(name: str, rest: str) -> dict[str, str]:
    """Return the parameters that have values, by name or number, and the template's name as "0"."""
    arguments = {"0": name}
    number = 0
    for argument in SEPARATOR.split(rest):
        if NAMED.match(argument):
            key, _, value = argument.partition("=")
            key = key.strip()
        else:
            number += 1
            key, value = str(number), argument
        if value := value.strip():
            arguments[key] = value
        else:
            arguments.pop(key, None)
    return arguments


def _compiled(row: Row, wiki: Wiki, lists: Mapping[str, object]) -> _Compiled:
    """Compile the text of a row. Raise InputError if it is not of the form above."""
    text = row.text.strip()
    if text.startswith("@"):
        function = quantities.FUNCTIONS.get(text[1:])
        if not function:
            raise InputError(f"{row.where}: there is no function {text}; there are @{', @'.join(quantities.FUNCTIONS)}")
        return _Compiled(((functools.partial(function, wiki),),), None)
    if text and len(TOKEN.sub("", text)):
        raise InputError(f"{row.where}: a brace or backslash that belongs to nothing in {text[:80]!r}")
    stack: list[list[list[Part]]] = [[[]]]  # the choices of the text, and of the brackets that are open
    for token in TOKEN.finditer(text):
        mark, field, escape = token["mark"], token["field"], token["escape"]
        if field is not None:
            stack[-1][-1].append(_field(field, row, wiki, lists))
        elif mark == "|":
            stack[-1].append([])
        elif mark == "[":
            stack.append([[]])
        elif mark == "]" and len(stack) > 1:
            inner = tuple(map(tuple, stack.pop()))
            stack[-1][-1].append(functools.partial(_optional, inner))
        elif mark:
            raise InputError(f"{row.where}: a bracket without its pair in {text[:80]!r}")
        elif token["note"]:
            stack[-1][-1].append(_constant(NOTE))
        else:
            stack[-1][-1].append(_constant(ESCAPES.get(escape, escape) if escape else token["text"]))
    if len(stack) > 1:
        raise InputError(f"{row.where}: a bracket without its pair in {text[:80]!r}")
    is_constant = not any(token["mark"] or token["field"] is not None for token in TOKEN.finditer(text))
    choices = tuple(map(tuple, stack[0]))
    return _Compiled(choices, _first(choices, {}) if is_constant else None)


def _constant(text: str) -> Part:
    return lambda _: text


def _field(text: str, row: Row, wiki: Wiki, lists: Mapping[str, object]) -> Part:
    """Return what a field of a text shows of the parameters."""
    match = FIELD.fullmatch(text)
    if not match:
        raise InputError(f"{row.where}: not a parameter: {{{text[:40]}}}")
    names, kind = tuple(match["names"].split("/")), match["filter"]
    if match["all"]:
        if not names[0].isdecimal():
            raise InputError(f"{row.where}: not the number of a parameter: {{{text[:40]}}}")
        return functools.partial(_all, int(names[0]), match["between"] or "")
    if kind == "none":
        return functools.partial(_none, names)
    if not kind:
        return functools.partial(_one, names[0]) if len(names) == 1 else functools.partial(_any, names)
    if kind not in FILTERS and kind not in lists:
        raise InputError(f"{row.where}: there is no filter {kind}; there are {', '.join((*FILTERS, 'none', *lists))}")
    if kind in FILTERS:
        filtered: Filter = FILTERS[kind]
        return lambda arguments: filtered(_any(names, arguments), wiki)
    return lambda arguments: _listed(_any(names, arguments), wiki.lists.get(kind, {}))


def _one(name: str, arguments: Arguments) -> str:
    if value := arguments.get(name):
        return value
    raise _Missing


def _any(names: tuple[str, ...], arguments: Arguments) -> str:
    for name in names:
        if value := arguments.get(name):
            return value
    raise _Missing


def _all(first: int, between: str, arguments: Arguments) -> str:
    values = quantities.positional(arguments)[first - 1 :]
    if not values:
        raise _Missing
    return between.join(filter(None, values))


def _none(names: tuple[str, ...], arguments: Arguments) -> str:
    if any(name in arguments for name in names):
        raise Refused
    return ""


def _listed(value: str, values: Mapping[str, str]) -> str:
    """Return a list's value for a key or a number. With a numbered list, a word, such as a month's name, stays.

    Raise Refused for others.
    """
    key = value.lstrip("0") if value.isdecimal() else value
    if (found := values.get(key)) is not None:
        return found
    if "1" not in values or any(character.isdecimal() for character in value):
        raise Refused(value)
    return value


def _whole(value: str, _: Wiki) -> str:
    if not value.isdecimal():
        raise Refused(value)
    return value.lstrip("0") or value[-1]


def _day(value: str, wiki: Wiki) -> str:
    day = _whole(value, wiki)
    if not day.isascii() or 1 <= int(day) <= 31:
        return wiki.lists.get("day", {}).get(day, day)
    raise Refused(value)


def _code(value: str, _: Wiki) -> str:
    """Require the code of a language, which is not shown: older forms of some templates begin with it."""
    if LANGUAGE_CODE.fullmatch(value):
        return ""
    raise _Missing


def _title(value: str, _: Wiki) -> str:
    if LANGUAGE_CODE.fullmatch(value):
        raise Refused(value)
    return value


def _length(value: str, _: Wiki) -> str:
    """Require a number with a unit, such as 1435mm. Names of gauges stand for several."""
    if not LENGTH.fullmatch(value):
        raise Refused(value)
    return value


def _formula(value: str, _: Wiki) -> str:
    """Return a formula without marks above or below the line; "formula" for another, as for <math>."""
    return "formula" if MARKUP.search(value) else value


Filter = Callable[[str, Wiki], str]
FILTERS: dict[str, Filter] = {
    "if": lambda value, _: "",
    "int": _whole,
    "day": _day,
    "code": _code,
    "title": _title,
    "formula": _formula,
    "length": _length,
    "two": lambda value, wiki: _whole(value, wiki).rjust(2, "0"),
    "quantity": quantities.number,  # refused if it is no number
    "number": quantities.formatted,
    "lower": lambda value, _: value.lower(),
    "upper": lambda value, _: value.upper(),
    "rank": lambda value, _: quantities.rank(value),
}


def load(languages: tuple[str, ...], own: Path | None = None) -> Table:
    """Return the table of this package, for the languages of a wiki, with the rows of a file of the user before them.

    Raise InputError if the file is not a table.
    """
    if not own:
        return _packaged(languages)
    with files.open_text(own) as stream:
        text = stream.read(MAX_TABLE + 1)
    if len(text) > MAX_TABLE:
        raise InputError(f"{own}: more than {MAX_TABLE:,} characters; give a table of templates")
    table = Table(_packaged_rows(), languages, list(_rows(text, str(own))))
    table.check()
    return table


@functools.cache
def _packaged(languages: tuple[str, ...]) -> Table:
    return Table(_packaged_rows(), languages)


@functools.cache
def _packaged_rows() -> tuple[Row, ...]:
    return tuple(_rows(Path(__file__).with_name("templates.tsv").read_text("utf-8"), "templates.tsv"))


def _rows(text: str, path: str) -> Iterator[Row]:
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        if not line.strip() or line == "#" or line.startswith("# "):
            continue
        columns = line.split("\t")
        where = f"{path}: line {number}"
        if len(columns) != 3:
            raise InputError(f"{where}: {len(columns)} columns instead of 3 (names, languages, text), divided by tabs")
        names = tuple(name.strip().replace("_", " ").lower() for name in columns[0].split("|"))
        languages = tuple(code.strip() for code in columns[1].split(","))
        if not all(names) or not all(code == "*" or LANGUAGE.fullmatch(code) for code in languages):
            raise InputError(f"{where}: names divided by |, codes of languages divided by commas, or *, and the text")
        yield Row(names, languages, columns[2], where)
