"""Training steps of an MLP and of a block of a GPT, in ten shardings each on two nodes of four.

A sharding says the axes of a few dimensions; `propagate` finds the rest, as for any auto function.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

MESHES = {
    "all": "all = node:2 * rank:4",
    "outer": "data = node:2, model = rank:4",
    "inner": "data = rank:4, model = node:2",
    "four": "data = node:2 * rank:2, model = rank:2",
}
"""Name of a mesh -> its axes and where they lie."""


@dataclass(frozen=True)
class Sharding:
    """A style of parallelism.

    Attributes:
        name: what users call it.
        mesh: the name of its mesh.
        shards: dimension of a tensor, as `x.batch` -> its axes.
    """

    name: str
    mesh: str
    shards: dict[str, str] = field(default_factory=dict[str, str])


def _data(axes: str) -> dict[str, str]:
    return {"x.batch": axes}


def _columns(axes: str) -> dict[str, str]:
    """Return the pins of Megatron's pairs: heads and inner dimensions are divided."""
    return {"q.heads": axes, "k.heads": axes, "v.heads": axes, "o.heads": axes} | {
        "up.inner": axes,
        "down.inner": axes,
    }


def _stored(axes: str) -> dict[str, str]:
    """Return the pins of fully sharded weights: each is divided in its hidden dimension."""
    return {f"{name}.hidden": axes for name in ("q", "k", "v", "o", "up", "down")}


MLP = (
    Sharding("data parallel", "all", _data("all")),
    Sharding("tensor parallel", "all", _columns("all")),
    Sharding("fully sharded", "all", _data("all") | _stored("all")),
    Sharding("data over nodes, tensor in a node", "outer", _data("data") | _columns("model")),
    Sharding("tensor over nodes, data in a node", "inner", _data("data") | _columns("model")),
    Sharding("data 4, tensor 2", "four", _data("data") | _columns("model")),
    Sharding("hybrid: sharded in a node", "outer", _data("(data, model)") | _stored("model")),
    Sharding("hybrid: sharded over nodes", "inner", _data("(data, model)") | _stored("model")),
    Sharding(
        "sharded over nodes, tensor in a node",
        "outer",
        _data("data") | _columns("model") | _stored("data"),
    ),
    Sharding("activations sharded, tensor parallel", "all", _data("all") | _columns("all")),
)
"""The shardings of the MLP."""

BLOCK = (
    *(sharding for sharding in MLP if not sharding.name.startswith("activations")),
    Sharding(
        "data over nodes, sequence parallel in a node",
        "outer",
        _data("data") | {"x.seq": "model"} | _columns("model"),
    ),
)
"""The shardings of the block; attention needs whole sequences of its heads."""


def _type(shape: str, name: str, sharding: Sharding) -> str:
    """Return a type: each dimension of ``shape``, written `label` or `label=size`, and its axes."""
    dims: list[str] = []
    for dim in shape.split():
        label, _, size = dim.partition("=")
        axes = sharding.shards.get(f"{name}.{label}")
        dims.append((size or label) + (f"@{axes}" if axes else ""))
    return f"f32[{', '.join(dims)}]"


