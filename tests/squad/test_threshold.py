"""The threshold is the best that any would be, and is believed only for the weights it was tuned for."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.core.errors import IntegrityError, UsageError
from squad import threshold
from squad.threshold import Outcome

ODDS = st.sampled_from([-3.5, -1.0, math.nextafter(-1.0, 0), math.nextafter(1.0, 0), 1.0, 0.25]) | st.floats(-9, 9)
PAIRS = st.sampled_from([(0.0, 0.0), (0.0, 0.25), (0.0, 0.5), (1.0, 1.0)])  # whose sums are exact: ties are ties
OUTCOMES = st.lists(st.builds(Outcome, ODDS, PAIRS, st.booleans()), min_size=1, max_size=9)


def scored(outcomes, limit):
    """Exact match and F1 in percent where odds above the limit mean none, question by question."""
    pairs = [(float(o.none),) * 2 if o.odds > limit else o.answered for o in outcomes]
    return tuple(100 * sum(pair[k] for pair in pairs) / len(pairs) for k in (0, 1))


@given(OUTCOMES)
def test_the_threshold_is_the_lowest_of_those_with_the_highest_f1(outcomes):
    odds = sorted({outcome.odds for outcome in outcomes})
    limits = [math.nextafter(odds[0], -math.inf), *odds]
    scores = [scored(outcomes, limit) for limit in limits]
    best = max(range(len(limits)), key=lambda k: scores[k][1])  # the first of several
    tuned = threshold.tune(outcomes)
    assert [o.odds > tuned.threshold for o in outcomes] == [o.odds > limits[best] for o in outcomes]
    assert (tuned.exact, tuned.f1) == pytest.approx(scores[best])
    assert tuned.total == len(outcomes)


def test_no_odds_are_near_the_threshold():
    """They are computed again where it is used, and may be off a little."""
    outcomes = [Outcome(odds, (float(odds < 2), float(odds < 2)), odds > 2) for odds in (-5.0, 1.0, 4.0, 6.5)]
    assert threshold.tune(outcomes).threshold == 2.5
    assert threshold.tune(outcomes[:2]).threshold > 1.1
    assert threshold.tune(outcomes[2:]).threshold < 3.9


def test_equal_odds_are_not_cut_apart():
    """Answering the first alone would be best, but no threshold can say so."""
    outcomes = [Outcome(1.0, (1.0, 1.0), False), Outcome(1.0, (0.0, 0.0), True), Outcome(3.0, (0.0, 0.0), True)]
    tuned = threshold.tune(outcomes)
    assert tuned.threshold < 1.0
    assert tuned.f1 == pytest.approx(200 / 3)


def test_a_threshold_is_for_the_weights_it_was_tuned_for(tmp_path):
    assert threshold.load_threshold(tmp_path, "w1") is None
    (tmp_path / threshold.NAME).write_text(json.dumps({"threshold": -1.25, "weights": "w1"}))
    assert threshold.load_threshold(tmp_path, "w1") == -1.25
    with pytest.raises(UsageError, match=r"null_threshold\.json: tuned for another checkpoint; tune again"):
        threshold.load_threshold(tmp_path, "w2")


def test_every_flipped_bit_is_found_or_harmless(tmp_path):
    tuned = {"threshold": -1.25, "exact": 71.5, "f1": 73.25, "total": 17, "dataset": "dev.json", "weights": "w1"}
    threshold.store_threshold(tmp_path, tuned)
    path = tmp_path / threshold.NAME
    data = path.read_bytes()
    for bit in range(8 * len(data)):
        path.write_bytes(data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :])
        try:
            assert threshold.load_threshold(tmp_path, "w1") == -1.25, bit
        except IntegrityError:
            continue
