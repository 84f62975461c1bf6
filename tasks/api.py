"""What `bert.load` gives for a run of tasks.train: classes, labels, numbers, choices and tags of texts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

from bert import api
from bert.api import Chosen, Class, Labels, Settings, Tagged
from bert.core.errors import UsageError
from bert.runs import Run
from tasks import examples, inputs, loading
from tasks.examples import ChoiceExample, TextExample
from tasks.model import Reader
from tasks.predict import predictions


class OfTask(api.Model):
    """A fine-tuned model: what it predicts is what tasks.predict writes."""

    use: ClassVar[str]
    """the name of its method; that of numbers is regress"""
    result: ClassVar[type]
    """what the method returns; of numbers it is the number"""
    example: ClassVar[Callable[..., Any]]
    """makes an example of an id and what the method is given for one result"""

    def __init__(self, run: Run, settings: Settings) -> None:
        self.fine_tuned = loading.load(run, settings.compute, engine=settings.engine)
        use = "regress" if self.fine_tuned.kind.labels.regression else self.use
        super().__init__(run, settings, self.fine_tuned.encoder, {use: self._results})
        self.reader = Reader(self.fine_tuned, settings.batch, compiled=False)

    def _results(self, *columns: Iterable[Any]) -> Iterator[Any]:
        """Yield the result of each row of columns; print a line at the end if something did not fit."""
        kind = self.fine_tuned.kind
        kind.seen = inputs.EncodingCounts()
        given = (self.example(str(number), *row) for number, row in enumerate(zip(*columns, strict=True)))
        for line in predictions(self.reader, given):
            del line["id"]
            yield line["value"] if kind.labels.regression else self.result(**line)
        kind.seen.report("the texts", kind.length)


class Classifying(OfTask):
    """A class, or a number, of a text or a pair of texts."""

    use = "classify"
    result: ClassVar[type] = Class

    @staticmethod
    def example(identity: str, first: str, second: str | None) -> TextExample:
        """Return the example of a text, or of a pair of texts."""
        return TextExample(id=identity, first=first, second=second)


class Labelling(Classifying):
    """Any number of labels of a text or a pair of texts."""

    use, result = "label", Labels


class Choosing(OfTask):
    """One of several choices."""

    use, result = "choose", Chosen

    @staticmethod
    def example(identity: str, text: str, choices: Sequence[str]) -> ChoiceExample:
        """Return the example of a text with its choices."""
        return ChoiceExample(id=identity, pairs=tuple((text, choice) for choice in choices))


class Tagging(OfTask):
    """A tag for each word of a sentence."""

    use, result, example = "tag", Tagged, staticmethod(examples.sentence)

    def _results(self, *columns: Iterable[Any]) -> Iterator[Any]:
        (sentences,) = columns
        for number, words in enumerate(sentences):
            if not isinstance(words, str) and not _are_texts(words):
                raise UsageError(f"text[{number}] is {words!r}; give a text, or a list of its words")
        return super()._results(sentences)


def _are_texts(words: Any) -> bool:
    """Return whether this is a list of texts."""
    return isinstance(words, list | tuple) and all(isinstance(word, str) for word in words)
