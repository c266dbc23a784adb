"""The fabrics of levels that do not declare them, by the names of levels."""

from dataclasses import replace

import pytest

from collir.machine import (
    Fabric,
    Level,
    Machine,
    Parents,
    Runtime,
    level_fabrics,
    names_tell_fabrics,
    parents_fabric,
    runtime_of,
)

NETWORK, MEMORY, PCI, NVLINK, ICI = (
    Fabric.NETWORK, Fabric.MEMORY, Fabric.PCI, Fabric.NVLINK, Fabric.ICI,
)  # fmt: skip


def levels(text: str) -> tuple[Level, ...]:
    """Return levels of words such as ``node`` or ``node:network``, outermost first."""
    pairs = (word.partition(":") for word in text.split())
    return tuple(
        Level(name, 2, 1e9, 1e-6, fabric=Fabric(fabric) if fabric else None)
        for name, _, fabric in pairs
    )


@pytest.mark.parametrize(
    ("text", "expected", "runtime"),
    [
        ("node gpu", [NETWORK, NVLINK], Runtime.NCCL),
        ("a b", [NETWORK, NVLINK], Runtime.NCCL),
        ("a:ici b:ici", [ICI, ICI], Runtime.XLA),
        ("node socket core", [NETWORK, MEMORY, MEMORY], Runtime.MPI),
        ("host numa l3 core", [NETWORK, MEMORY, MEMORY, MEMORY], Runtime.MPI),
        ("l1 l2 l3", [NETWORK, NETWORK, NVLINK], Runtime.NCCL),
        ("node l3 rank:memory", [NETWORK, MEMORY, MEMORY], Runtime.MPI),
        ("node Package L3Cache rank", [NETWORK, MEMORY, MEMORY, MEMORY], Runtime.MPI),
        ("node:network socket core", [NETWORK, MEMORY, MEMORY], Runtime.MPI),
        ("node socket:memory rank", [NETWORK, MEMORY, MEMORY], Runtime.MPI),
        ("core", [MEMORY], Runtime.MPI),
        ("rack host", [NETWORK, NETWORK], Runtime.MPI),
        ("pod leaf node", [NETWORK, NETWORK, NETWORK], Runtime.MPI),
        ("node socket gpu", [NETWORK, PCI, NVLINK], Runtime.NCCL),
        ("node numa x:nvlink", [NETWORK, PCI, NVLINK], Runtime.NCCL),
        ("node socket_0 core_1", [NETWORK, MEMORY, MEMORY], Runtime.MPI),
        ("node:pci core", [PCI, PCI], Runtime.NCCL),
    ],
)
def test_names_of_levels_tell_their_fabrics(
    text: str, expected: list[Fabric], runtime: Runtime
) -> None:
    assert level_fabrics(levels(text)) == expected
    assert runtime_of(Machine("m", levels(text))) is runtime
    assert parents_fabric(levels(text)) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a b", False), ("node rank", False), ("l1 l2", False), ("l3 core", True),
        ("node gpu", True), ("a b:pci", True),
        ("node:network x", False), ("socket rank", True), ("rack host", True), ("core", True),
    ],
)  # fmt: skip
def test_what_names_do_not_tell_is_known(text: str, told: bool) -> None:
    assert names_tell_fabrics(levels(text)) is told


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        ("node", "gpu", (NETWORK, NVLINK)),
        ("node", "core", (NETWORK, MEMORY)),
        ("socket", "core", (MEMORY, MEMORY)),
        ("socket", "rank", (MEMORY, MEMORY)),
        ("socket", "gpu", (PCI, NVLINK)),
        ("a:pci", "b", (PCI, NVLINK)),
    ],
)
def test_parents_of_unlike_sizes_have_a_fabric_too(
    outer: str, inner: str, expected: tuple[Fabric, Fabric]
) -> None:
    (parent,), (level,) = levels(outer), levels(inner)
    level = replace(level, size=3, parents=Parents(parent, (1, 2)))
    assert (parents_fabric([level]), *level_fabrics([level])) == expected
