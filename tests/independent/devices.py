"""Carry out each step on the buffers of all devices, by its definition."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .mesh import Mesh, Type
from .numerics import Array, identity, local, reduced
from .rules import Case

Buffers = list[Any]
"""An array for each device of a mesh, in the order of its devices; None where it holds nothing."""


class Apart(Exception):
    """Copies of a value differ."""


class Devices:
    """The buffers of values on a mesh."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh

    def groups(self, axes: tuple[str, ...]) -> list[list[int]]:
        """Return the devices of each group over sub-axes, in their order."""
        found: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for i, device in enumerate(self.mesh.devices):
            rest = tuple(n for sub, n in device.items() if sub not in axes)
            found.setdefault(rest, []).append((self.mesh.index(device, axes), i))
        return [[i for _, i in sorted(group)] for group in found.values()]

    def distribute(self, whole: Array, kind: Type) -> Buffers:
        """Return buffers that stand for a whole tensor: if partial, it and neutral elements."""
        count = self.mesh.count(sorted(kind.partial))
        rest = whole
        if kind.partial and kind.reduction in ("sum", "prod"):
            rest = np.full_like(whole, identity(kind.reduction, kind.dtype))
        return self.placed([whole, *[rest] * (count - 1)], kind)

    def placed(self, terms: list[Array], kind: Type) -> Buffers:
        """Return the buffers of a value with a tensor for each coordinate where it is partial."""
        subs = sorted(kind.partial)
        return [
            terms[self.mesh.index(device, subs)][self.mesh.local(kind, device)]
            if self.mesh.holds(kind, device)
            else None
            for device in self.mesh.devices
        ]

    def whole(
        self,
        buffers: Buffers,
        kind: Type,
        fixed: dict[str, int] | None = None,
        tolerance: float = 0,
    ) -> Array:
        """Return the tensor that buffers stand for; copies have to agree.

        fixed: coordinates of partial sub-axes whose terms are wanted alone.
        """
        fixed = fixed or {}
        left = sorted(kind.partial - set(fixed))
        terms: dict[int, Array] = {}
        there: dict[tuple[int, ...], Array] = {}
        for device, buffer in zip(self.mesh.devices, buffers, strict=True):
            if not self.mesh.holds(kind, device):
                if buffer is not None:
                    raise Apart("a device elsewhere holds data")
                continue
            if any(device[sub] != n for sub, n in fixed.items()):
                continue
            i, block = self.mesh.index(device, left), self.mesh.local(kind, device)
            made = terms.setdefault(i, np.zeros(kind.shape, buffer.dtype))
            if made[block].shape != buffer.shape:
                raise Apart(f"a buffer of {buffer.shape} and not {made[block].shape}")
            key = (i, *(s.start for s in block))
            first = there.setdefault(key, buffer)
            if not close(first, buffer, tolerance):
                raise Apart("copies differ")
            made[block] = buffer
        return reduced(kind.reduction, list(terms.values())) if left else terms[0]

    def row(self, buffers: Buffers, i: int) -> Buffers:
        """Return row ``i`` of dimension 0."""
        return [None if buffer is None else buffer[i] for buffer in buffers]

    def stack(self, rows: list[Buffers]) -> Buffers:
        """Return values along a new dimension 0."""
        return [None if row[0] is None else np.stack(row) for row in zip(*rows, strict=True)]

    def step(self, c: Case, y: Type, values: list[Buffers]) -> Buffers:
        """Return the buffers of the result of a step, whose type is ``y``."""
        if c.step.op in COMMUNICATING:
            return COMMUNICATING[c.step.op](self, c, y, *values)
        found: Buffers = []
        for i, device in enumerate(self.mesh.devices):
            if not self.mesh.holds(y, device):
                found.append(None)
                continue
            block = self.mesh.local(y, device)
            low = 0
            if c.step.op == "grouped_matmul":
                low = self.mesh.local(c.types[1], device)[0].start
            if c.step.op in ("take", "take_along_dim"):
                low = self.mesh.local(c.x, device)[c.dim()].start
            arrays = [value[i] for value in values]
            made = local(c, arrays, [s.stop - s.start for s in block], block, low)
            assert made is not None, c.step.op
            found.append(made)
        return found


def close(x: Array, y: Array, tolerance: float) -> bool:
    if x.dtype.kind in "fc":
        return bool(np.all((np.abs(x - y) <= tolerance) | (x == y) | (np.isnan(x) & np.isnan(y))))
    return bool(np.array_equal(x, y))


# Steps over groups: what each member gets


def in_groups(give: Callable[["Devices", Case, Buffers], Buffers]) -> Callable[..., Buffers]:
    """Return a step that gives a list of buffers to each group that holds its operand."""

    def step(self: Devices, c: Case, y: Type, x: Buffers) -> Buffers:
        found: Buffers = [None] * len(x)
        axes = c.axes
        for group in self.groups(axes):
            if all(x[i] is None for i in group):
                continue
            for i, made in zip(group, give(self, c, [x[i] for i in group]), strict=True):
                found[i] = made
        return cut(self, c, y, found) if c.step.op in SCATTERING else found

    return step


