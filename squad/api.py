"""What `bert.load` gives for a run of squad.train: answers from texts."""

from collections.abc import Iterator, Sequence
from typing import Any

from bert import api
from bert.api import Answer, Candidate, Settings
from bert.runs import Run
from squad import answers, model
from squad.answers import N_BEST, NO_ANSWER, Answers, RankedAnswers
from squad.examples import Dataset, Example
from squad.predict import null_threshold
from squad.reader import Reader

AT_ONCE = 256  # questions whose windows are made at once


class Answering(api.Model):
    """A model that answers questions, as squad.predict does."""

    def __init__(self, run: Run, settings: Settings) -> None:
        self.fine_tuned = model.load(run, settings.compute, settings.engine)
        super().__init__(run, settings, self.fine_tuned.encoder, {"answer": self._answers})
        self.limit = null_threshold(self.fine_tuned, run.path, None)
        self.reader = Reader(self.fine_tuned, batch=settings.batch, limit=self.limit, compiled=False)

    def _answers(self, questions: list[str], texts: list[Any], among: bool = False) -> Iterator[Answer]:
        """Yield the answer to each question from its text. among: each question has a list of texts."""
        if among:
            for question, several in zip(questions, texts, strict=True):
                yield _answer(self.among(list(self._read([question] * len(several), several))), self.limit)
        else:
            yield from (_answer(_alone(one), self.limit) for one in self._read(questions, texts))

    def _read(self, questions: list[str], texts: list[str]) -> Iterator[Answers]:
        for begin in range(0, len(questions), AT_ONCE):
            chunk = slice(begin, begin + AT_ONCE)
            yield from (one for _, one in self.reader.answer(asked(questions[chunk], texts[chunk])))
        self.reader.report("the questions")

    def among(self, found: Sequence[Answers]) -> RankedAnswers:
        """Return the best answers to one question in several passages. found: the answers in each passage."""
        return answers.among(found, self.limit is not None, N_BEST)


def asked(questions: Sequence[str], texts: Sequence[str]) -> Dataset:
    """Return a dataset of questions, each about its own text; equal texts are stored once."""
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    examples = [
        Example(id="", question=question, passage=numbers[text], answers=())
        for question, text in zip(questions, texts, strict=True)
    ]
    return Dataset(passages=list(numbers), examples=examples)


def _alone(found: Answers) -> RankedAnswers:
    """Return the answers in one text in the form of answers in several texts; one answer may be empty."""
    none = next((one.probability for one in found.candidates if not one.text), NO_ANSWER.probability)
    return RankedAnswers(
        candidates=[(0, one) for one in found.candidates], null_odds=found.null_odds, null_probability=none
    )


def _answer(found: RankedAnswers, limit: float | None) -> Answer:
    passage, best = found.best(limit)
    return Answer(
        text=best.text,
        start=best.start,
        end=best.end,
        probability=best.probability if best.text else found.null_probability,
        candidates=tuple(
            Candidate(text=one.text, start=one.start, end=one.end, probability=one.probability, passage=number)
            for number, one in found.candidates
        ),
        null_odds=found.null_odds or 0.0,
        passage=passage,
    )
