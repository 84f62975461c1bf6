"""What `bert.load` gives for a run of squad.train: answers from texts."""

from collections.abc import Iterator

from bert import api
from bert.api import Answer, Functions, Settings
from bert.runs import Run
from squad import model
from squad.answers import MAX_ANSWER_LENGTH, Answers
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

    def _answers(self, questions: list[str], texts: list[str]) -> Iterator[Answer]:
        for begin in range(0, len(questions), AT_ONCE):
            chunk, passages = questions[begin : begin + AT_ONCE], list(dict.fromkeys(texts[begin : begin + AT_ONCE]))
            numbers = {text: number for number, text in enumerate(passages)}
            examples = [
                Example(id=str(place), question=question, passage=numbers[texts[place]], answers=())
                for place, question in enumerate(chunk, begin)
            ]
            for _, answers in self.reader.answer(Dataset(passages=passages, examples=examples)):
                yield _answer(answers, self.limit)


def _answer(answers: Answers, limit: float | None) -> Answer:
    candidates = tuple(
        api.Candidate(text=one.text, start=one.start, end=one.start + len(one.text), probability=one.probability)
        for one in answers.candidates
    )
    best = answers.best(limit)
    probability = next((one.probability for one in candidates if one.text == best.text), best.probability)
    return Answer(
        text=best.text,
        start=best.start,
        end=best.start + len(best.text),
        probability=probability,
        candidates=candidates,
        null_odds=answers.null_odds,
    )
