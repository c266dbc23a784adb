"""The plans of ``shard`` beside plans that people use, as simulations have them.

    python benchmarks/sharding/plans.py [--tables plans,ablations,factors] [--models mlp,bert]

The training steps of examples/models, in f32, are made those of a single device by ``unshard``, and
divided over one axis of all devices of clusters as HAP was measured on (Zhang et al. 2024): a port
of 1.3 GB/s and 20 us for each device, of two kinds, 15.7 and 8.7 TFLOP/s. The tables:

    plans       the time of each plan as a multiple of that of ``shard``, and of ``shard`` its time,
                by how much it is above what ``shard`` says, the gap, and the CPU time of the search
    ablations   ``shard`` without one of its parts, on 2 + 6 devices, in the same way
    factors     the product whose result is the gradient of VGG19's 25088 x 4096 weights, on 8
                devices that compute in no time: what is sent, up to which batch of a device, where
                weights lie whole on all and the product runs whole on all or along the batch; where
                it runs in any way; and where weights may be divided too

A plan with ``!`` needs more memory than a device has; ``-`` does not divide. The plans:

    even        data parallel, with equal shares of the batch
    in prop.    data parallel, with shares in proportion to the throughput of devices
    written     the parallelism of examples/models over all devices: that of Megatron-LM; of VGG19
                one weird trick, of Switch experts
    ZeRO-3      data parallel, with weights and states divided as well
    cut evenly  ``shard`` with equal shares
"""

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from unittest.mock import patch

from xdsl.dialects.builtin import FunctionType, ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp

import collir
from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate_function
from collir.dialects.nested import RepeatOp
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.functions import functions_of
from collir.ir.remarks import listening
from collir.ir.roles import Role, role_of
from collir.layout import Axis
from collir.synthesis.propagation.graph import Layout, Relation, Tensor
from collir.synthesis.propagation.propagate import lay_out, propagate
from collir.synthesis.propagation.rewrite import with_layout
from collir.synthesis.sharding import shard as of_shard
from collir.synthesis.sharding.shard import ShardOptions
from collir.synthesis.sharding.solver import Solution
from collir.synthesis.sharding.uneven import _rounded
from collir.synthesis.sharding.ways import Way, Ways
from collir.targets.reports.text import seconds_text, table

MODELS = Path(__file__).parents[2] / "examples" / "models"
AXIS = "data"
FAST, SLOW = 15.7, 8.7
RATIO = (9, 5)
"""The throughputs of the two kinds in small numbers."""

PAGE = """machine @cluster {{
  device fast {{ compute f32 = {fast} TFLOP/s; memory = 32 GB @ 900 GB/s }}
{slow}  level gpu[{n}] {{ port = 1.3 GB/s, latency = 20 us, fabric = network, {devices} }}
}}
mesh @m on @cluster {{ data = gpu:{n}{weights} }}
"""


SLOW_PAGE = f"  device slow {{ compute f32 = {SLOW} TFLOP/s; memory = 32 GB @ 730 GB/s }}\n"


@dataclass(frozen=True)
class Cluster:
    """A cluster of devices of two kinds.

    Attributes:
        fast: the number of fast devices.
        slow: that of slow ones.
    """

    fast: int
    slow: int

    @property
    def size(self) -> int:
        return self.fast + self.slow

    @property
    def name(self) -> str:
        return f"{self.fast} + {self.slow}" if self.slow else f"{self.fast} even"

    @property
    def multiple(self) -> int:
        """The batch is a multiple of this."""
        shares = RATIO[0] * self.fast + RATIO[1] * self.slow
        return 30 * self.size if (30 * self.size) % shares == 0 else 32 * self.size

    def weights(self, batch: int) -> tuple[int, ...]:
        """Return weights near the throughputs, whose sum divides the batch."""
        each = [RATIO[0]] * self.fast + [RATIO[1]] * self.slow
        shares = [own / sum(each) for own in each]
        sums = [n for n in range(self.size, 16 * self.size + 1) if batch % n == 0]
        found = [_rounded(shares, total) for total in sums]  # pyright: ignore

        def most(weights: tuple[int, ...]) -> float:
            both = zip(weights, shares, strict=True)
            return max(own / share for own, share in both) / sum(weights)

        return min(found, key=most)

    def page(self, weights: Sequence[int] = ()) -> str:
        """Return the machine and its mesh."""
        kinds = (
            f"devices = [{self.fast} fast, {self.slow} slow]"
            if self.slow
            else f"devices = [{self.size} fast]"
        )
        own = f" weights [{', '.join(map(str, weights))}]" if weights else ""
        slow = SLOW_PAGE if self.slow else ""
        return PAGE.format(fast=FAST, slow=slow, n=self.size, devices=kinds, weights=own)


