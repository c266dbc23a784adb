"""Configurations of an MLP's training step on devices, and the reasons why some cannot run."""

from dataclasses import astuple, dataclass, fields

MODELS = {
    "mlp-xs": (8, 512),
    "mlp-small": (16, 8192),
    "mlp-medium": (64, 16384),
    "mlp-large": (96, 32768),
}
"""Name of a model -> (layers, width)."""

SGD_WEIGHTS = frozenset({1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96})
"""The numbers of weights for which DistIR registers its operation SGDOptimizer."""


@dataclass(frozen=True)
class Configuration:
    """A training step of an MLP: its sizes and how it is divided.

    ``layers`` square weights of ``width`` x ``width`` in f16, and ``batch`` rows, on ``data`` x
    ``tensor`` x ``pipeline`` devices, with ``microbatches`` for each replica of ``data``.
    """

    layers: int
    width: int
    batch: int
    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    microbatches: int = 1

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.data * self.tensor * self.pipeline

    @property
    def rows(self) -> int:
        """Rows of the batch that a device takes at a time."""
        return self.batch // self.data // self.microbatches


def refusal(configuration: Configuration) -> str | None:
    """Return the reason why DistIR cannot run a configuration, or None if it can."""
    c = configuration
    for field, value in zip(fields(c), astuple(c), strict=True):
        if value < 1:
            return f"{field.name} must be at least 1, not {value}"
    if c.layers % c.pipeline:
        return f"{c.layers} layers are not divisible by {c.pipeline} stages"
    if c.layers // c.pipeline not in SGD_WEIGHTS:
        return f"SGDOptimizer is not registered for {c.layers // c.pipeline} weights"
    if c.tensor > 1 and c.layers % 2:
        return f"{c.layers} layers cannot be divided in pairs over {c.tensor} devices"
    if c.width % c.tensor:
        return f"a width of {c.width} is not divisible by {c.tensor} devices"
    if c.batch % (c.data * c.microbatches):
        return (
            f"a batch of {c.batch} is not divisible by {c.data} replicas with "
            f"{c.microbatches} microbatches"
        )
    return None
