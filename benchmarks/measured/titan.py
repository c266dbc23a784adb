"""Peak memory of Llama 3 in torchtitan: FSDP, tensor, context and pipeline parallelism."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from measured.memory import GIB, number
from measured.rows import DataError, records
from measured.scores import Measured

MODELS = {
    "8B": (4096, 32, 1024, 14336, 32),
    "70B": (8192, 64, 1024, 28672, 80),
    "405B": (16384, 128, 1024, 53248, 126),
}
"""The width, the heads, the width of keys, the inner width and the layers of each model."""

WORDS = 128256

LOGIT = 14
"""The bytes of a logit: 2 of 16 bits; 4 in f32, of its logarithm and of its gradient each."""

RESERVED = 1.05
"""The bytes that the allocator of PyTorch reserves for each that is in use: a guess."""


@dataclass(frozen=True)
class Run:
    """A run of torchtitan on one of its models.

    Attributes:
        tokens: those of a microbatch on a device, of the sequence as attention has it.
        count: the number of microbatches.
    """

    model: str
    fsdp: int
    tensor: int
    stages: int
    context: int
    tokens: float
    count: int
    interleaved: bool
    selective: bool

    @property
    def weights_of_layer(self) -> float:
        """The weights of a layer on all devices."""
        hidden, _, keys, inner, _ = MODELS[self.model]
        return hidden * (2 * hidden + 2 * keys + 3 * inner)

    @property
    def weights(self) -> float:
        """The weights of the model."""
        hidden, *_, layers = MODELS[self.model]
        return layers * self.weights_of_layer + 2 * WORDS * hidden

    @property
    def of_weights(self) -> float:
        """The bytes of weights: 16 each where they are sharded, in f32 with Adam.

        Two layers and the weights of the logits are gathered in 16 bits; in a pipeline, all of a
        stage are, and the sums of their gradients are in f32.
        """
        hidden, *_ = MODELS[self.model]
        sharded = 16 * self.weights / (self.fsdp * self.context * self.tensor * self.stages)
        if self.stages > 1:
            return sharded + 6 * self.weights / self.tensor / self.stages
        return sharded + 4 * (self.weights_of_layer + WORDS * hidden) / self.tensor

    @property
    def of_layer(self) -> float:
        """The bytes that a layer keeps: its input; with selective recomputation also the results of
        attention and of every other product."""
        hidden = MODELS[self.model][0]
        if not self.selective:
            return 2 * self.tokens * hidden / self.tensor
        return 2 * self.tokens * (self._products / 2 + 3 * hidden / self.tensor)

    @property
    def _products(self) -> float:
        """The numbers that the products of a layer make for a token, on a device."""
        hidden, _, keys, inner, _ = MODELS[self.model]
        return (3 * hidden + 2 * keys + 2 * inner) / self.tensor

    @property
    def of_work(self) -> float:
        """The bytes of a layer that runs backward: its values, and half as much for gradients."""
        hidden, _, _, inner, _ = MODELS[self.model]
        whole = 2 * hidden + (3 * hidden + inner) / self.tensor
        return 1.5 * 2 * self.tokens * (self._products + whole)

    @property
    def peak(self) -> float:
        """The bytes that a device of the first or of the last stage reserves at most."""
        layers = MODELS[self.model][-1] / self.stages
        held = min(self.count, self.stages)
        ahead = 1 + (self.stages - 1) / self.stages / 2 if self.interleaved else 1.0
        first = self.of_layer * layers * held * ahead + self.of_work
        logits = LOGIT * self.tokens * WORDS / self.tensor
        last = self.of_layer * layers + max(logits, self.of_work)
        return RESERVED * (
            self.of_weights + max(first, last) if self.stages > 1 else self.of_weights + last
        )


def peaks(path: Path) -> Iterator[Measured]:
    """Yield the peaks of memory.

    Raises:
        DataError: the table cannot be read, or has another model.
    """
    for line, record in records(path):
        if not record["peak_mem_GiB"]:
            continue
        names = ("fsdp", "tp", "pp", "cp", "seq", "local_batch")
        fsdp, tensor, stages, context, seq, batch = (
            int(number(path, line, record, n)) for n in names
        )
        model = record["model"].rpartition("-")[2]
        if model not in MODELS:
            raise DataError(f"{path}:{line}: error: no shapes of a model {record['model']}")
        interleaved = "Interleaved" in record["technique"]
        parts = stages * (2 if interleaved else 1)
        micro = batch if stages == 1 else max(1, batch // parts)
        selective = record["act_ckpt"].startswith("selective")
        tokens = seq * micro / context
        run = Run(
            model, fsdp, tensor, stages, context, tokens, batch // micro, interleaved, selective
        )
        yield Measured(line, model, GIB * number(path, line, record, "peak_mem_GiB"), run.peak)
