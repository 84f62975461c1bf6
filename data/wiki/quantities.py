"""What templates with numbers show: quantities with units, values with an uncertainty, fractions, dates and ages.

A number is whole or the template is refused: "5 ft" for "5 ft 10 in" looks right and is wrong. What a template adds is
left out where it stands in brackets: the quantity in other units, the age of a person today.
"""

import datetime
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

Arguments = Mapping[str, str]
Lists = Mapping[str, Mapping[str, str]]


class Refused(Exception):
    """A value is not of the form that is known."""


class Wiki(NamedTuple):
    """The language in which a template shows text, and its lists, such as "month", by name."""

    language: str
    lists: Lists


NUMBER = re.compile(r"[-+\u2212]?\d[\d,. \u00a0\u202f]*|[-+\u2212]?\.\d+")
PLAIN = re.compile(r"[-+]?\d*\.?\d*(?:[eE][-+]?\d+)?")
MIXED = re.compile(r"([-+\u2212]?)(?:(\d[\d,]*)\+)?(\d+)//?(\d+)")  # 1+3/4, and 3//4, whose line is flat
SPAN = re.compile(r"(\d[\d,.]*) ?(-|\u2013|to|x|\u00d7) ?(\d[\d,.]*)")
POWER = re.compile("[eE](?=[-+]?\\d)")
FACTOR = re.compile(r"e(\d{1,2})(?=[^\d.])")
BRACKETED = re.compile(r"(?:(?<=\d)|\A)\([\d.]+\)")  # an uncertainty of the last digits
SUBUNITS = {
    "mi": "yd ft ch chain furlong fur",
    "furlong": "ch chain yd ft",
    "ch": "lk link ft yd",
    "yd": "ft in",
    "ft": "in",
    "fathom": "ft",
    "st": "lb",
    "lb": "oz",
    "oz": "dr",
    "LT": "lb cwt st qtr",
    "ST": "lb",
    "long ton": "cwt lb",
    "short ton": "lb",
    "cwt": "lb qtr",
    "impgal": "imppt impqt",
    "acre": "rood perch",
    "h": "min s",
    "min": "s",
    "deg": "arcmin",
}
# Values of `disp` with which a conversion shows the first quantity, and another in brackets or behind a mark.
WITH_INPUT = ("", "or", "b", "sqbr", "br", "br()", "comma", "semicolon", "/", "5", "flip", "x", "table", "tablecen")


def formatted(value: str, wiki: Wiki) -> str:
    """Return a number as the wiki's language writes it, with its marks; anything else as it is."""
    marks = wiki.lists.get("number")
    if not marks or not value.isascii() or not NUMBER.fullmatch(value):
        return value
    digits = value.replace(" ", "")
    sign = digits[0] if digits[0] in "-+" else ""
    digits = digits[len(sign) :]
    decimal = "," if marks["decimal"] == "," and "." not in digits else "."
    whole, point, part = digits.rpartition(decimal)
    if not point:
        whole, part = digits, ""
    if decimal in whole or not re.fullmatch(r"\d{1,3}(?:[,.]\d{3})+|\d*", whole) or not re.fullmatch(r"\d*", part):
        return value
    whole = whole.replace(",", "").replace(".", "") or "0"
    if len(whole) >= int(marks["least"]):
        head = len(whole) % 3
        groups = [*([whole[:head]] if head else []), *(whole[at : at + 3] for at in range(head, len(whole), 3))]
        whole = marks["group"].join(groups)
    return f"{sign}{whole}{marks['decimal'] if part else ''}{part}"


def positional(arguments: Arguments) -> list[str]:
    """Return the numbered parameters up to the last that has a value."""
    last = max((int(key) for key in arguments if key.isdecimal() and len(key) < 3), default=0)
    return [arguments.get(str(number), "") for number in range(1, last + 1)]


def number(value: str, wiki: Wiki) -> str:
    """Return a number, with a fraction or a power of ten if it has one, as it is shown. Raise Refused for others."""
    if mixed := MIXED.fullmatch(value):
        sign, whole, above, below = mixed.groups()
        return f"{sign}{whole + ' ' if whole else ''}{above}/{below}"
    digits, power, exponent = value.partition("e")
    if power and re.fullmatch(r"[-+]?\d+", exponent) and NUMBER.fullmatch(digits):
        return f"{formatted(digits, wiki)}\u00d710^{int(exponent)}"
    if span := SPAN.fullmatch(value):
        first, mark, second = span.groups()
        mark = {"-": "\u2013", "to": " to ", "x": " \u00d7 ", "\u00d7": " \u00d7 "}.get(mark, mark)
        return f"{formatted(first, wiki)}{mark}{formatted(second, wiki)}"
    if not NUMBER.fullmatch(value):
        raise Refused(value)
    return formatted(value, wiki)


def _is_number(value: str) -> bool:
    return bool(NUMBER.fullmatch(value) or MIXED.fullmatch(value) or SPAN.fullmatch(value) or _has_power(value))


