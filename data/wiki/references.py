"""Replace character references, such as `&amp;` and `&#65;`, in text from outside."""

import html
import re

LONG = re.compile(r"&#([0-9]{8,});?")  # more digits than the number of any character


def unescape(text: str) -> str:
    """Return what `html.unescape` does. It raises ValueError for a number of thousands of digits; here it is U+FFFD."""
    return html.unescape(LONG.sub(_shorten, text) if "&#" in text else text)


def _shorten(reference: re.Match[str]) -> str:
    number = reference[1].lstrip("0")
    return f"&#{number or 0};" if len(number) < 8 else "\ufffd"
