"""The memory of a device in training: weights and their optimiser, kept activations, logits."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from measured.programs import Sizes, kept_bytes
from measured.rows import DataError, Row, records
from measured.scores import Measured

GIB = float(1 << 30)
MIXED = 18
"""The bytes of a weight, its gradient and Adam in mixed precision, gradients summed in f32."""

LOGIT = 6
"""The bytes of a logit in the forward pass: two of 16 bits, and four as cross entropy takes it."""


@dataclass(frozen=True)
class Job:
    """The numbers that decide the memory of a device.

    Attributes:
        sizes: those of a microbatch on a device.
        layers: the layers of the model.
        stages, chunks: the stages of the pipeline, and the chunks of layers of each.
        weights: the weights of a layer on all devices that share one copy of it.
        words: the vocabulary of the first stage and the last; 0 if it does not count.
        bytes_per_weight: those of a weight, its gradient and its optimiser.
        recompute: whether layers run again in the backward pass.
        routed: the bytes that a layer of experts keeps beyond those of a layer without.
        count: the microbatches of an iteration.
    """

    sizes: Sizes
    layers: int
    stages: int
    chunks: int
    weights: float
    words: int
    bytes_per_weight: float
    recompute: bool = False
    routed: float = 0.0
    count: int = 1 << 30

    @property
    def of_weights(self) -> float:
        """The bytes of the weights, gradients and the optimiser of a device of the last stage."""
        count = self.layers / self.stages * self.weights + self.words * self.sizes.hidden
        if self.stages == 1 and self.words:
            count += self.sizes.seq * self.sizes.hidden * self.sizes.tensor
        return self.bytes_per_weight * count / self.sizes.tensor

    def layers_held(self, stage: int) -> float:
        """Return the layers whose activations a stage holds at most, each for a microbatch: in
        1F1B those of as many microbatches as there are stages behind it, and it; interleaved, those
        that Megatron-LM runs ahead."""
        chunk = self.layers / self.stages / self.chunks
        behind = self.stages - 1 - stage
        if self.chunks == 1:
            return chunk * min(behind + 1, self.count)
        return chunk * (2 * behind + (self.chunks - 1) * self.stages + 1)

    def of_activations(self, stage: int) -> float:
        """Return the bytes of the activations that a stage keeps for the backward pass."""
        kept = kept_bytes(self.sizes) + self.routed
        if not self.recompute:
            return kept * self.layers_held(stage)
        sizes = self.sizes
        carried = 2 * sizes.micro * sizes.seq * sizes.hidden
        if sizes.sequence:
            carried /= sizes.tensor
        return carried * self.layers_held(stage) + kept

    @property
    def of_logits(self) -> float:
        """The bytes of the logits of a microbatch in the last stage."""
        words = self.words / self.sizes.tensor
        return LOGIT * self.sizes.micro * self.sizes.seq * words

    @property
    def peak(self) -> float:
        """The bytes that a device of the last stage holds at most."""
        return self.of_weights + self.of_activations(self.stages - 1) + self.of_logits


def largest_bytes(row: Row) -> float:
    """Return the bytes that a device of the first or of the last stage of a row holds at most."""
    sizes = Sizes.of(row)
    full = row.recompute == "full"
    weights = 12 * row.hidden**2
    shape = row.layers, row.pipeline, 1, weights, sizes.vocab, MIXED, full
    job = Job(sizes, *shape, count=row.microbatches)
    return max(job.peak, job.of_weights + job.of_activations(0))


TABLE_5 = {
    "22B": (64, 6144, 48, 8, 1, 1, 4),
    "175B": (96, 12288, 96, 8, 8, 3, 1),
    "530B": (128, 20480, 105, 8, 35, 3, 1),
    "1T": (160, 25600, 128, 8, 64, 1, 1),
}
"""Heads, width, layers, tensor and pipeline parallelism, chunks and microbatch of the models of
Korthikanti et al. (2022), table 3."""


def published_split(path: Path) -> Iterator[Measured]:
    """Yield the parameters and activations of the first stage that Korthikanti et al. publish.

    Raises:
        DataError: the table cannot be read.
    """
    for line, record in records(path):
        heads, hidden, layers, tensor, stages, chunks, micro = TABLE_5[record["model"]]
        sequence = record["mode"] == "seqsel"
        core = "recompute" if sequence else ""
        sizes = Sizes(micro, 2048, hidden, heads, tensor, core, sequence)
        job = Job(sizes, layers, stages, chunks, 12 * hidden**2, 0, MIXED)
        activations = kept_bytes(sizes) * in_flight(job)
        for group, column, predicted in (
            ("weights", "params_optimizer_GiB", job.of_weights),
            ("activations", "activations_GiB", activations),
        ):
            yield Measured(line, group, GIB * number(path, line, record, column), predicted)


def in_flight(job: Job) -> float:
    """Return the layers whose activations the first stage of a full pipeline holds."""
    return job.layers * (1 + (job.stages - 1) / (job.stages * job.chunks) * (job.chunks > 1))


def number(path: Path, line: int, record: Mapping[str, str], name: str) -> float:
    """Return a number of a record.

    Raises:
        DataError: there is no such column, or it is no number.
    """
    if name not in record:
        raise DataError(f"{path}:1: error: no column '{name}'")
    try:
        return float(record[name])
    except ValueError:
        text = f"{name} is a number, not '{record[name]}'"
        raise DataError(f"{path}:{line}: error: {text}") from None


def golden(path: Path) -> Iterator[Measured]:
    """Yield the peaks of the functional tests of Megatron-LM that train GPT and BERT."""
    for line, record in records(path):
        if record["case"].startswith(("gpt3", "bert")):
            job = golden_job(
                record, lambda name, of=record, at=line: int(number(path, at, of, name))
            )
            peak = number(path, line, record, "max_mem_allocated_bytes")
            kind = "experts" if record["experts"] else "dense"
            yield Measured(line, kind, peak, job.peak)


GPUS = 8
"""The GPUs of a functional test."""

ROUTES = 2
"""The experts that a word is routed to."""


def golden_job(record: Mapping[str, str], whole: Callable[[str], int]) -> Job:
    """Return the job of a functional test."""
    hidden, heads, layers = whole("hidden"), whole("heads"), whole("layers")
    tensor, stages, context = whole("tp"), whole("pp"), whole("cp")
    bert = record["case"].startswith("bert")
    chunk = record["layers_per_vp_stage"]
    chunks = max(1, layers // stages // int(chunk)) if chunk else 1
    data = max(1, GPUS // (tensor * stages * context))
    core = (
        "fused" if _is_flash(record) else "recompute" if record["recompute"] == "selective" else ""
    )
    sequence = record["sequence_parallel"] == "true"
    sizes = Sizes(
        whole("micro_batch"), whole("seq") // context, hidden, heads, tensor, core, sequence
    )
    if context > 1:
        sizes = replace(sizes, core="fused")
    words = sizes.padded(30522 if bert else 50257)
    ffn = whole("ffn") if record["ffn"] else 4 * hidden
    experts = int(record["experts"] or 1) / whole("ep")
    weights = 4 * hidden**2 + 2 * hidden * ffn * experts
    tokens = sizes.micro * sizes.seq / tensor
    routed = tokens * (ROUTES * (2 * hidden + 4 * ffn) - 16 * hidden) if record["experts"] else 0.0
    per_weight = 6 + 12 / data if record["dist_optimizer"] == "true" else MIXED
    full = record["recompute"] == "full"
    return Job(sizes, layers, stages, chunks, weights, words, per_weight, full, routed)


def _is_flash(record: Mapping[str, str]) -> bool:
    """Return whether attention keeps no matrices. Of the tests with Transformer Engine, those that
    resume from a checkpoint on newer images, and those that need not be deterministic, choose such
    a kernel."""
    case, newer = (
        record["case"],
        record["platform"].startswith("dev") or record["platform"] == "lts",
    )
    return "nondeterministic" in case or (newer and "resume" in case and "_te_" in case)
