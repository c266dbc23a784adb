"""Published configurations on H100s beside what a sweep picks: ``python benchmarks/plans.py``.

Rows of --data say how Llama 3 and GPT-3 were trained: devices, batch, degrees, ZeRO, and seconds of
a step. Each configuration that a program of `collir new` can be is simulated, and `collir sweep`
looks for the fastest one on as many devices, for the same batch, with its default options but for
an axis of words where a row has one.
"""

import argparse
import csv
import io
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from published import placed

import collir
from collir.ir.diagnostics import DiagnosticError
from collir.syntax.units import bytes_text, seconds_text
from collir.synthesis.sweeping.configuration import CONTEXT, UNSTAGED, Configuration
from collir.tools.collir import main as collir_tool
from collir.tools.machine import preset
from collir.tools.sweep_model import Model

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data" / "public" / "training_public.csv"
GPT = ROOT / "examples" / "models" / "sweep.coll"
MACHINE = "dgx_h100"
MEMORY, FULL = 80e9, 3
SECONDS = 150
"""The longest that a sweep may take."""

MODELS = {
    "llama3-8b": "llama-3-8b",
    "llama3-70b": "llama-3-70b",
    "llama3.1-405b": "llama-3-405b",
}
"""Names in the table -> those of `collir new`."""

GPT_3 = {"hidden": 12288, "heads": 96, "layers": 96}

DEVICES = 8, 64, 128, 256, 512
"""The numbers of devices of the rows: at others, times are those of one of these."""

PAGE = ROOT / "docs" / "plans.md"
HEAD = """\
# Plans beside published configurations

Written by `python benchmarks/plans.py --page`; do not edit.

Steps of Llama 3 and GPT-3 on H100s, as their authors published them: NVIDIA's benchmarks of NeMo
and MaxText, and torchtitan. Each configuration is a program of [collir new](models.md) (GPT-3: of
[sweep.coll](../examples/models/sweep.coll)), compiled and simulated on `@dgx_h100` as a
[sweep](sweep.md) does it; nothing is fitted to these rows. The sweep has its default options, and
an axis of words where a row has one. Most rows do not say what was computed again: here it is
nothing, but all layers for those of ZeRO-3 that lack the memory otherwise. Configurations are
tensor/data/stages, words (`cp`), the sequences of a microbatch, chunks of a stage, ZeRO.

All rows ran in 80 GB. What simulations need more, where they do, are activations: a layer keeps
what its program reads again, with results of maps that kernels make again. So a pick that has the
memory here has it there, and a sweep may miss plans that fit there alone.
"""


@dataclass(frozen=True)
class Row:
    """A published step.

    Attributes:
        subject: the model, the words of a sequence, the devices and the batch.
        degrees: the sizes of axes of tensor parallelism, stages and words.
        micro: the sequences of a microbatch.
        chunks: the chunks of a stage.
        zero: the stage of ZeRO.
        divided: whether sequences are divided over the axis of tensor parallelism.
        seconds: the time of a step.
    """

    subject: tuple[str, int, int, int]
    degrees: tuple[int, int, int]
    micro: int
    chunks: int
    zero: int
    recompute: bool
    divided: bool
    seconds: float
    framework: str


def rows(path: Path) -> Iterator[Row]:
    """Yield the rows of the table that say all of this, without those of 8-bit products."""
    with path.open(encoding="utf-8") as file:
        for each in csv.DictReader(file):
            known = all(each[x] for x in ("tp", "pp", "gpus", "global_batch", "micro_batch"))
            asked = each["model"] in MODELS or each["model"] == "gpt3-175b"
            told = each["recompute"] in ("not stated", "full") and each["iteration_s"]
            bf16 = each["machine"] == "h100" and each["precision"] == "bf16"
            if not (asked and known and told and bf16 and int(each["gpus"]) in DEVICES):
                continue
            if each["seq"] == "4096":  # NVIDIA's runs of fine-tuning
                continue
            numbers = (int(each[x]) for x in ("seq", "gpus", "global_batch"))
            yield Row(
                (each["model"], *numbers),
                (int(each["tp"]), int(each["pp"]), int(each["cp"] or 1)),
                int(each["micro_batch"]),
                int(each["vp"]) if each["vp"].isdecimal() else 1,
                FULL if "zero-3" in each["dp_or_fsdp"] else 1,
                each["recompute"] == "full",
                each["sequence_parallel"] == "yes",
                float(each["iteration_s"]),
                each["framework"].split(" (")[0],
            )


def model_of(subject: tuple[str, int, int, int], words: bool) -> Model:
    """Return the program of a model."""
    name, seq, _, batch = subject
    sizes = {"seq": seq, "batch": batch}
    if name in MODELS:
        text = io.StringIO()
        with redirect_stdout(text):
            collir_tool(["new", "--model", MODELS[name]])
        path, program = f"{MODELS[name]}.coll", text.getvalue()
    else:
        sizes |= GPT_3
        path, program = str(GPT), GPT.read_text(encoding="utf-8")
    added = (CONTEXT,) * words
    machine = preset(MACHINE).op.value()
    return Model(path, program, "", tuple(sizes.items()), machine, "pipe", None, added)


