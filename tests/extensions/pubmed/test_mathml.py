"""Formulas of abstracts, as the elements of MathML 3 (W3C, chapter 3) have them, stay what they are as text."""

import re

import pytest

from extensions.pubmed import abstract

TABLE = "<mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr><mtr><mtd><mn>3</mn></mtd></mtr></mtable>"
TEX = r"\documentclass[12pt]{minimal}\usepackage{amsmath}\begin{document}$$\alpha$$\end{document}"


def text_of(marked: str) -> str:
    content = (
        f"<PubmedArticle><MedlineCitation><Article><Abstract><AbstractText>{marked}</AbstractText></Abstract></Article>"
    )
    ((_, text),) = abstract.parse(f"{content}</MedlineCitation></PubmedArticle>".encode()).sections
    return text


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("<mfrac><mn>3</mn><mn>4</mn></mfrac>", "3/4"),
        ("\n <mfrac>\n <mn> 3 </mn>\n <mn>4</mn>\n </mfrac>\n", "3/4"),
        ("<mn>1</mn><mo>&#x2064;</mo><mfrac><mn>1</mn><mn>2</mn></mfrac>", "1 1/2"),
        ("<mfrac><mrow><mi>a</mi><mo>+</mo><mn>1</mn></mrow><mrow><mn>2</mn><mi>b</mi></mrow></mfrac>", "(a+1)/(2b)"),
        ("<mfrac><mfrac><mn>1</mn><mn>2</mn></mfrac><mn>3</mn></mfrac>", "(1/2)/3"),
        ("<mfrac linethickness='0'><mn>5</mn><mn>2</mn></mfrac>", "5 choose 2"),
        ("<mn>3</mn><mo>x</mo><msup><mn>10</mn><mrow><mo>-</mo><mn>6</mn></mrow></msup><mi>ml</mi>", "3x10^-6 ml"),
        ("<mn>10</mn><msup><mrow/><mn>6</mn></msup>", "10^6"),
        ("<mo>[</mo><msup><mrow/><mn>18</mn></msup><mi>F</mi><mo>]</mo>", "[18F]"),
        ("<msup><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow><mn>2</mn></msup>", "(a+b)^2"),
        ("<msup><mi>f</mi><mo>&#x2032;</mo></msup>", "f\u2032"),
        ("<msup><mi>e</mi><mrow><mo>-</mo><mi>k</mi><mi>t</mi></mrow></msup>", "e^(-kt)"),
        ("<msub><mi>H</mi><mn>2</mn></msub><mi>O</mi>", "H2O"),
        ("<msub><mi>log</mi><mn>10</mn></msub><mn>5</mn>", "log10 5"),
        ("<msub><mn>5</mn><mn>1</mn></msub>", "5_1"),
        ("<msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup>", "x_i^2"),
        ("<msqrt><mi>s</mi></msqrt><mo>=</mo><mn>13</mn><mspace/><mtext>TeV</mtext>", "\u221as=13 TeV"),
        ("<msqrt><mn>1</mn><mo>+</mo><mn>2</mn></msqrt><mn>3</mn>", "\u221a(1+2)3"),
        ("<msqrt><mn>2</mn></msqrt><mn>3</mn>", "\u221a2 3"),
        ("<mroot><mn>8</mn><mn>3</mn></mroot>", "8^(1/3)"),
        ("<mfenced><mn>1</mn><mn>2</mn></mfenced>", "(1, 2)"),
        ("<mfenced open='[' close=')' separators=';,'><mn>1</mn><mn>2</mn><mn>3</mn></mfenced>", "[1; 2, 3)"),
        (f"<mo>[</mo>{TABLE}<mo>]</mo>", "[1, 2; 3]"),
        ("<mover><mi>x</mi><mo>&#xaf;</mo></mover>", "x\u0304"),
        ("<mover><mi>AB</mi><mo>&#x2192;</mo></mover>", "AB"),
        (
            "<munderover><mo>&#x2211;</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mn>9</mn></munderover>",
            "\u2211_(i=1)^9",
        ),
        (
            "<semantics><mi>&#x3b1;</mi><annotation encoding='application/x-tex'>$\\alpha$</annotation></semantics>",
            "\u03b1",
        ),
        ("<mmultiscripts><mi>U</mi><mprescripts/><mn>92</mn><mn>235</mn></mmultiscripts>", "235_92 U"),
        ("<mmultiscripts><mi>C</mi><mprescripts/><none/><mn>14</mn></mmultiscripts>", "14C"),
        ("<mphantom><mn>9</mn></mphantom><mn>1</mn><mn>0</mn>", "10"),
        ("<mn>2</mn><mo>&#x2062;</mo><mn>3</mn>", "2 3"),
        ("<mi>sin</mi><mo>&#x2061;</mo><mi>x</mi>", "sin x"),
    ],
)
def test_a_formula_keeps_its_numbers_apart(formula: str, expected: str) -> None:
    prefixed = re.sub(r"<(/?)(?=\w)", r"<\1mml:", formula)  # a record need not declare the prefix
    assert text_of(f"a <mml:math>{prefixed}</mml:math> b") == f"a {expected} b"
    assert text_of(f"a <math xmlns='http://www.w3.org/1998/Math/MathML'>{formula}</math> b") == f"a {expected} b"


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("3<math><mfrac><mn>1</mn><mn>2</mn></mfrac></math>4", "3 1/2 4"),
        ("10<math><msup><mrow/><mn>6</mn></msup></math> cells", "10^6 cells"),
        ("10<sup>6.5</sup> and log<sub>10</sub>5 and 5<sub>1</sub>", "10^6.5 and log10 5 and 5_1"),
        ("2<sup>n</sup> cells of the 1<sup>st</sup> day", "2^n cells of the 1st day"),
        ("the 1<sup>st</sup> of 2 ml of H<sub>2</sub>O", "the 1st of 2 ml of H2O"),
        ("is<DispFormula><math><mi>x</mi></math></DispFormula>where", "is x where"),
        (
            f"<inline-formula><alternatives><math><mi>x</mi></math><tex-math>{TEX}</tex-math></alternatives>"
            "</inline-formula> grows",
            "x grows",
        ),
        (f"<inline-formula><tex-math>{TEX}</tex-math></inline-formula> grows", "$$\\alpha$$ grows"),
    ],
)
def test_a_formula_stays_apart_from_the_text_beside_it(marked: str, expected: str) -> None:
    assert text_of(marked) == expected
