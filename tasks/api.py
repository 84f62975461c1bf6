"""What `bert.load` gives for a run of tasks.train: classes, labels, numbers, choices and tags of texts."""

from collections.abc import Iterable, Iterator
from typing import Any

from bert import api
from bert.api import Chosen, Class, Functions, Labels, Settings, Tagged
from bert.core.errors import UsageError
from bert.runs import Run
from tasks import examples, inputs, loading
from tasks.examples import ChoiceExample, TextExample
from tasks.model import Reader
from tasks.predict import predictions


class OfTask(api.Model):
    """A fine-tuned model: what it predicts is what tasks.predict writes."""

    def __init__(self, run: Run, settings: Settings) -> None:
        self.model = loading.load(run, settings.compute, engine=settings.engine)
        super().__init__(run, settings, self.model.encoder)
        self.reader = Reader(self.model, settings.batch, compiled=False)

    def predict(self, given: Iterable[Any]) -> Iterator[dict[str, Any]]:
        """Yield what is predicted for each example, without its id; tell at the end if something did not fit."""
        kind = self.model.kind
        kind.seen = inputs.EncodingCounts()
        for line in predictions(self.model, self.reader, given):
            yield {name: value for name, value in line.items() if name != "id"}
        kind.seen.report("the texts", kind.length)


def _are_texts(words: Any) -> bool:
    """Return whether this is a list of texts."""
    return isinstance(words, list | tuple) and all(isinstance(word, str) for word in words)


def _texts(firsts: list[str], seconds: list[str | None]) -> Iterator[TextExample]:
    for number, (first, second) in enumerate(zip(firsts, seconds, strict=True)):
        yield TextExample(id=str(number), first=first, second=second)


class Classifying(OfTask):
    """A class, or a number, of a text or a pair of texts."""

    def functions(self) -> Functions:
        """As Model has it."""
        own: Functions = (
            {"regress": self._numbers} if self.model.kind.labels.regression else {"classify": self._classes}
        )
        return own | super().functions()

    def _classes(self, firsts: list[str], seconds: list[str | None]) -> Iterator[Class]:
        return (Class(**line) for line in self.predict(_texts(firsts, seconds)))

    def _numbers(self, firsts: list[str], seconds: list[str | None]) -> Iterator[float]:
        return (line["value"] for line in self.predict(_texts(firsts, seconds)))


class Labelling(OfTask):
    """Any number of labels of a text or a pair of texts."""

    def functions(self) -> Functions:
        """As Model has it."""
        return {"label": self._labels} | super().functions()

    def _labels(self, firsts: list[str], seconds: list[str | None]) -> Iterator[Labels]:
        return (Labels(**line) for line in self.predict(_texts(firsts, seconds)))


class Choosing(OfTask):
    """One of several choices."""

    def functions(self) -> Functions:
        """As Model has it."""
        return {"choose": self._choices} | super().functions()

    def _choices(self, texts: list[str], choices: list[list[str]]) -> Iterator[Chosen]:
        rows = (tuple((text, choice) for choice in of_text) for text, of_text in zip(texts, choices, strict=True))
        given = (ChoiceExample(id=str(number), pairs=pairs) for number, pairs in enumerate(rows))
        return (Chosen(**line) for line in self.predict(given))


class Tagging(OfTask):
    """A tag for each word of a sentence."""

    def functions(self) -> Functions:
        """As Model has it."""
        return {"tag": self._tags} | super().functions()

    def _tags(self, sentences: list[Any]) -> Iterator[Tagged]:
        for number, words in enumerate(sentences):
            if not isinstance(words, str) and not _are_texts(words):
                raise UsageError(f"text[{number}] is {words!r}; give a text, or a list of its words")
        given = (examples.sentence(str(number), words) for number, words in enumerate(sentences))
        return (Tagged(**line) for line in self.predict(given))