@dataclass(frozen=True)
class Model:
    """A model to train.

    Attributes:
        about: what it is, in words.
        sizes: sizes of the step that is measured.
        inputs: shape of `%x` and of `%target`.
        weights: shape of each weight.
        body: the lines from `%x` to `%y`.
    """

    name: str
    about: str
    sizes: dict[str, int]
    inputs: str
    weights: dict[str, str]
    body: str
    shardings: Sequence[Sharding]

    def page(self) -> str:
        """Return a page with a step for every sharding, without a machine."""
        meshes = dict.fromkeys(sharding.mesh for sharding in self.shardings)
        lines = ["func @sgd = @sgd on any\n\nfunc @causal_attention = @causal_attention on any\n"]
        lines += [f"mesh @{name} on @M {{ {MESHES[name]} }}" for name in meshes]
        for number, sharding in enumerate(self.shardings):
            lines.append(self._loss(number, sharding))
            lines.append(self._step(number, sharding))
        return "\n".join(lines)

    @property
    def _sizes(self) -> str:
        return ", ".join(f"{name} = {size}" for name, size in self.sizes.items())

    def _arguments(self, sharding: Sharding) -> list[str]:
        x = _type(self.inputs, "x", sharding)
        return [
            f"%x: {x}",
            f"%target: {x}",
            *(
                f"%{name}: {_type(shape, name, sharding)} parameter"
                for name, shape in self.weights.items()
            ),
        ]

    def _loss(self, number: int, sharding: Sharding) -> str:
        plain = Sharding("", sharding.mesh)
        dims = ", ".join(map(str, range(len(self.inputs.split()))))
        return (
            f"func @loss{number}({self._sizes})({', '.join(self._arguments(plain))}) -> f32[] "
            f"on @{sharding.mesh} auto {{\n{self.body}"
            "  %difference = sub %y, %target\n  %squares = mul %difference, %difference\n"
            f"  %loss = mean %squares dims [{dims}]\n  return %loss\n}}\n"
        )

    def _step(self, number: int, sharding: Sharding) -> str:
        names = list(self.weights)
        weights = ", ".join(f"%{name}" for name in names)
        given = ", ".join(f"{name} = {name}" for name in self.sizes)
        results = [
            f"{_type(shape, name, sharding)} parameter" for name, shape in self.weights.items()
        ]
        updates = "".join(f"  %new_{n} = call @sgd(%{n}, %d_{n}, %rate)\n" for n in names)
        return (
            f"func @f{number}({self._sizes})({', '.join(self._arguments(sharding))}, "
            f"%rate: f32[]) -> (f32[], {', '.join(results)}) on @{sharding.mesh} auto {{\n"
            f"  %loss, {', '.join(f'%d_{n}' for n in names)} = gradient @loss{number}({given})"
            f"(%x, %target, {weights}) wrt {weights}\n"
            f"{updates}  return %loss, {', '.join(f'%new_{n}' for n in names)}\n}}\n"
        )


_MLP_BODY = """\
  %u = einsum "b h, h f -> b f" %x, %up
  %g = gelu %u
  %y = einsum "b f, f h -> b h" %g, %down
"""

_BLOCK_BODY = """\
  %gain = constant value 1 to f32[hidden]
  %n = rms_norm %x, %gain dims [2] eps 1e-6
  %queries = einsum "b s h, h a d -> b s a d" %n, %q
  %keys = einsum "b s h, h a d -> b s a d" %n, %k
  %values = einsum "b s h, h a d -> b s a d" %n, %v
  %mixed = call @causal_attention(seq = seq, size = hidden / heads)(%queries, %keys, %values)
  %attended = einsum "b s a d, a d h -> b s h" %mixed, %o
  %h = add %x, %attended
  %m = rms_norm %h, %gain dims [2] eps 1e-6
  %u = einsum "b s h, h f -> b s f" %m, %up
  %g = gelu %u
  %z = einsum "b s f, f h -> b s h" %g, %down
  %y = add %h, %z
"""

_INNER = {"up": "hidden inner=4 * hidden", "down": "inner=4 * hidden hidden"}


def _shapes(**shapes: str) -> dict[str, str]:
    """Return shapes whose sizes may have spaces; those are taken out."""
    return {name: shape.replace(" * ", "*") for name, shape in shapes.items()}


_HEADS = "hidden heads size=hidden/heads"

MODELS = (
    Model(
        "mlp",
        "`mlp`, two layers with a gelu between them",
        {"batch": 1024, "hidden": 256},
        "batch hidden",
        _shapes(**_INNER),
        _MLP_BODY,
        MLP,
    ),
    Model(
        "block",
        "`block`, a block of a GPT: causal attention and an MLP, each behind an rms_norm",
        {"batch": 16, "seq": 64, "hidden": 256, "heads": 8},
        "batch seq hidden",
        _shapes(q=_HEADS, k=_HEADS, v=_HEADS, o="heads size=hidden/heads hidden", **_INNER),
        _BLOCK_BODY,
        BLOCK,
    ),
)
"""The models that are measured."""
