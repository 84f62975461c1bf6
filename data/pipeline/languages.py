"""The language of texts: its code, what earlier stages say of it, and NLTK's Punkt model of it.

Nothing else depends on it: sentence ends of other scripts and the characters of a vocabulary are found in the text.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from bert.core import manifest
from bert.core.errors import InputError, UsageError

CODE = re.compile(r"[a-z]{2,3}(?:-[a-z0-9]{2,8})*")
PUNKT = {  # the folders of NLTK's punkt_tab
    **{"cs": "czech", "da": "danish", "de": "german", "el": "greek", "en": "english", "es": "spanish"},
    **{"et": "estonian", "fi": "finnish", "fr": "french", "it": "italian", "ml": "malayalam", "nb": "norwegian"},
    **{"nl": "dutch", "no": "norwegian", "pl": "polish", "pt": "portuguese", "ru": "russian", "sl": "slovene"},
    **{"sv": "swedish", "tr": "turkish"},
}


def check(code: str | None) -> None:
    """Raise UsageError if a code is none such as de, pt or zh-hant."""
    if code is not None and not CODE.fullmatch(code):
        raise UsageError(f"--language {code}: not a code of a language, such as de, pt or zh-hant")


def main_part(code: str) -> str:
    """Return the language of a code, without its script or region: zh of zh-hant."""
    return code.partition("-")[0]


def agreed(flag: str | None, recorded: dict[Path, str]) -> str | None:
    """Return the language of sources: `flag` if it is given, else the language that all have; None if it is not known.

    recorded: the language that a source itself states, if it does. Raise InputError if it differs from the given one.
    """
    for source, code in recorded.items():
        if flag and main_part(code) != main_part(flag):
            raise InputError(
                f"{source}: its language is {code}, not --language {flag}; leave the flag out, or check it"
            )
    codes = {main_part(code) for code in recorded.values()}
    return flag or (min(recorded.values(), key=len) if len(codes) == 1 else None)


def recorded(folders: Sequence[Path]) -> dict[Path, str]:
    """Return the languages that the manifests of folders name."""
    entries = {folder: manifest.load(folder).extra.get("language") for folder in folders}
    return {folder: code for folder, code in entries.items() if isinstance(code, str)}


def of(folder: Path) -> dict[str, str]:
    """Return the language that the manifest of a folder names, as its entry for the manifest of a later stage."""
    code = recorded([folder]).get(folder)
    return {"language": code} if code else {}


def punkt_model(code: str) -> Path | None:
    """Return the folder of NLTK's Punkt model of a language, if the user has it (NLTK_DATA)."""
    from nltk import data  # takes a while to load

    name = PUNKT.get(main_part(code))
    folders = [Path(root) / "tokenizers" / "punkt_tab" / name for root in data.path] if name else []
    return next((folder for folder in folders if folder.is_dir()), None)
