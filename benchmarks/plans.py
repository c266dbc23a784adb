"""Published configurations on H100s beside what a sweep picks: ``python benchmarks/plans.py``.

Rows of --data say how Llama 3 and GPT-3 were trained: devices, batch, degrees, ZeRO, and seconds of
a step. Each configuration that a program of `collir new` can be is simulated, and `collir sweep`
looks for the fastest one on as many devices, for the same batch, with its default options but for
an axis of words where a row has one.
"""

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from measured.published_steps import NotPredictedError, PublishedStep, model_of, predicted, steps

import collir
from collir.ir.diagnostics import DiagnosticError
from collir.syntax.units import bytes_text, seconds_text
from collir.synthesis.sweeping.configuration import CONTEXT
from collir.tools.sweep_model import Model

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data" / "public" / "training_public.csv"
MACHINE = "dgx_h100"
SECONDS = 150
"""The longest that a sweep may take."""

LAYERS = {"llama3-8b": 32, "llama3-70b": 80, "llama3.1-405b": 126, "gpt3-175b": 96}
"""The models of the page, and their layers: rows of others are of parts of them."""

DEVICES = 8, 64, 128, 256, 512
"""The numbers of devices of the rows: at others, times are those of one of these."""

PAGE = ROOT / "docs" / "plans.md"
HEAD = """\
# Plans beside published configurations

See how close simulated steps are to NVIDIA's published ones of Llama 3 and GPT-3 on H100s (NeMo,
MaxText), and what a sweep would have picked. Each configuration is a program of [collir
new](models.md) (GPT-3: of [sweep.coll](../examples/models/sweep.coll)), compiled and simulated on
`@dgx_h100` as a [sweep](sweep.md) does it; nothing is fitted to these rows. The sweep has its
default options, and an axis of words where a row has one. Most rows do not name their
recomputation: here it is none, or full for ZeRO-3 that lacks memory. Configurations are
tensor/data/stages, words (`cp`), the sequences of a microbatch, chunks of a stage, ZeRO.

Written by `python benchmarks/plans.py --page`; do not edit.

All rows ran in 80 GB. Simulations may need more, for activations that kernels recompute. So a pick
fits there too, and a sweep may miss plans that fit there alone.
"""


def asked(step: PublishedStep) -> bool:
    """Return whether a step is of the page: Llama 3 or GPT-3 on H100s, not NVIDIA's runs of
    fine-tuning."""
    size = step.size
    whole = size["layers"] == LAYERS.get(step.model)
    return whole and step.machine == "h100" and size["gpus"] in DEVICES and size["seq"] != 4096


Subject = tuple[str, int, int, int]
"""A model, the words of a sequence, the devices, and the batch."""


def subject_of(step: PublishedStep) -> Subject:
    """Return what the steps of one table of the page have in common."""
    size = step.size
    return step.model, size["seq"], size["gpus"], size["global_batch"]


def picked(model: Model, devices: int, batch: int) -> tuple[dict[str, Any], bool, float]:
    """Return the first of a sweep, whether others may be faster, and the seconds that it took."""
    start = time.perf_counter()
    options: dict[str, Any] = {"degree": {CONTEXT: [1, 2, 4]}} if model.added else {}
    found = collir.sweep(
        model.text,
        machine=f"@{MACHINE}",
        devices=devices,
        set_size={**dict(model.sizes), "batch": batch},
        time_limit=SECONDS,
        top=1,
        **options,
    )
    [space] = found["spaces"]
    return found["best"][0], space["complete"], time.perf_counter() - start


def report(subject: Subject, own: Sequence[PublishedStep], sweeps: bool) -> Iterator[str]:
    """Yield the lines of a table, with what a sweep picks if it is asked for."""
    name, seq, devices, batch = subject
    yield f"\n## {name}, {devices} H100, {batch} sequences of {seq:,}\n"
    yield "| | measured | simulated | error | memory |"
    yield "|---|--:|--:|--:|--:|"
    model = model_of(next((step for step in own if step.degrees[2] > 1), own[0]))
    best = math.inf
    for step in own:
        measured = seconds_text(step.seconds)
        try:
            found = predicted(model, step)
        except NotPredictedError as error:
            reason = str(error).partition(":")[0]
            yield f"| {step.framework}: {step.degrees} | {measured} | - | {reason} | |"
            continue
        best = min(best, found.seconds)
        c, error = found.configuration, found.seconds / step.seconds - 1
        text = _text({**c.degrees, "rows": step.micro, "chunks": c.chunks, "zero": c.zero})
        again = ", all again" if c.recompute else ""
        columns = measured, seconds_text(found.seconds), f"{error:+.1%}"
        memory = bytes_text(found.peak)
        yield f"| {step.framework}: {text}{again} | {' | '.join(columns)} | {memory} |"
    if not sweeps:
        return
    try:
        pick, complete, took = picked(model, devices, batch)
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
    groups: dict[Subject, dict[PublishedStep, None]] = {}
    for step in filter(asked, steps(options.data)[0]):
        groups.setdefault(subject_of(step), {})[replace(step, line=0)] = None
    lines = [HEAD]
    for subject, own in sorted(groups.items()):
        if options.only in subject[0]:
            for line in report(subject, [*own], not options.rows):
                lines.append(line)
                print(line, flush=True)
    if options.page:
        PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
