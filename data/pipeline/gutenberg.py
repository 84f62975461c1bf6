"""The legal text around and between the books of Project Gutenberg: a table of its markers, and how a file is trimmed.

Sources: the files themselves; the markers that github.com/c-w/gutenberg (`_domain_model/text.py`, after
`strip_headers.cpp` of Johannes Krugel) and github.com/gutenbergtools/ebookmaker found in all files.
"""

import re
from typing import NamedTuple

GUTENBERG = r"(?:Proje[ck]?t\w{0,4}|Proyecto|Progetto)\s{1,9}Gutenberg"  # Project, Projekt, Projet, Projeto
OF = r"OF (?:THE |THIS )?(?:COPYRIGHTED )?PROJECT\s+GUTENBERG"
TO_THE_STARS = r"(?:[^*]{0,400}\*{3}|[^\n]*)"  # titles may have two lines

# Lines that begin a book. That of copyrighted books: "*** START OF THE COPYRIGHTED PROJECT GUTENBERG EBOOK ...".
START = re.compile(rf"^[ \t]*+\*{{3}}[ \t]*START {OF}{TO_THE_STARS}", re.M | re.I)
# Lines that end one: with stars; as a sentence, also in other languages; of the first copyrighted books; of the first
# German ones ("Ende dieses Etextes"). A sentence may go on in the next lines.
END_WORD = r"(?:End|Ende|Einde|Fin|Fine|Fim|Slut|Slutt|Slutet|Loppu|Koniec|Konec|V\u00e9ge)"
END = re.compile(
    rf"^[ \t]*+\*{{3}}[ \t]*END {OF}{TO_THE_STARS}"
    rf"|^[ \t]*+\W{{0,9}}+(?:{END_WORD}\b[^\n]{{0,40}}?\b{GUTENBERG}"
    r"|Ende dieses E-?(?:text|book)\w{0,2}\b|End of this E-?(?:text|book)\b|Fin de (?:cet |ce |l')E-?(?:text|book)e?\b"
    r"|End of this is COPYRIGHTED|This is a COPYRIGHTED Project Gutenberg E-?(?:text|book),? Details Above)"
    r"[^\n]*(?:\n(?![ \t]*+\*{3})[^\S\n]*+\S[^\n]*){0,3}",
    re.M | re.I,
)
# Until 2003 a licence with this name stood before or after the book, also "***START** SMALL PRINT! for COPYRIGHTED":
# *END THE SMALL PRINT! ... *Ver.04.29.93*END*, in 1993 ["Small Print" V.12.08.93].
SMALL_PRINT = re.compile(r"^[ \t]*+\*{3,4}[ \t]*START\*+[ \t]*(?:THE )?SMALL PRINT!", re.M | re.I)
SMALL_PRINT_END = re.compile(
    r"^[ \t]*+(?:\*{1,3}[ \t]*END[ \t*]*(?:THE )?SMALL PRINT![^*]{0,200}(?:\*[^*\n]{0,80}\*END\*)?"
    r"|\[\"Small Print\" V\.[^\n\]]{0,40}\])",
    re.M | re.I,
)
# The notice of World Library between the works of Shakespeare.
BETWEEN = re.compile(r"<<[ \t]*THIS ELECTRONIC VERSION OF[^<>]{0,2000}>>")
# The last sentence of the licence since 2003.
LICENCE_END = re.compile(r"subscribe\s+to\s+our\s+email\s+newsletter\s+to\s+hear\s+about\s+new\s+eBooks\.?", re.I)