CLUSTERS = (Cluster(2, 6), Cluster(16, 48), Cluster(8, 21), Cluster(64, 0))


@dataclass(frozen=True)
class Model:
    """A model and its sizes.

    Attributes:
        name: its file.
        batch: the name of the size of its batch.
        part: the samples for each device, as a part of those of ``Cluster.multiple``.
        sizes: other sizes.
        recompute: whether its layers are computed again.
        along: the axes of its weights, of which ``written`` makes one over all devices.
    """

    name: str
    batch: str = "batch"
    part: float = 1
    sizes: dict[str, int] = field(default_factory=dict)
    recompute: bool = False
    along: str = "model"


SMALL = {"hidden": 1024, "heads": 16, "layers": 24}
ALL = (
    Model("mlp", part=32, sizes={"width": 4096, "layers": 8}),
    Model("vit", sizes=SMALL),
    Model("bert", sizes={**SMALL, "seq": 128}),
    Model("vgg19"),
    Model("resnet50"),
    Model("gpt", part=1 / 5, sizes={**SMALL, "seq": 512}),
    Model("switch", "groups", 1 / 10, {"words": 512, "places": 10}, along="expert"),
    Model(
        "llama",
        part=1 / 5,
        sizes={"seq": 1024, "hidden": 2048, "inner": 8192, "layers": 16},
        recompute=True,
    ),
)


def text_of(model: Model, cluster: Cluster) -> tuple[str, int, list[Layout]]:
    """Return the step of a model on a single device without its machine, the size of its batch, and
    the layouts of its arguments as they are written, along one axis."""
    module = collir.parse(MODELS / f"{model.name}.coll", functions=("step",))
    if model.recompute:
        for op in module.walk():
            if isinstance(op, RepeatOp):
                op.recompute = UnitAttr()
    kept = [
        tuple(
            (AXIS,) if any(axis.split(".")[0] == model.along for axis in dim.axes) else ()
            for dim in dist_type(x).dims
        )
        for x in step_of(module).args
    ]
    names = re.findall(r"(\w+) = \d+", collir.emit(module, "coll").split("func @step(")[1][:300])
    batch = cluster.size * max(1, round(cluster.multiple * model.part / cluster.size))
    sizes = {n: size for n, size in model.sizes.items() if n in names}
    assert sizes == model.sizes, (names, sizes)
    _ = collir.run_passes(module, "unshard")
    _ = collir.instantiate(module, "step", **{model.batch: batch}, **sizes)
    text = means_as_sums(module).replace("bf16", "f32")
    return text[text.index("func @") :], batch, kept


def means_as_sums(module: ModuleOp) -> str:
    """Return the text of a module whose means are sums that are scaled: a mean of blocks of several
    sizes is not the mean of their means."""
    counts = iter(
        dist_type(op.operands[0]).elements // dist_type(op.results[0]).elements
        for op in module.walk()
        if op.name == "nn.mean"
    )

    def scaled(found: re.Match[str]) -> str:
        start, name, role, rest = found.groups()
        return (
            f"{start}%total_of_{name} = sum {rest}\n"
            f"{start}%{name}{role} = scale %total_of_{name} by {1 / next(counts):.12g}"
        )

    text = re.sub(r"(?m)^( *)%(\w+)((?:: \w+)?) = mean (.*)$", scaled, collir.emit(module, "coll"))
    assert next(counts, None) is None
    return text


def step_of(module: ModuleOp) -> FuncOp:
    """Return the training step."""
    return next(f for f in functions_of(module) if f.sym_name.data == "step")


