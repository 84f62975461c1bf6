"""Questions with choices: RACE, SWAG, and one's own files."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast, get_args

from bert.core.errors import InputError
from tasks import choices, race, swag
from tasks.choice import Choice
from tasks.config import TaskData
from tasks.examples import ChoiceExample, Skipped
from tasks.known import KnownData, Split

RACE_FILES: dict[Split, dict[str, str]] = {split: {"": split} for split in ("train", "dev", "test")}
SWAG_FILES: dict[Split, dict[str, str]] = {"train": {"": "train.csv"}, "dev": {"": "val.csv"}, "test": {"": "test.csv"}}
FOUR = ("0", "1", "2", "3")


def _race(data: TaskData, path: Path, split: Split, skipped: Skipped) -> Iterator[ChoiceExample]:
    return race.read(path.parent, split_of(path), data.levels, skipped, answers=split != "test")


def split_of(folder: Path) -> Split:
    """Return the split of a folder of RACE, by its name. Raise InputError for another name."""
    for split in get_args(Split):
        if folder.name == split:
            return cast(Split, split)
    raise InputError(f"{folder}: not a split of RACE; give its folder train, dev or test")


def _swag(data: TaskData, path: Path, split: Split, skipped: Skipped) -> Iterator[ChoiceExample]:
    return swag.read(path, skipped, labels=split != "test")


def _choices(data: TaskData, path: Path, split: Split, skipped: Skipped) -> Iterator[ChoiceExample]:
    return choices.read(path, skipped, labels=split != "test")


RACE = KnownData(kind=Choice, read=_race, files=RACE_FILES, metrics=("accuracy",), labels=FOUR, folder="RACE")
SWAG = KnownData(kind=Choice, read=_swag, files=SWAG_FILES, metrics=("accuracy",), labels=FOUR)
CHOOSE = KnownData(kind=Choice, read=_choices, files={}, metrics=("accuracy",))
