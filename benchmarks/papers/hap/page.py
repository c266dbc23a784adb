"""HAP's published costs beside those of the search of `shard` under HAP's accounting.

    python benchmarks/papers/hap/page.py [--page]

The models are those of HAP's released program (*.coll), the profile is the authors'. Each case
is solved with HAP's own counts, and with what they leave out: the projections of attention and the
windows of convolutions. Unlike HAP, all gradients of replicated weights are reduced, those of norms
and of the position embedding too, and products may be divided along their sums and attention by its
heads. `--page` writes README.md.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import collir

sys.path.insert(0, str(Path(__file__).parents[1]))
from hap.accounting import Plan, Profile, plan

MODELS = Path(__file__).parent
PAGE = MODELS / "README.md"

BANDWIDTHS = {
    "all_gather": 815_418_707.0,
    "all_reduce": 476_774_816.0,
    "reduce_scatter": 876_490_907.0,
    "all_to_all": 7_504_501_871.0,
}
"""The bandwidths of the authors' cluster, in bytes/s."""

FAST, SLOW = 3_858_755_112_937.0, 2_149_250_936_815.0
"""The rates of the devices of their cluster, in operations/s: two of eight are fast."""


class Case(NamedTuple):
    """A published case.

    Attributes:
        model: the name of the file of the model.
        sizes: sizes other than those of the file.
        devices: the number of devices, a quarter of them fast.
        cost: the cost in seconds that HAP's released search reports, if it is published.
        expanded: the states that it expands, if that is known.
    """

    name: str
    model: str
    devices: int = 8
    sizes: str = ""
    cost: float | None = None
    expanded: int | None = None


CASES = (
    Case("VGG19", "vgg19", cost=0.0519108),
    Case("ViT, 4 layers", "vit", cost=0.2002408, expanded=538),
    Case("ViT, 24 layers", "vit", sizes="layers=24", expanded=4117),
    Case("BERT, 12 layers", "bert", cost=1.4571091),
    Case("MoE, 12 layers", "moe", cost=2.3492220),
    Case("MoE, 12 layers", "moe", 64, "batch=2048,experts=128,capacity=3", 4.6479906),
)


class Row(NamedTuple):
    """The plans of a case: with HAP's counts, and with what they leave out."""

    case: Case
    own: Plan
    sound: Plan
    seconds: float


def rows() -> Iterator[Row]:
    """Yield the plans of all cases, with the CPU seconds of the first of each."""
    for case in CASES:
        text = (MODELS / f"{case.model}.coll").read_text(encoding="utf-8")
        text = text.replace("gpu[8]", f"gpu[{case.devices}]").replace(
            "gpu:8", f"gpu:{case.devices}"
        )
        sizes = f'instantiate{{sizes="{case.sizes}"}},' if case.sizes else ""
        module = collir.run_passes(collir.parse(text), f"{sizes}unshard")
        fast = case.devices // 4
        rates = (FAST,) * fast + (SLOW,) * (case.devices - fast)
        start = time.process_time()
        own = plan(module.clone(), Profile(rates, BANDWIDTHS))
        seconds = time.process_time() - start
        yield Row(
            case,
            own,
            plan(module, Profile(rates, BANDWIDTHS, projections=True, windows=True)),
            seconds,
        )


def table(listed: Sequence[Row]) -> str:
    """Return the table of the page."""
    lines = [
        "| model | devices | HAP | here | sound counts | expanded by HAP | nodes here "
        "| CPU s here |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case, own, sound, seconds in listed:
        cost = f"{case.cost:.7f}" if case.cost else "-"
        expanded = f"{case.expanded:,}" if case.expanded else "-"
        proven = "" if own.proven and sound.proven else " (not proven)"
        lines.append(
            f"| {case.name} | {case.devices} | {cost} | {own.seconds:.7f}{proven} "
            f"| {sound.seconds:.4f} | {expanded} | {own.nodes} | {seconds:.2f} |"
        )
    return "\n".join(lines)


TEXT = """\
# HAP's figures

HAP (Zhang et al., EuroSys 2024) searches sharded programs for clusters of unlike devices, with
costs that are linear in the shares of devices. [accounting.py](accounting.py) has its accounting
and the authors' profile: 2 fast and 6 slow devices (or 16 and 48), a bandwidth for each
collective, no latency, elements in the place of bytes. The costs in seconds below are those that
HAP's released search reports, and those of the search of
[`shard`](../../../docs/sharding.md) for the same models.
`python benchmarks/papers/hap/page.py --page` writes this page.

{table}

"Here" is the least time under HAP's own counts. Shares and layouts are improved in turns, and the
layouts are proven for their shares. The search has more to choose from than HAP's: products may be
sharded along their sums, attention by its heads, and a step may gather a weight that lies sharded.
All gradients of replicated weights are reduced; HAP leaves out those of norms and of the position
embedding. The cost for 64 devices is 0.001 % above HAP's. "Sound counts" also has the projections
of attention and all pixels of windows of convolutions, which HAP does not count. Two nodes are two
searches, from proportional and from equal shares. Layers are a loop here, so that 24 take the time
of 4; HAP expands 180 states more for each layer. HAP's CPU times, on another computer: 7.5 s for
ViT with 24 layers, 11.3 s for MoE on 64 devices.
"""


def main() -> None:
    """Print the table, or write the page."""
    parser = argparse.ArgumentParser(description="HAP's published costs beside those of `shard`.")
    parser.add_argument("--page", action="store_true", help="write README.md")
    arguments = parser.parse_args()
    text = table(list(rows()))
    print(text)
    if arguments.page:
        PAGE.write_text(TEXT.format(table=text), encoding="utf-8")


if __name__ == "__main__":
    main()
