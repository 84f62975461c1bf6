"""Questions about a plan."""

import dataclasses
import re

from bert.plan import hardware, what_if
from bert.plan.forecast import Forecast, Job, forecast
from bert.plan.simulate import Failures
from bert.recipes import RECIPES


def plan(nodes: int) -> Forecast:
    config = RECIPES["bert_large_phase1"].phases[0].config
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, vocab_size=30_522))
    return forecast("it", config, hardware.cluster("v100-sxm2-32", nodes), Job(128, 20))


def share(text: str) -> float:
    found = re.search(r"([\d.]+) of the", text)
    assert found
    return float(found[1])


def test_each_question_has_an_answer_in_its_direction() -> None:
    found = dict(what_if.answers([plan(6)], Failures(node_hours=300.0, restart=600.0)))
    assert share(found["3 nodes"]) > 1.8 and share(found["12 nodes"]) < 0.55
    assert share(found["10 Gb/s a node"]) > 1.05
    assert 1.15 < share(found["a node 20% slower"]) <= 1.2
    assert 1.0 < share(found["times vary by 5%"]) < 1.2
    assert "one in 50 h" in found["failures"]


def test_one_node_has_no_network_to_ask_about() -> None:
    assert not any("Gb/s" in label for label, _ in what_if.answers([plan(1)], Failures(node_hours=300.0)))
