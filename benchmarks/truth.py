"""Write docs/truth.md, predictions beside measurements: ``python benchmarks/truth.py``.

Measured collectives and steps of training are read from --data. Each is predicted on a machine that
ships with collir, by its defaults. Steps take minutes.
"""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from statistics import median

from measured.collectives import PRESETS, Row, predicted, read
from measured.kernels import PASSES, Kernel, attentions, products
from measured.published_steps import MACHINES, Prediction, PublishedStep, all_predicted
from measured.scores import Score, score
from nccl import near, scored, sweeps

from collir.cost.programs import accuracy
from collir.cost.programs.accuracy import COLUMNS, FILE, STEP, key_of
from collir.tools.machine import preset

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data" / "public"
TABLE = Path(accuracy.__file__).parent / FILE
PAGE = ROOT / "docs" / "truth.md"

HEAD = """\
# Predictions and measurements

Look up how far predictions like yours are from published measurements. Each row is predicted on the
machine that ships with collir, by its defaults. A report names the table here that its own
prediction belongs to:

```text
beside measurements: step of training on A100, median error 19% of 84 rows (docs/truth.md)
```

Written by `python benchmarks/truth.py`; do not edit.

## Collectives

Rows are of nccl-tests on A100, H100, H200, B200, GB200 and GB300, and of MPI on CPUs (`python
benchmarks/nccl.py --rows FILE`). Fitted to them are the bytes of a chunk, the links of Google
Cloud's machines (`@gcp_a3_mega` and others), the `sync` of A100, the hop over NVLink of newer GPUs,
and the bandwidth of their rings. The bandwidth of an A100 node is fitted to another cluster
([decision 93](decisions/0093-what-nccl-takes-besides.md)). Ratios are predicted over measured
times, the medians of sizes to 64 KB, to 16 MB, and larger; a row is near within 25 %.

| machine | GPUs | collective | network | rows | median error | near | small | middle | large |
|---|---|---|---|--:|--:|--:|--:|--:|--:|
"""

TRAINING = """\
## Training

Steps of Llama, GPT, MPT and Nemotron in 16 bits, each compiled to the configuration that its row
says, and simulated (`python benchmarks/training.py --rows FILE`); nothing is fitted to them. Pairs
are rows of one model and software whose measured times differ by more than 5 %, and the column has
the fraction that is predicted in the same order. Ratios are predicted over measured times.
llm-foundry and Megatron-DeepSpeed ran a kernel for each operation, as PyTorch does without a
compiler, so their machine has `maps = apart`: without it their rows are 20 to 30 % too fast. Not
modelled are the attention kernels of 2022, which long sequences of llm-foundry wait for, and what
takes time beside kernels in torch's FSDP. [Another page](training.md) has the iterations of vTrain,
to which a machine is fitted.

| machine | software | models | GPUs | rows | median error | mean | pairs | ratios |
|---|---|--:|--:|--:|--:|--:|--:|--:|
"""

KERNELS = """\
## Kernels

Products of 16-bit matrices, and kernels of attention on 16-bit numbers, each alone on a device
(`benchmarks/measured/kernels.py`). Fitted to products are the tiles of MI355X and the `efficiency
compute` and `fused` of each device. One `fused` serves both passes, so forward ones are predicted
20 % too slow; FlashAttention 2 on H100, which does not use its new instructions, is predicted too
fast. Ratios are predicted over measured times, their medians.

| machine | kernel | head | rows | median error | forward | backward | both |
|---|---|--:|--:|--:|--:|--:|--:|
"""


def kernels(found: Iterable[Kernel]) -> Iterator[str]:
    """Yield lines of the table of kernels: of each machine, software and size of a head."""
    groups: dict[tuple[str, ...], list[Kernel]] = {}
    for kernel in found:
        head = str(kernel.sizes[3]) if kernel.is_attention else "-"
        software = kernel.software.partition("(")[0].strip()
        groups.setdefault((kernel.machine, software, head), []).append(kernel)
    for key, own in sorted(groups.items()):
        ratios = {x: [k.predicted / k.seconds for k in own if k.passes == x] for x in PASSES}
        error = median(abs(x - 1) for each in ratios.values() for x in each)
        cells = [f"{median(each):.2f}" if each else "-" for each in ratios.values()]
        yield f"| {' | '.join([*key, str(len(own)), f'{error:.1%}', *cells])} |"


