"""Training steps that tests sweep, and the estimates of their configurations."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from collir.synthesis.sweeping.configuration import Configuration
from collir.synthesis.sweeping.groups import ConfigurationEstimate
from collir.synthesis.sweeping.space import ConfigurationSpace
from collir.tools.machine import preset
from collir.tools.sweep_model import Model


class Subject(NamedTuple):
    """A training step in a file, and sizes of its parameters."""

    path: Path
    sizes: dict[str, int]

    @property
    def model(self) -> Model:
        """The subject of a sweep on nodes of DGX A100."""
        machine = preset("dgx_a100_80gb").op.value()
        text = self.path.read_text(encoding="utf-8")
        return Model(str(self.path), text, "", tuple(self.sizes.items()), machine, "pipe")


GPT = Subject(Path(__file__).parents[3] / "examples" / "models" / "sweep.coll", {})

PERCEPTRON = Subject(Path(__file__).with_suffix(".coll"), {})
"""A small step: a sweep takes a tenth of the time of one of a GPT."""


def space_of(model: Model, devices: int) -> ConfigurationSpace:
    """Return all configurations of a model on so many devices, with at most two chunks."""
    return replace(model.step.space(model.machine, (devices,)), chunks=(2,))


def estimates_of(
    model: Model, configurations: Iterable[Configuration], workers: int = 1
) -> list[tuple[Configuration, ConfigurationEstimate]]:
    """Return the estimates of configurations that are possible."""
    found = model.estimator(workers).estimates(configurations)
    return [(c, estimate) for c, estimate in found if isinstance(estimate, ConfigurationEstimate)]


def all_of(*spaces: ConfigurationSpace) -> list[Configuration]:
    """Return the configurations of spaces."""
    return [c for space in spaces for c in space.configurations(Counter())]
