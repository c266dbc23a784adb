"""Draw inputs for functions."""

import numpy as np

from .devices import Buffers, Devices
from .mesh import FLOATS, Mesh, Type
from .numerics import Array, reduced, type_of


def drawn(kind: Type, rng: np.random.Generator, noise: float) -> Array:
    """Return a random tensor of a type; floats are changed by a relative ``noise``."""
    if kind.dtype in FLOATS:
        x = rng.uniform(0.25, 1.25, kind.shape) * rng.choice([-1, 1, 1], kind.shape)
        change = rng.choice([-1, 1], kind.shape)
        return x.astype(np.longdouble) * (1 + np.longdouble(noise) * change)
    low, high = (0, 2) if kind.dtype == "bool" else (-3, 8)
    if kind.partial and kind.reduction == "prod":
        return rng.choice([-1, 1], kind.shape).astype(type_of[kind.dtype])
    return rng.integers(low, high, kind.shape).astype(type_of[kind.dtype])


def inputs(
    mesh: Mesh, kinds: list[Type], seed: int, noise: float = 0
) -> list[tuple[Array, Buffers]]:
    """Return for each type a whole tensor and its buffers; terms of partial values are random."""
    rng = np.random.default_rng(seed)
    devices = Devices(mesh)
    found: list[tuple[Array, Buffers]] = []
    for kind in kinds:
        count = mesh.count(sorted(kind.partial))
        terms = [drawn(kind, rng, noise) for _ in range(count)]
        whole = reduced(kind.reduction, terms) if kind.partial else terms[0]
        found.append((whole, devices.placed(terms, kind)))
    return found
