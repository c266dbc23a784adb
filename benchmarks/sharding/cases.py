"""The models whose plans are compared: training steps of examples/models on a single device."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from clusters import Cluster
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.nested import RepeatOp
from collir.dialects.tensor import dist_type
from collir.ir.functions import functions_of
from collir.synthesis.propagation.graph import Layout

MODELS = Path(__file__).parents[2] / "examples" / "models"
AXIS = "data"


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