def cut(self: Devices, c: Case, y: Type, x: Buffers) -> Buffers:
    """Return the part of each buffer that is the block of ``y``."""
    dim = c.dim("to" if c.step.op == "all_to_all" else "dim")
    found: Buffers = []
    for device, buffer in zip(self.mesh.devices, x, strict=True):
        if buffer is None:
            found.append(None)
            continue
        low = self.mesh.block(c.x.shape[dim], c.x.shards[dim], device)[0]
        inner = self.mesh.block(y.shape[dim], y.shards[dim], device)
        found.append(np.take(buffer, range(inner[0] - low, inner[1] - low), dim))
    return found


SCATTERING = {"reduce_scatter", "scatter", "slice", "all_to_all"}


def all_of(self: Devices, c: Case, group: Buffers) -> Buffers:
    return [reduced(c.x.reduction, group)] * len(group)


def first_of(group: Buffers) -> Buffers:
    return [group[0], *[None] * (len(group) - 1)]


def spread(self: Devices, c: Case, group: Buffers) -> Buffers:
    """Return the only buffer of a group for each member."""
    [there] = [buffer for buffer in group if buffer is not None]
    return [there] * len(group)


def gathered(self: Devices, c: Case, group: Buffers) -> Buffers:
    return [np.concatenate(group, c.dim())] * len(group)


def sent(self: Devices, c: Case, group: Buffers) -> Buffers:
    made: Buffers = [None] * len(group)
    made[c.integer("to")] = group[c.integer("from")]
    return made


def shifted(self: Devices, c: Case, group: Buffers) -> Buffers:
    n = c.integer("by")
    made: Buffers = []
    for i in range(len(group)):
        inside = 0 <= i - n < len(group) or "open" not in c.step.clauses
        made.append(group[(i - n) % len(group)] if inside else np.zeros_like(group[0]))
    return made


def masked(self: Devices, c: Case, group: Buffers) -> Buffers:
    rest = np.full_like(group[0], identity(c.step.clauses["op"], c.x.dtype))
    return [group[0], *[rest] * (len(group) - 1)]


def kept(self: Devices, c: Case, y: Type, x: Buffers) -> Buffers:
    rows = zip(self.mesh.devices, x, strict=True)
    return [buffer if self.mesh.holds(y, device) else None for device, buffer in rows]


def permuted(self: Devices, c: Case, y: Type, x: Buffers) -> Buffers:
    """Return for each device the block that it has in ``y``, from a device that holds it."""
    states = c.x.partial | set(c.x.held)
    there: dict[Any, Array] = {}

    def key(device: dict[str, int], kind: Type) -> Any:
        fixed = tuple(sorted((sub, device[sub]) for sub in states))
        return fixed, tuple((s.start, s.stop) for s in self.mesh.local(kind, device))

    for device, buffer in zip(self.mesh.devices, x, strict=True):
        if buffer is not None:
            there[key(device, c.x)] = buffer
    rows = self.mesh.devices
    return [there[key(d, y)] if self.mesh.holds(y, d) else None for d in rows]


def redistributed(self: Devices, c: Case, y: Type, x: Buffers) -> Buffers:
    """Return the blocks of ``y``: what stays partial keeps its terms, what is new is masked."""
    stays = c.x.partial & y.partial
    new = y.partial - stays
    found: Buffers = []
    for device in self.mesh.devices:
        if not self.mesh.holds(y, device):
            found.append(None)
            continue
        whole = self.whole(x, c.x, {sub: device[sub] for sub in stays}, np.inf)
        block = whole[self.mesh.local(y, device)]
        if any(device[sub] for sub in new):
            block = np.full_like(block, identity(y.reduction, y.dtype))
        found.append(block)
    return found


def assembled(self: Devices, c: Case, y: Type, *pieces: Buffers) -> Buffers:
    rows = enumerate(self.mesh.devices)
    return [pieces[self.mesh.index(device, c.axes)][i] for i, device in rows]


def terms_of(self: Devices, c: Case, y: Type, x: Buffers) -> Buffers:
    return [None if buffer is None else np.expand_dims(buffer, c.integer("dim")) for buffer in x]


COMMUNICATING: dict[str, Callable[..., Buffers]] = {
    "all_reduce": in_groups(all_of),
    "reduce": in_groups(lambda self, c, group: first_of(all_of(self, c, group))),
    "broadcast": in_groups(spread),
    "reduce_scatter": in_groups(all_of),
    "all_gather": in_groups(gathered),
    "scatter": in_groups(spread),
    "gather": in_groups(lambda self, c, group: first_of(gathered(self, c, group))),
    "all_to_all": in_groups(gathered),
    "send": in_groups(sent),
    "shift": in_groups(shifted),
    "slice": in_groups(lambda self, c, group: group),
    "mask": in_groups(masked),
    "keep_root": kept,
    "keep": kept,
    "part": kept,
    "permute": permuted,
    "redistribute": redistributed,
    "assemble": assembled,
    "terms": terms_of,
}
"""The steps that depend on where a device is."""