def _has_power(value: str) -> bool:
    return bool(value) and value[0] in "-+.0123456789" and bool(PLAIN.fullmatch(value)) and value[-1].isdigit()


def unit(code: str, wiki: Wiki) -> str:
    """Return what a unit's code shows."""
    if not code or code[0].isdigit():
        raise Refused(code)
    return wiki.lists.get("unit", {}).get(code, code)


def convert(wiki: Wiki, arguments: Arguments) -> str:
    """Return the first quantity of a conversion: all of its numbers and units, before those converted to.

    As in Module:Convert of the English Wikipedia: numbers with words of a range between them, or numbers each with a
    unit smaller than the one before.
    """
    values = positional(arguments)
    if arguments.get("disp", "") not in WITH_INPUT or len(values) < 2:
        raise Refused(arguments.get("disp", ""))
    ranges = wiki.lists.get("range", {})
    shown = [number(values[0], wiki)]
    at = 1
    while at + 1 < len(values) and (word := _range(values[at], ranges)) and _is_number(values[at + 1]):
        shown += [word, number(values[at + 1], wiki)]
        at += 2
    if at >= len(values) or _is_number(values[at]) or values[at] in ranges:
        raise Refused(values[0])
    code = values[at]
    if factor := FACTOR.match(code):  # e6m3: 10^6 of them
        shown.append(f"\u00d710^{factor[1]}")
        code = code[factor.end() :]
    shown += [" ", unit(code, wiki)]
    while at + 2 < len(values) and _is_number(values[at + 1]):  # of one alone, it is the digits to round to
        if values[at + 2] not in SUBUNITS.get(values[at], "").split():
            raise Refused(values[at + 2])
        shown += [" ", number(values[at + 1], wiki), " ", unit(values[at + 2], wiki)]
        at += 2
    return "".join(shown)


def _range(word: str, ranges: Mapping[str, str]) -> str:
    """Return what stands for a word between the numbers of a range; "" if it is none."""
    return ranges.get(word.removesuffix("(-)").removesuffix("(x)"), "")


def value(wiki: Wiki, arguments: Arguments) -> str:
    """Return a value with its uncertainty, power of ten and unit, as Template:Val of the English Wikipedia shows it."""
    values = positional(arguments)
    if len(values) not in (1, 2, 3, 5) or any(key in arguments for key in ("end", "+errend", "-errend", "errend")):
        raise Refused("")
    main, *errors = values
    ranges = wiki.lists.get("range", {})
    if len(values) > 2 and (word := _range(values[1], ranges)):
        shown = [_scientific(main), word, _scientific(values[2])]
        if len(values) == 5:
            if not (word := _range(values[3], ranges)):
                raise Refused(values[3])
            shown += [word, _scientific(values[4])]
        errors = []
    else:
        if len(errors) == 1 and BRACKETED.fullmatch(errors[0]):
            main += errors.pop()
        _scientific(BRACKETED.sub("", main))
        shown = [POWER.sub("\u00d710^", main)]
        if len(values) > 3:
            raise Refused(main)
    power = arguments.get("e", "")
    if power and not re.fullmatch(r"[-+\u2212]?\d+", power):
        raise Refused(power)
    if errors:
        plus = [_scientific(error.lstrip("+-\u2212")) for error in errors]
        shown += [" \u00b1 ", plus[0]] if len(plus) == 1 else [f" +{plus[0]} \u2212{plus[1]}"]
    text = "".join(shown)
    if power:
        text = f"({text})" if len(shown) > 1 else text
        text += f"\u00d710^{power}"
    units = [arguments[key] for key in ("u", "ul") if key in arguments]
    per = [arguments[key] for key in ("up", "upl") if key in arguments]
    code = "/".join(unit(one, wiki) for one in (*units[:1], *per[:1]))
    unspaced = code[:1] in ("%", "\u00b0") and not code.startswith(("\u00b0C", "\u00b0F"))
    text += ("" if not code or unspaced else " ") + code
    return f"{arguments.get('p', '')}{text}{arguments.get('s', '')}"


def _scientific(number: str) -> str:
    """Return a number of `value`. Raise Refused for what is none."""
    plain = number.replace(",", "").replace("\u2212", "-")
    if not _has_power(plain):
        raise Refused(number)
    digits, power, exponent = number.partition("e")
    return f"{digits}\u00d710^{exponent}" if power else digits


def fraction(_: Wiki, arguments: Arguments) -> str:
    """Return "1/2" of 1|2 and of 2, "3 1/4" of 3|1|4."""
    values = positional(arguments)
    if not 1 <= len(values) <= 3 or not all(values):
        raise Refused("")
    whole, above, below = ["", "1", *values] if len(values) == 1 else ["", *values] if len(values) == 2 else values
    return f"{whole}{' ' if whole else ''}{above}/{below}"