# --- plans ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """The simulation of a plan.

    Attributes:
        seconds: the time of the step.
        bytes: the memory that a device needs.
        said: the time that ``shard`` says.
        gap: how much less others might take, as a part.
        took: the CPU seconds that it took to find.
    """

    seconds: float
    bytes: float
    said: float = 0.0
    gap: float = 0.0
    took: float = 0.0

    @property
    def fits(self) -> bool:
        return self.bytes <= 32e9


def simulated(
    module: ModuleOp, model: CostModel, solution: Solution | None = None, took: float = 0.0
) -> Plan:
    """Return the simulation of a plan."""
    found = simulate_function(step_of(module), model)
    if solution is None:
        return Plan(found.time, found.peak)
    gap = 1 - solution.bound / solution.sum if solution.ended else 0.0
    return Plan(found.time, found.peak, solution.sum, gap, took)


def propagated(page: str, text: str, layouts: Sequence[Layout]) -> Plan:
    """Return the plan that follows from layouts of arguments."""
    module = collir.parse(page + text)
    function = step_of(module)
    for argument, layout in zip(function.args, layouts, strict=True):
        argument._type = DistTensorType(with_layout(dist_type(argument), layout))  # pyright: ignore
    results = function.function_type.outputs.data
    types = [argument.type for argument in function.args]
    function.properties["function_type"] = FunctionType.from_lists(types, results)
    module = collir.parse(collir.emit(module, "coll"))
    with listening(lambda _: None):
        propagate(module)
    module.verify()
    return simulated(module, CostModel())


class _Recorded(of_shard._Shard):  # pyright: ignore
    """A search whose solution is kept, with equal shares if ``even``."""

    even = False
    found: Solution | None = None

    def _cut(self, axis: Axis) -> None:
        if not self.even:
            super()._cut(axis)

    def _solution(self, limit: float | None) -> Solution:
        _Recorded.found = super()._solution(limit)
        return _Recorded.found


class _Even(_Recorded):
    even = True


def sharded(
    page: str, text: str, seconds: float, even: bool = False, model: CostModel | None = None
) -> tuple[Plan, ModuleOp]:
    """Return the plan of ``shard``."""
    module, model = collir.parse(page + text), model or CostModel()
    options = ShardOptions(model, seconds)
    kind = _Even if even else _Recorded
    start = time.process_time()
    with listening(lambda _: None):
        lay_out(module, lambda f, closed: kind(f, closed, options).run(), callees=False)
    took = time.process_time() - start
    module.verify()
    assert _Recorded.found is not None
    return simulated(module, model, _Recorded.found, took), module


def data_parallel(function: FuncOp, batch: int, n: int, zero: bool) -> list[Layout] | None:
    """Return the layouts of arguments of data parallelism: of the batch, and with ``zero`` of
    weights and states; None if nothing divides."""
    layouts: list[Layout] = []
    divided = 0
    for argument in function.args:
        shape = tuple(map(int, dist_type(argument).shape))
        at, role = None, role_of(argument)
        if role is None and shape and shape[0] == batch:
            at = 0
        elif zero and role in (Role.PARAMETER, Role.STATE):
            inside = [d for d in range(min(1, len(shape) - 1), len(shape)) if shape[d] % n == 0]
            at = max(inside, key=lambda d: shape[d], default=None)
            divided += at is not None
        layouts.append(tuple((AXIS,) if d == at else () for d in range(len(shape))))
    return layouts if divided or not zero else None


NAMES = ("even", "in prop.", "written", "ZeRO-3", "cut evenly", "shard")


def plans(model: Model, cluster: Cluster, seconds: float) -> Iterator[tuple[str, Plan | str]]:
    """Yield each plan, or why there is none."""
    text, batch, kept = text_of(model, cluster)
    page = cluster.page()
    function = step_of(collir.parse(page + text))

    def along(page: str, layouts: Sequence[Layout] | None) -> Callable[[], Plan]:
        return lambda: propagated(page, text, layouts or ())

    data = data_parallel(function, batch, cluster.size, False)
    zero = data_parallel(function, batch, cluster.size, True)
    weights = cluster.page(cluster.weights(batch))
    made: dict[str, Callable[[], Plan] | None] = {
        "even": along(page, data),
        "in prop.": along(weights, data) if cluster.slow else None,
        "written": along(page, kept) if any(map(any, kept)) else None,
        "ZeRO-3": along(page, zero) if zero else None,
        "cut evenly": (lambda: sharded(page, text, seconds, True)[0]) if cluster.slow else None,
        "shard": lambda: sharded(page, text, seconds)[0],
    }
    for name, make in made.items():
        yield name, attempt(f"{model.name}, {cluster.name}, {name}", make)


def attempt(what: str, make: Callable[[], Plan] | None) -> Plan | str:
    """Return a plan, or why there is none."""
    if make is None:
        return "-"
    start = time.monotonic()
    try:
        found = make()
        text = f"{found.seconds:.4f} s, {found.bytes / 1e9:.1f} GB"
    except collir.DiagnosticError as error:
        found = "-"
        text = str(error).splitlines()[0][:200]
    except Exception as error:  # what is found is a bug, and the others are wanted all the same
        found = "bug"
        text = f"{type(error).__name__}: {error}"[:300]
    print(f"  {what}: {text} ({time.monotonic() - start:.1f} s)", file=sys.stderr, flush=True)
    return found


def cell(plan: Plan | str, best: Plan | str) -> str:
    """Return a plan as a multiple of the best."""
    if isinstance(plan, str):
        return plan
    mark = "" if plan.fits else "!"
    return f"{plan.seconds / best.seconds:.2f}{mark}" if isinstance(best, Plan) else f"?{mark}"


def plan_rows(models: Sequence[Model], clusters: Sequence[Cluster], seconds: float) -> None:
    """Print all plans."""
    rows: list[list[str]] = []
    for model in models:
        for cluster in clusters:
            found = dict(plans(model, cluster, seconds))
            best = found["shard"]
            row = [model.name, cluster.name, *(cell(found[n], best) for n in NAMES[:-1])]
            if isinstance(best, Plan):
                off = 100 * (best.seconds / best.said - 1)
                gap = f"{100 * best.gap:.1g} %" if best.gap else "proven"
                row += [seconds_text(best.seconds), f"{off:+.1f} %", gap, f"{best.took:.1f} s"]
            else:
                row += [best, "", "", ""]
            rows.append(row)
            print("  ", *row, sep=" | ", file=sys.stderr, flush=True)
    heads = ("model", "devices", *NAMES, "simulated", "gap", "CPU")
    print("\nplans")
    print("\n".join(table(list(heads), rows, 2)), flush=True)


# --- ablations -----------------------------------------------------------------------------------


@contextmanager
def reduced_gradients(batch: int) -> Iterator[None]:
    """Let no product of two operands with a batch that the result does not have run whole on all
    devices."""
    own = Ways.of

    def of(self: Ways, relation: Relation) -> list[Way]:
        found = own(self, relation)
        *operands, result = relation.indices
        summed = {i for i, n in relation.sizes.items() if n == batch and i not in result}
        both = len(operands) == 2 and any(all(i in x for x in operands) for i in summed)
        if not both or relation.op is None or relation.op.structure is None:
            return found
        return [way for way in found if any(way.axes.values())] or found

    with patch.object(Ways, "of", of):
        yield


ALGORITHM = "ring"


def ablation_rows(models: Sequence[Model], cluster: Cluster, seconds: float) -> None:
    """Print what the parts of ``shard`` are worth."""
    rows: list[list[str]] = []
    fixed = CostModel(algorithm=ALGORITHM)
    for model in models:
        text, batch, _ = text_of(model, cluster)
        page = cluster.page()

        def run(
            name: str,
            even: bool = False,
            costs: CostModel | None = None,
            step: tuple[str, str] = (model.name, page + text),
        ) -> Plan | str:
            find = partial(sharded, "", step[1], seconds, even, costs)
            return attempt(f"{step[0]}, {name}", lambda: find()[0])

        best = run("full")
        even = run("even", even=True)
        ring = run("ring", costs=fixed)
        with reduced_gradients(batch):
            reduced = run("reduced")
        row = [model.name, *(cell(x, best) for x in (even, ring, reduced))]
        row.append(seconds_text(best.seconds) if isinstance(best, Plan) else best)
        rows.append(row)
        print("  ", *row, sep=" | ", file=sys.stderr, flush=True)
    heads = ("model", "equal shares", f"{ALGORITHM} only", "gradients reduced", "in full")
    print(f"\nablations, {cluster.name} devices")
    print("\n".join(table(list(heads), rows, 1)), flush=True)


# --- sufficient factors --------------------------------------------------------------------------

LAYER = """machine @cluster {{
  device any {{ compute f32 = 1000000000 TFLOP/s; memory = 1000000 GB @ 1000000000000 GB/s }}
  level gpu[8] {{ port = 1.3 GB/s, latency = {latency} us, fabric = network, devices = [8 any] }}
}}
mesh @m on @cluster {{ data = gpu:8 }}
func @step(%x: f32[{batch}@data, 25088], %g: f32[{batch}@data, 4096],
           %w: f32[25088, 4096] parameter) -> f32[25088, 4096] parameter on @m auto {{
  %d = einsum "b k, b j -> k j" %x, %g
  %u = scale %d by 0.01
  %new = sub %w, %u
  return %new
}}
"""


@contextmanager
def whole_weights(two: bool = False) -> Iterator[None]:
    """Let the weights of the layer lie whole on all devices; with ``two``, let the product run
    either on all devices alike or along the batch."""
    own, ways = Ways.layouts, Ways.of

    def layouts(self: Ways, tensor: Tensor) -> list[Layout]:
        whole = tensor.role is Role.PARAMETER or tensor.value.name_hint in ("w", "new")
        return [((), ())] if whole else own(self, tensor)

    def of(self: Ways, relation: Relation) -> list[Way]:
        found, op = ways(self, relation), relation.op
        if op is None or op.name != "nn.einsum" or not two:
            return found
        result = relation.indices[-1]
        return [way for way in found if not any(way.axes.get(index) for index in result)]

    with patch.object(Ways, "layouts", layouts), patch.object(Ways, "of", of):
        yield


def collectives(module: ModuleOp) -> str:
    """Return the steps of a program that send."""
    sent = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all")
    lines = collir.emit(module, "coll").splitlines()
    return " + ".join(w for line in lines for w in line.split()[2:3] if w in sent)


def factor_rows(seconds: float) -> None:
    """Print what is sent, up to which batch of a device."""
    rows: list[list[str]] = []
    for latency, costs in ((0, "ring"), (0, "auto"), (20, "auto")):

        @cache
        def sends(n: int, latency: int = latency, costs: str = costs) -> str:
            page = LAYER.format(batch=8 * n, latency=latency)
            return collectives(sharded(page, "", seconds, model=CostModel(algorithm=costs))[1])

        free = (("whole, two ways", whole_weights(True)), ("whole", whole_weights()))
        for name, limits in (*free, ("free", nullcontext())):
            sends.cache_clear()
            with limits:
                edges = [*_edges(sends, 10, 2000), 2000]
                found = "; ".join(f"{sends(n)} to {n}" for n in edges)
            rows.append([name, costs, f"{latency} us", found])
            print("  ", *rows[-1], sep=" | ", file=sys.stderr, flush=True)
    print("\nfactors: equal bytes of two ways at n = 880")
    print("\n".join(table(["weights", "algorithms", "latency", "sent"], rows, 4)), flush=True)


def _edges(sends: Callable[[int], str], low: int, high: int) -> Iterator[int]:
    """Yield the last batches ahead of another way, none of which comes again."""
    if sends(low) == sends(high):
        return
    if high - low == 1:
        yield low
        return
    middle = (low + high) // 2
    yield from _edges(sends, low, middle)
    yield from _edges(sends, middle, high)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tables", default="factors,ablations,plans")
    parser.add_argument("--models", default=",".join(model.name for model in ALL))
    parser.add_argument("--clusters", default="0,1,2,3", help="numbers of clusters")
    parser.add_argument("--seconds", type=float, default=20.0, help="the limit of each search")
    arguments = parser.parse_args()
    models = [model for model in ALL if model.name in arguments.models.split(",")]
    clusters = [CLUSTERS[int(n)] for n in arguments.clusters.split(",")]
    for name in arguments.tables.split(","):
        if name == "plans":
            plan_rows(models, clusters, arguments.seconds)
        elif name == "ablations":
            ablation_rows(models, CLUSTERS[0], arguments.seconds)
        else:
            factor_rows(arguments.seconds)


if __name__ == "__main__":
    main()
