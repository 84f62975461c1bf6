"""What `bert.load` gives for a run of a causal model: it continues texts."""

from collections.abc import Iterable

from bert import api
from bert.api import Continuation, Sampling, Settings
from bert.core.errors import UsageError
from bert.engines import engine as engines
from bert.hardware.devices import Device
from bert.runs import Run
from extensions.gpt import generate, trained


class Causal(api.Model):
    """A causal model, which continues texts."""

    def __init__(self, run: Run, settings: Settings, device: Device) -> None:
        """Raise UsageError if the settings have no effect, or if the engine cannot compute the model."""
        if settings.compute != "float32":
            raise UsageError(
                f"compute {settings.compute} has no effect: a causal model computes in float32; leave it out"
            )
        engines.choose(settings.engine, run.config, settings.compute)  # raises an error if it is openvino
        super().__init__(run, settings, None, {"generate": self._generate})
        self.device, self.model = device, trained.load(run.path)

    def _generate(self, prompts: list[str], options: Sampling) -> Iterable[Continuation]:
        how = generate.Options(run=self.run.path, prompts=tuple(prompts), batch=self.settings.batch, **options)
        generator = generate.generator_for(self.model, how)
        for line in generate.texts(self.model, generator, how, self.device):
            yield Continuation(text=line["text"], tokens=line["tokens"], end=line["end"])
