"""The mesh of a configuration as PyTorch and JAX have it, in the order of the devices."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from collir.synthesis.sweeping.configuration import Configuration
from collir.synthesis.sweeping.programs import on_machine
from collir.tools.sweep_model import Model


def dimensions(model: Model, configuration: Configuration) -> list[tuple[str, int]]:
    """Return the axes in the order of the devices, outermost first, each with its size; an axis
    with another one in the middle of it comes twice."""
    mesh = on_machine(model.machine, configuration)
    subs = sorted(mesh.sub_axes, key=lambda sub: -sub.stride)
    runs = groupby((sub for sub in subs if sub.size > 1), key=lambda sub: sub.axis)
    return [(axis, math.prod(sub.size for sub in own)) for axis, own in runs]


def order_remark(
    model: Model, c: Configuration, name: str, known: Mapping[str, str], usual: Sequence[str]
) -> Iterator[str]:
    """Yield a remark if a framework orders ranks otherwise.

    Args:
        name: the framework.
        known: what the framework calls each axis.
        usual: the order in which it has these, innermost first.
    """
    placed = dimensions(model, c)
    order = [known[axis] for axis, _ in reversed(placed)]
    if order != sorted(order, key=usual.index):
        listed = ", ".join(f"{axis}:{size}" for axis, size in placed)
        yield f"# {name} orders ranks otherwise: here they are {listed}, outermost first"


def torchrun(c: Configuration, script: str, words: Iterable[str]) -> str:
    """Return the command that runs a script on all devices, with one option in each line."""
    per_node = c.level_sizes[-1]
    command = f"torchrun --nnodes {c.devices // per_node} --nproc-per-node {per_node} {script}"
    return " \\\n  ".join([command, *words])


def rows_of(model: Model, c: Configuration) -> int:
    """Return the rows of a device in a microbatch."""
    ranks = math.prod(c.degrees[axis] for axis in model.step.data)
    return c.batch // ranks // c.microbatches


@dataclass(frozen=True)
class NamedMesh:
    """The dimensions of a mesh of devices.

    Attributes:
        sizes, names: the size and the name of each dimension.
        of_axis: the names of the dimensions of each axis.
    """

    sizes: Sequence[int]
    names: Sequence[str]
    of_axis: dict[str, tuple[str, ...]]

    @staticmethod
    def of(model: Model, c: Configuration, always: Sequence[str] = ()) -> "NamedMesh":
        """Return the mesh of a configuration.

        Args:
            always: axes that have a dimension even if their size is 1.
        """
        sized_axes = dimensions(model, c)
        sized_axes += [(axis, 1) for axis in always if axis not in dict(sized_axes)]
        axes = [axis for axis, _ in sized_axes]
        names = [
            f"{axis}_{axes[:number].count(axis)}" if axes.count(axis) > 1 else axis
            for number, axis in enumerate(axes)
        ]
        of_axis = {
            axis: tuple(name for name, own in zip(names, axes, strict=True) if own == axis)
            for axis in dict.fromkeys(axes)
        }
        return NamedMesh([size for _, size in sized_axes], names, of_axis)

    @property
    def split(self) -> list[str]:
        """The axes that are several dimensions."""
        return [axis for axis, names in self.of_axis.items() if len(names) > 1]


def tuple_text(items: Sequence[object]) -> str:
    """Return a tuple as Python writes it, with double quotes."""
    inner = ", ".join(f'"{x}"' if isinstance(x, str) else str(x) for x in items)
    return f"({inner}{',' * (len(items) == 1)})"
