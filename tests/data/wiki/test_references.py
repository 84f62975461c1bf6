"""Character references of any length mean what a browser makes of them."""

import html

import pytest

from data.wiki import references


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("&#" + "0" * 9000 + "65;&#00000000000000000000x", "A\ufffdx"),
        ("&#" + "9" * 9000 + ";", "\ufffd"),
        ("&#" + "1" * 9000 + " and &amp;#65;", "\ufffd and &#65;"),
        ("&#x" + "f" * 9000 + ";&#x110000;&#1114112;&#xD800;", "\ufffd" * 4),
        ("&#&#;&#x;&;&", "&#&#;&#x;&;&"),
    ],
)
def test_a_number_of_thousands_of_digits_is_no_error(text: str, expected: str) -> None:
    assert references.unescape(text) == expected


def test_other_references_are_as_in_html() -> None:
    text = "&lt;&eacute &notit; &#233; &#xe9 &#128; &#1; &#12345678 &#0000233; &nothing;"
    assert references.unescape(text) == html.unescape(text)