def collectives(rows: Sequence[tuple[Row, float]]) -> Iterator[str]:
    """Yield the lines of the table of collectives."""
    yield from (f"| {' | '.join(cells)} |" for cells in sweeps(rows))
    yield f"| all | | | | {len(rows)} | {scored(rows).median:.1%} | {near(rows):.0%} | | | |"


def errors(found: Sequence[tuple[PublishedStep, Prediction]]) -> Score:
    """Return the errors of predicted steps."""
    times = [x.seconds for x, _ in found], [x.seconds for _, x in found]
    return score(*times, [x.group for x, _ in found])


def training(found: Sequence[tuple[PublishedStep, Prediction]]) -> Iterator[str]:
    """Yield the lines of the table of steps: of each machine and software."""
    for key in dict.fromkeys((x.machine, x.framework) for x, _ in found):
        own = [each for each in found if (each[0].machine, each[0].framework) == key]
        models, gpus = {x.model for x, _ in own}, sorted(x.size["gpus"] for x, _ in own)
        ratios = sorted(y.seconds / x.seconds for x, y in own)
        span = f"{gpus[0]}-{gpus[-1]}" if gpus[0] < gpus[-1] else str(gpus[0])
        yield _line([*key, str(len(models)), span], errors(own), ratios)
    ratios = sorted(y.seconds / x.seconds for x, y in found)
    yield _line(["all", "", "", ""], errors(found), ratios)


def _line(cells: list[str], found: Score, ratios: Sequence[float]) -> str:
    pairs = "-" if found.pairs is None else f"{found.pairs:.0%}"
    numbers = str(found.rows), f"{found.median:.1%}", f"{found.mape:.1%}", pairs
    return f"| {' | '.join([*cells, *numbers])} | {ratios[0]:.2f}-{ratios[-1]:.2f} |"


def accuracies(
    measured: Sequence[tuple[Row, float]], found: Sequence[tuple[PublishedStep, Prediction]]
) -> Iterator[str]:
    """Yield the lines of the table from which reports take the accuracy of their predictions."""
    yield ",".join(COLUMNS)
    for machine, name in MACHINES.items():
        key, device = key_of(preset(name).op.value()), machine.partition("-")[0]
        assert key is not None
        sent = [x for x in measured if x[0].machine == device]
        for kind in sorted({row.kind for row, _ in sent}):
            yield _accuracy(device, key, kind, scored([x for x in sent if x[0].kind == kind]))
        if own := [x for x in found if x[0].machine == machine]:
            yield _accuracy(device, key, STEP, errors(own))


def _accuracy(device: str, key: tuple[float, float], what: str, found: Score) -> str:
    numbers = str(found.rows), f"{found.median:.3f}"
    return ",".join([device.upper(), *(f"{x:g}" for x in key), what, *numbers])


def main() -> None:
    """Write the page, and the table of reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of the tables")
    folder = parser.parse_args().data
    rows = [row for row in read(folder / "nccl_public.csv") if row.machine in PRESETS]
    measured = [(row, predicted(row)) for row in rows]
    found, others = all_predicted(folder / "training_public.csv")
    lines = [*collectives(measured), "", TRAINING.rstrip("\n"), *training(found), ""]
    reasons = "; ".join(f"{reason} ({count})" for reason, count in others.most_common())
    lines += [f"Rows without a prediction: {reasons}.", "", *KERNELS.splitlines()]
    alone = attentions(folder / "attention_public.csv"), products(folder / "gemm_public.csv")
    lines += [*kernels(chain(*alone)), ""]
    TABLE.write_text("".join(f"{line}\n" for line in accuracies(measured, found)), encoding="utf-8")
    PAGE.write_text(HEAD + "\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