def quantity(wiki: Wiki, arguments: Arguments) -> str:
    """Return a number and its unit, or units with exponents: 2|km|2, 5|m|s|-1, and `e` for a power of ten."""
    values = positional(arguments)
    if not values or not values[0]:
        raise Refused("")
    if "+" in arguments or "-" in arguments:
        raise Refused("")
    first, *units = values
    text = formatted(first, wiki)
    if error := arguments.get("\xb1"):
        text += f" \xb1 {formatted(error, wiki)}"
    if power := arguments.get("e", ""):
        if not re.fullmatch(r"[-+\u2212]?\d+", power):
            raise Refused(power)
        text = f"{f'({text})' if error else text}\u00d710^{power}"
    ranges = wiki.lists.get("range", {})
    while len(units) > 1 and (word := _range(units[0], ranges)) and _is_number(units[1]):
        text += word + formatted(units[1], wiki)
        units = units[2:]
    named = [key for key in arguments if key in ranges and key not in ("\xb1", "+", "-")]  # 5|\xe0=10|km, as in French
    if len(named) > 1:
        raise Refused(named[1])
    for key in named:
        text += ranges[key] + formatted(arguments[key], wiki)
    codes: list[str] = []
    for one in filter(None, units):
        if re.fullmatch(r"[-+\u2212]?\d", one) and codes:
            codes[-1] += {"2": "\xb2", "3": "\xb3"}.get(one, f"^{one}")
        elif _is_number(one) or one in ranges:
            raise Refused(one)
        else:
            codes.append(wiki.lists.get("unit", {}).get(one, one))
    return " ".join([text, *codes])


def date(wiki: Wiki, arguments: Arguments) -> str:
    """Return a date made of the day, the month (a number or a name) and the year, given in this order."""
    values = positional(arguments)
    if not values:
        raise Refused("")
    words = values[0].split() if " " in values[0] else [one for one in values[:3] if one]
    months = wiki.lists.get("month", {})
    if len(words) > 1 and words[0].isdecimal() and len(words[0]) < 3:
        if not 1 <= int(words[0]) <= 31:
            raise Refused(words[0])
        day = str(int(words[0]))
        words[0] = wiki.lists.get("day", {}).get(day, day)
        if words[1].isdecimal():
            words[1] = _month(words[1], months)
    elif len(words) > 1 and words[0].isdecimal() and len(words[0]) > 2:
        raise Refused(words[0])  # the year first: another order
    elif len(words) == 1 and words[0].isdecimal() and len(words[0]) < 3:
        raise Refused(words[0])
    return wiki.lists.get("date", {}).get("between", " ").join(words)


def _month(text: str, months: Mapping[str, str]) -> str:
    if not (name := months.get(str(int(text)))):
        raise Refused(text)
    return name


def age(_: Wiki, arguments: Arguments) -> str:
    """Return the years between two dates. The age today is not known."""
    values = positional(arguments)
    try:
        begin, end = (datetime.date(*map(int, values[at : at + 3])) for at in (0, 3))
    except (TypeError, ValueError) as error:
        raise Refused("") from error
    return str(end.year - begin.year - ((end.month, end.day) < (begin.month, begin.day)))


def as_of(wiki: Wiki, arguments: Arguments) -> str:
    """Return "As of March 2014" of 2014|3."""
    if "alt" in arguments:
        return arguments["alt"]
    values = positional(arguments)[:3]
    months = wiki.lists.get("month", {})
    date = [_month(one, months) if at == 1 and one.isdecimal() else one for at, one in enumerate(values)]
    since = "since" if "since" in arguments else "as of"
    words = [] if "bare" in arguments else [since if "lc" in arguments else since.capitalize()]
    return " ".join([*words, *([arguments["pre"]] if "pre" in arguments else []), *reversed(date)])


def coordinates(_: Wiki, arguments: Arguments) -> str:
    """Return a place as Template:Coord shows it in a line: 13|19|N|169|9|W, or decimal degrees with their signs."""
    if arguments.get("display", "inline").startswith(("title", "t")):
        return ""
    values = positional(arguments)
    parts: list[str] = []
    begin = 0
    for at, one in enumerate(values):
        if one in ("N", "S", "E", "W") and begin < at <= begin + 3:
            degrees = zip(map(_degrees, values[begin:at]), "\xb0\u2032\u2033", strict=False)
            parts.append("".join(map("".join, degrees)) + one)
            begin = at + 1
    if not parts and len(values) >= 2:
        pairs = zip(map(_degrees, values[:2]), ("NS", "EW"), strict=True)
        parts = [f"{number.lstrip('-')}\xb0{ends[number.startswith('-')]}" for number, ends in pairs]
    if len(parts) != 2:
        raise Refused("")
    return " ".join(parts)


def _degrees(value: str) -> str:
    if not re.fullmatch(r"-?\d+(?:\.\d+)?", value):
        raise Refused(value)
    return value


def rank(text: str) -> str:
    """Return a French ordinal in Roman or Arabic numerals with its ending."""
    return f"{text}er" if text in ("I", "1") else f"{text}e"


FUNCTIONS: dict[str, Callable[[Wiki, Arguments], str]] = {
    "convert": convert,
    "val": value,
    "fraction": fraction,
    "quantity": quantity,
    "date": date,
    "age": age,
    "as-of": as_of,
    "coord": coordinates,
}
