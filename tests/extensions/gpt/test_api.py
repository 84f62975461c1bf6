"""What `bert.load` gives for a causal model has the defaults of the command."""

import dataclasses
import inspect

from bert import api
from extensions.gpt import generate


def test_the_defaults_in_python_are_those_of_the_command() -> None:
    command = {field.name: field.default for field in dataclasses.fields(generate.Options)}
    python = {name: p.default for name, p in inspect.signature(api.Model.generate).parameters.items()}
    own = python.keys() - {"self", "prompt"}
    assert own == api.Sampling.__annotations__.keys()
    assert {name: python[name] for name in own} == {name: command[name] for name in own}