def configuration_of(model: Model, row: Row) -> Configuration:
    """Return the configuration of a row: tensor parallelism innermost, stages outermost.

    Raises:
        ValueError: its degrees do not divide the devices or the batch.
    """
    tensor, stages, words = row.degrees
    _, _, devices, batch = row.subject
    data, rest = divmod(devices, tensor * stages * words)
    microbatches, left = divmod(batch, max(data, 1) * row.micro)
    if rest or left or not data:
        raise ValueError(f"{devices} devices are no {tensor} x {stages} x {words}")
    sizes = {"model": tensor, CONTEXT: words, "data": data, "pipe": stages}
    factors = placed(model, devices, sizes)
    layers = model.step.parameters[model.step.layers]
    parts = stages * row.chunks
    uneven = layers % parts > 0
    most = -(-layers // parts)
    cut = (most - 1, *[most] * (parts - 2), most - 1)  # embedding and head count as layers
    if uneven and sum(cut) != layers:
        raise ValueError(f"{layers} layers are not in {parts} parts")
    return Configuration(
        tuple((name, factors[name]) for name in model.step.axes),
        "pipe",
        batch,
        microbatches,
        UNSTAGED if stages == 1 else "interleaved" if row.chunks > 1 else "1f1b",
        row.chunks,
        row.recompute,
        row.zero,
        ("model",) * (row.divided and tensor > 1),
        cut if uneven else (),
    )


def picked(model: Model, devices: int) -> tuple[dict[str, Any], bool, float]:
    """Return the first of a sweep, whether others may be faster, and the seconds that it took."""
    start = time.perf_counter()
    options: dict[str, Any] = {"degree": {CONTEXT: [1, 2, 4]}} if model.added else {}
    found = collir.sweep(
        model.text,
        machine=f"@{MACHINE}",
        devices=devices,
        set_size=dict(model.sizes),
        time_limit=SECONDS,
        top=1,
        **options,
    )
    [space] = found["spaces"]
    return found["best"][0], space["complete"], time.perf_counter() - start


def report(subject: tuple[str, int, int, int], own: Sequence[Row], sweeps: bool) -> Iterator[str]:
    """Yield the lines of a table, with what a sweep picks if it is asked for."""
    name, seq, devices, batch = subject
    yield f"\n## {name}, {devices} H100, {batch} sequences of {seq:,}\n"
    yield "| | measured | simulated | error | memory |"
    yield "|---|--:|--:|--:|--:|"
    model = model_of(subject, any(row.degrees[2] > 1 for row in own))
    best = math.inf
    for row in own:
        measured = seconds_text(row.seconds)
        try:
            configuration = configuration_of(model, row)
            simulation = model.simulated(configuration)
            if row.zero == FULL and simulation.peak > MEMORY:
                configuration = replace(configuration, recompute=True)
                simulation = model.simulated(configuration)
        except (DiagnosticError, ValueError) as error:
            reason = str(error).splitlines()[0].partition(": error: ")[2] or str(error)
            reason = reason.partition(":")[0]
            yield f"| {row.framework}: {row.degrees} | {measured} | - | {reason} | |"
            continue
        best = min(best, simulation.time)
        c, error = configuration, simulation.time / row.seconds - 1
        text = _text({**c.degrees, "rows": row.micro, "chunks": c.chunks, "zero": c.zero})
        again = ", all again" if c.recompute else ""
        columns = measured, seconds_text(simulation.time), f"{error:+.1%}"
        memory = bytes_text(simulation.peak)
        yield f"| {row.framework}: {text}{again} | {' | '.join(columns)} | {memory} |"
    if not sweeps:
        return
    try:
        pick, complete, took = picked(model, devices)
    except DiagnosticError as error:
        yield f"\nThe sweep finds none: {error.diagnostics[0].message}"
        return
    micro = batch // pick["data"] // pick.get("replica", 1) // pick["microbatches"]
    text = _text({**pick, "rows": micro})
    again = "" if pick["recompute"] == "none" else f", {pick['recompute']} again"
    seconds, memory = seconds_text(pick["seconds"]), bytes_text(pick["memory_bytes"])
    yield f"| **sweep**: {text}{again} | - | {seconds} | | {memory} |"
    share = f"{pick['seconds'] / best:.0%} of the time of the fastest row"
    ended = "" if complete else ", which is all that it had: others may be faster"
    yield f"\nThe pick takes {share}, both simulated. The sweep took {took:.0f} s{ended}."


def _text(values: dict[str, Any]) -> str:
    """Return a configuration in a few words."""
    text = f"{values.get('model', 1)}/{values['data'] * values.get('replica', 1)}/{values['pipe']}"
    words = values.get(CONTEXT, 1)
    text += f", cp {words}" if words > 1 else ""
    text += f", {values['rows']}"
    text += f", {values['chunks']} chunks" if values["chunks"] > 1 else ""
    return f"{text}, ZeRO-{values['zero']}" if values["zero"] else text


def main() -> None:
    """Print a table for each model, number of devices and batch."""
    parser = argparse.ArgumentParser(description="Plans beside published configurations.")
    parser.add_argument("--data", type=Path, default=DATA, help="the table")
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--rows", action="store_true", help="no sweeps")
    parser.add_argument("--only", default="", help="the models whose name has this in it")
    options = parser.parse_args()
    groups: dict[tuple[str, int, int, int], list[Row]] = {}
    for row in rows(options.data):
        groups.setdefault(row.subject, []).append(row)
    lines = [HEAD]
    for subject, own in sorted(groups.items()):
        if options.only in subject[0]:
            for line in report(subject, [*dict.fromkeys(own)], not options.rows):
                lines.append(line)
                print(line, flush=True)
    if options.page:
        PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
