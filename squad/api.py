"""What `bert.load` gives for a run of squad.train: answers from texts."""

from collections.abc import Iterator
from typing import Any

from bert import api
from bert.api import Answer, Functions, Settings
from bert.runs import Run
from squad import answers, model
from squad.answers import MAX_ANSWER_LENGTH, Answers, Candidate, RankedAnswers
from squad.examples import Dataset, Example
from squad.predict import Options, null_threshold
from squad.reader import Reader

AT_ONCE = 256  # questions whose windows are made at once


class Answering(api.Model):
    """A model that answers questions, as squad.predict does."""

    def __init__(self, run: Run, settings: Settings) -> None:
        self.model = model.load(run, settings.compute, settings.engine)
        super().__init__(run, settings, self.model.encoder)
        self.limit = null_threshold(self.model, run.path, None)
        self.reader = Reader(
            self.model,
            batch=settings.batch,
            n_best=Options.n_best,
            max_answer_length=MAX_ANSWER_LENGTH,
            null=self.limit is not None,
            compiled=False,
        )

    def functions(self) -> Functions:
        """As Model has it."""
        return {"answer": self._answers} | super().functions()

    def _answers(self, questions: list[str], texts: list[Any], among: bool = False) -> Iterator[Answer]:
        """Yield the answer to each question from its text; among: from its list of texts."""
        if among:
            for question, several in zip(questions, texts, strict=True):
                read = list(self._read([question] * len(several), several))
                yield _answer_among(answers.among(read, self.limit is not None, Options.n_best), self.limit)
        else:
            yield from (_answer(one, self.limit) for one in self._read(questions, texts))

    def _read(self, questions: list[str], texts: list[str]) -> Iterator[Answers]:
        for begin in range(0, len(questions), AT_ONCE):
            chunk, passages = questions[begin : begin + AT_ONCE], list(dict.fromkeys(texts[begin : begin + AT_ONCE]))
            numbers = {text: number for number, text in enumerate(passages)}
            examples = [
                Example(id=str(place), question=question, passage=numbers[texts[place]], answers=())
                for place, question in enumerate(chunk, begin)
            ]
            yield from (one for _, one in self.reader.answer(Dataset(passages=passages, examples=examples)))
        self.reader.report("the questions")


def _answer(found: Answers, limit: float | None) -> Answer:
    candidates = tuple(_candidate(one) for one in found.candidates)
    best = found.best(limit)
    probability = next((one.probability for one in candidates if one.text == best.text), best.probability)
    return Answer(
        text=best.text,
        start=best.start,
        end=best.start + len(best.text),
        probability=probability,
        candidates=candidates,
        null_odds=found.null_odds,
    )


def _answer_among(found: RankedAnswers, limit: float | None) -> Answer:
    passage, best = found.best(limit)
    return Answer(
        text=best.text,
        start=best.start,
        end=best.start + len(best.text),
        probability=best.probability if best.text else found.null_probability,
        candidates=tuple(_candidate(one, number) for number, one in found.candidates),
        null_odds=found.null_odds or 0.0,
        passage=passage,
    )


def _candidate(one: Candidate, passage: int = 0) -> api.Candidate:
    end = one.start + len(one.text)
    return api.Candidate(text=one.text, start=one.start, end=end, probability=one.probability, passage=passage)