# A first paragraph that names who produced the electronic text. "*+" does not go back, so a long line costs little.
CREDIT = re.compile(
    r"\A\s*(?:\[?(?:E-?text|This e-?(?:text|book)|Transcribed|Transcription|Produced|Prepared)\b[^\n]{0,40}?\b"
    r"(?:by|from)\b[^\n]*\n(?:[^\S\n]*+\S[^\n]*+\n)*+)",
    re.I,
)
# Paragraphs of the headers of 1991 to 2003 and of licences: sentences that no book has.
LEGAL = re.compile(
    r"Project\s+Gutenberg(?:'s\b|-tm\b|\s+(?:E-?text|E-?book|License|Literary|is\b|legal|volunteers))"
    r"|Gutenberg-tm|www\.gutenberg\.(?:org|net)|promo\.net/pg|pglaf\.org|Small Print!"
    r"|This e-?(?:text|book) is for the use of anyone"
    r"|Copyright laws are changing all over the world|Please do not remove this"
    r"|Please take a look at the important information in this header"
    r"|Free Plain Vanilla Electronic Texts|Readable By Both Humans and By Computers"
    r"|These (?:E-?texts|E-?books) (?:Were )?Prepared By|This file should be named|get a new (?:NUMBER|LETTER)"
    r"|We need your donations|Information (?:on|about) contacting|our e-?texts|GUTINDEX|archive\.org/pub/docs/books"
    r"|^(?:Release Date|Posting Date|Character set encoding|Last Updated|Most recently updated|Edition):"
    r"|\[(?:E-?text|E-?book) ?#\d+\]",
    re.I | re.M,
)
# What shows that licence text is left: sentences of the licences, which a foreword about the edition does not have.
LEFT = re.compile(
    r"Gutenberg(?:-tm|\u2122)?\s+(?:License|Literary\s+Archive\s+Foundation|electronic\s+works?)\b"
    r"|e-?(?:text|book)\s+is\s+for\s+the\s+use\s+of\s+anyone\s+anywhere|Small\s+Print!"
    r"|Copyright\s+laws\s+are\s+changing\s+all\s+over\s+the\s+world|(?:START|END) OF (?:THE|THIS) PROJECT GUTENBERG",
    re.I,
)
FIELD = re.compile(r"\s*(?:Title|Author|Editor|Translator|Illustrator|Contributor|Language|Credits|Subtitle):", re.I)
NAMES = ("utenberg", "UTENBERG", "mall Print", "SMALL PRINT", "ELECTRONIC VERSION")
WORDS = (*NAMES, *(f"{e}{word}" for e in "eE" for word in ("text", "-text", "Book", "book")))  # in every marker
LAWS = ("for the use of anyone", "opyright laws are changing")
BLANK = re.compile(r"\n[^\S\n]*\n\s*")
LICENCE = 20_000  # characters; the longest licence has 19,000
LONGEST, GAP, SHORT = 4000, 4, 400  # characters of a legal paragraph; others between two legal ones, and their length
MOST = 200  # paragraphs of a header that are looked at


class Trimmed(NamedTuple):
    """A text without the legal text, and what may be wrong with it."""

    text: str
    is_left: bool
    """whether licence text seems to remain"""
    is_odd: bool
    """whether text that does not look like a licence was removed behind the last end line"""


def trim(text: str) -> Trimmed:
    """Return the book, or books, without Project Gutenberg's legal text. Other text is returned unchanged.

    What is removed is before the first book, behind the last end line, or between an end and the next start. Text
    between two end lines without a start is a further volume.
    """
    if not any(word in text for word in WORDS):
        return Trimmed(text, False, False)
    text = _without_small_print(BETWEEN.sub("", text))
    books, position, is_odd = list[str](), 0, False
    while position < len(text):
        end = END.search(text, position)
        stop = end.start() if end else len(text)
        begin = position
        starts = (START,) if not position else (START, SMALL_PRINT_END, LICENCE_END)
        for pattern in starts:
            for start in pattern.finditer(text, position, stop):
                begin = max(begin, start.end())
        if begin == position > 0 and not end:
            is_odd = len(text) - position > LICENCE and not LEGAL.search(text, position)
            break  # after an END, without another START or END: this is the licence
        book = text[begin:stop]
        if begin > position:
            book = CREDIT.sub("", book)
        if not books or book.strip():
            books.append(_without_edges(book, gap=0 if begin > position else GAP))
        position = end.end() if end else len(text)
    trimmed = "\n".join(books)
    is_left = any(word in trimmed for word in (*NAMES, *LAWS)) and LEFT.search(trimmed) is not None
    return Trimmed(trimmed, is_left, is_odd)


def _without_small_print(text: str) -> str:
    """Return the text before the licence or the text after it, whichever is longer.

    If an end line stands before the licence and text follows it, the licence belongs to a further work. Then return the
    text unchanged.
    """
    begin, end = SMALL_PRINT.search(text), SMALL_PRINT_END.search(text)
    if not begin and not end:
        return text
    before = text[: (begin or end).start()]  # type: ignore[union-attr]
    after = text[end.end() :] if end else ""
    if after.strip() and END.search(before):
        return text
    return max(before, after, key=len)


def _without_edges(text: str, gap: int) -> str:
    """Return a text without legal paragraphs at its beginning and its end.

    gap: number of short paragraphs between two legal ones at the beginning that are removed too, as title, author and
    date of a header. The first paragraph must be legal.
    """
    cut = position = others = 0
    for _ in range(MOST):
        blank = BLANK.search(text, position)
        stop = blank.end() if blank else len(text)
        if _is_legal(text, position, stop) or (cut and FIELD.match(text, position)):
            cut, others = stop, 0
        elif text[position:stop].strip():
            others += 1
            if not cut or others > gap or stop - position > SHORT:
                break
        if not blank:
            break
        position = stop
    text = text[cut:]
    while (cut_at := text.rfind("\n\n", max(0, len(text) - LONGEST), len(text.rstrip()))) >= 0:
        if not _is_legal(text, cut_at, len(text)):
            break
        text = text[:cut_at]
    return text


def _is_legal(text: str, begin: int, stop: int) -> bool:
    return stop - begin <= LONGEST and LEGAL.search(text, begin, stop) is not None
