"""The rules by which two answers are compared: SQuAD's, for English, and those of MLQA, for each of its languages.

MLQA (Lewis et al. 2020; mlqa_evaluation_v1.py of facebookresearch/MLQA) removes the articles of the language, all
characters of Unicode's category P and ASCII punctuation, and counts each Chinese character as a word. Its Arabic
article is every pair of the letters alif and lam, wherever it stands. Sets of this family, such as GermanQuAD, are
scored so, too. XQuAD is scored by SQuAD's rules in every language.
"""

import re
import string
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from bert.core.errors import InputError
from squad.examples import Dataset

Language = Literal["en", "es", "hi", "vi", "de", "ar", "zh", "auto"]

ASCII = str.maketrans("", "", string.punctuation)
CHINESE = re.compile("([\u4e00-\u9fa5])")
SHOWN = 200  # passages that show the language
FEWEST = 20  # words: a text of a language below has a frequent word in each 20; a text with fewer words is not judged

# Frequent words, by which the language of a text in Latin letters or in Devanagari is known.
FREQUENT = {
    "en": "the of and to is was by for with that on as it from are which his were",
    "de": "der die das und den von zu mit ist im des auf eine ein einem nicht sich auch war wurde",
    "es": "el la que y en los del las se por un una con su es al era fue",
    "vi": "v\u00e0 c\u1ee7a l\u00e0 c\u00f3 trong \u0111\u01b0\u1ee3c c\u00e1c m\u1ed9t cho nh\u1eefng v\u1edbi",
    "fr": "le la et les des en du dans une est pour que au il par sur",
    "it": "di e il che la un per \u00e8 del della una con sono nel",
    "pt": "o a e do da em um para n\u00e3o uma os no na com foi",
    "nl": "de het een van en dat niet op te zijn met voor",
    "pl": "w i na z si\u0119 do jest nie od przez",
    "sv": "och att det som p\u00e5 av f\u00f6r den till med",
    "da": "og at det er til af p\u00e5 en for den",
    "ro": "\u0219i \u00een de la a cu din pe este care",
    "tr": "ve bir bu i\u00e7in ile olarak da de",
    "id": "yang dan di dari untuk dengan ini pada adalah",
    "hi": "\u0939\u0948 \u0915\u0947 \u0915\u093e \u0915\u0940 \u092e\u0947\u0902 \u0914\u0930 \u092f\u0939",
    "mr": "\u0906\u0939\u0947 \u0906\u0923\u093f \u092f\u093e \u0939\u0947 \u0939\u094b\u0924\u0947",
    "ne": "\u091b \u0930 \u0939\u094b \u092f\u094b \u0925\u093f\u092f\u094b \u092d\u090f\u0915\u094b",
}
# Letters that only one of the languages above has.
OWN = {
    "de": "\u00df",
    "es": "\u00f1\u00bf\u00a1",
    "vi": "\u01b0\u01a1\u1ea1\u1ed1\u1ed9\u1ebf\u1ec7",
    "pl": "\u0142\u0119",
}
# The first characters of their names in Unicode tell scripts; these have one language here.
SCRIPTS = {"CJK": "zh", "ARABIC": "ar", "HIRAGANA": "ja", "KATAKANA": "ja", "HANGUL": "ko"}
NOT_ARABIC = re.compile("[\u067e\u0686\u0698\u06a9\u06af\u06cc\u0679\u06d2\u06c1]")  # of Persian and Urdu


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How an answer becomes the words that are compared."""

    articles: re.Pattern[str] | None
    all_punctuation: bool = True
    """remove Unicode's category P, too"""
    characters: bool = False
    """each Chinese character is a word"""

    def words(self, text: str) -> list[str]:
        """Return the words of an answer: lower case, without punctuation, without articles, in this order."""
        text = text.lower().translate(ASCII)
        if self.all_punctuation:
            text = "".join(character for character in text if unicodedata.category(character)[0] != "P")
        if self.articles:
            text = self.articles.sub(" ", text)
        return (CHINESE.sub(r" \1 ", text) if self.characters else text).split()


def _words(*articles: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(articles)})\b")


ENGLISH = _words("a", "an", "the")
SQUAD = Rules(articles=ENGLISH, all_punctuation=False)
MLQA = {
    "en": Rules(articles=ENGLISH),
    "es": Rules(articles=_words("un", "una", "unos", "unas", "el", "la", "los", "las")),
    "hi": Rules(articles=None),
    "vi": Rules(articles=_words("c\u1ee7a", "l\u00e0", "c\u00e1i", "chi\u1ebfc", "nh\u1eefng")),
    "de": Rules(articles=_words("ein(?:e[nmsr]?)?", "der", "die", "das", "de[nms]")),
    "ar": Rules(articles=re.compile("\u0627\u0644")),
    "zh": Rules(articles=None, characters=True),
}


def rules(language: Language | None, dataset: Dataset, path: Path, flag: str = "--language") -> Rules:
    """Return the rules to score a data set by; None: SQuAD's, with a warning if the passages are not English.

    language: "auto" recognises it from the passages. Raise InputError if this gives no language of MLQA.
    """
    if language is not None and language != "auto":
        return MLQA[language]
    found = language_of(dataset.passages[:SHOWN])
    if language is None:
        if found not in (None, "en"):
            own = f"{flag} {found}" if found in MLQA else "none are for this language"
            print(
                f"warning: {path}: the passages are not English ({found}); they are scored by SQuAD's rules, which are "
                f"for English, and which XQuAD has, too; MLQA's rules: {own}",
                file=sys.stderr,
            )
        return SQUAD
    if found not in MLQA:
        choices = ", ".join(name for name in get_args(Language) if name != "auto")
        raise InputError(f"{path}: its language is {found or 'not recognised'}; give {flag}, one of {choices}")
    print(f"note: {path}: scored by MLQA's rules for {found}", file=sys.stderr)
    return MLQA[found]


def language_of(texts: Iterable[str]) -> str | None:
    """Return the code of the language of texts; "other" for an unknown language, None if the texts are too short."""
    text = "\n".join(texts).lower()
    letters = Counter(filter(str.isalpha, text))
    scripts: Counter[str] = Counter()
    for letter, count in letters.items():
        scripts[unicodedata.name(letter, "").partition(" ")[0]] += count
    if not scripts:
        return None
    script, count = scripts.most_common(1)[0]
    if scripts["HIRAGANA"] + scripts["KATAKANA"] > 0.05 * scripts.total():
        return "ja"
    if script in SCRIPTS:
        return "other" if script == "ARABIC" and len(NOT_ARABIC.findall(text)) > 0.01 * count else SCRIPTS[script]
    if script not in ("LATIN", "DEVANAGARI"):
        return "other"
    in_words = "".join(c if c.isalpha() or unicodedata.category(c)[0] == "M" else " " for c in text)
    words = Counter(in_words.split())
    hits = {language: sum(words[word] for word in frequent.split()) for language, frequent in FREQUENT.items()}
    for language, own in OWN.items():
        hits[language] += sum(map(text.count, own))
    best = max(hits, key=hits.__getitem__)
    if script == "DEVANAGARI":
        return "other" if best in ("mr", "ne") and hits[best] > hits["hi"] else "hi"
    if hits[best] >= max(2, words.total() / FEWEST):
        return best
    return "other" if words.total() >= FEWEST else None
