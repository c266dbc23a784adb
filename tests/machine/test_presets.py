"""The machines that ship with collir: each parses, prints, and names the sources of its numbers."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from collir.dialects.machine import MachineOp
from collir.machine import Machine
from collir.syntax.machines import PRESETS, shipped
from collir.syntax.reader import read
from collir.syntax.writer import write
from collir.tools.machine import preset

FILES = sorted(PRESETS.glob("*.coll"))


def machine(name: str) -> Machine:
    return preset(name).op.value()


def test_the_usual_ones_are_there() -> None:
    assert {"dgx1_v100", "dgx_a100", "dgx_h100", "gb200_nvl72", "ndv2", "tpu_v3"} < set(shipped())
    assert {"gcp_a2", "gcp_v100x8", "cpu_cluster", "laptop"} < set(shipped())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_parses_and_prints_to_a_fixed_point(path: Path) -> None:
    module = read(path.read_text(encoding="utf-8"), str(path))
    text = write(module)
    again = read(text)
    assert again.is_structurally_equivalent(module)
    assert write(again) == text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_device_and_level_has_a_comment_on_its_sources(path: Path) -> None:
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    assert lines[0].startswith("// ")
    assert lines[0].endswith("."), "the first line is a sentence by itself: the summary"
    for index, line in enumerate(lines):
        if line.startswith(("device", "level")):
            first = index
            while lines[first - 1].startswith("//"):
                first -= 1
            comment = " ".join(lines[first:index])
            for setting in ("port", "latency", "reduction", "compute", "memory"):
                end = lines.index("}", index) if line == "device {" else index + 1
                if any(re.search(rf"(?<!= ){setting} ", said) for said in lines[index:end]):
                    assert setting in comment.lower(), f"{line}: where is its {setting} from?"


@pytest.mark.parametrize("name", shipped())
def test_it_can_be_taken_with_another_size(name: str) -> None:
    parameter = next(iter(preset(name).parameters))
    module = read(f"machine @mine = @{name}({parameter} = 64)\n")
    assert f"machine @mine = @{name}({parameter} = 64)" in write(module)
    (mine,) = module.ops
    assert isinstance(mine, MachineOp)
    outer, *inner = machine(name).levels
    assert mine.value().levels == (replace(outer, size=64), *inner)
    assert mine.value().device == machine(name).device


def test_each_gpu_of_a_dgx_has_its_own_network_port() -> None:
    for name, port in (("dgx_a100", 25e9), ("dgx_h100", 50e9), ("gb200_nvl72", 50e9)):
        outer, inner = machine(name).levels
        assert outer.rails == inner.size
        assert outer.port / outer.rails == port


def test_each_chip_of_a_tpu_row_has_its_own_links_across_rows() -> None:
    y, x = machine("tpu_v3").levels
    assert y.port / y.rails == x.port
    assert y.rails == x.size


def test_an_ndv2_has_the_nvlinks_of_a_dgx1() -> None:
    levels = [machine(name).levels[-1] for name in ("dgx1_v100", "ndv2")]
    assert levels[0].links == levels[1].links
    assert levels[0].wires == 6
    assert {level.port / level.wires for level in levels} == {25e9}


def test_some_gpus_of_a_full_mesh_have_fewer_links() -> None:
    """Each link stays as fast: two MI300X have one of the seven links of a port."""
    *_, gpus = machine("mi300x").levels
    assert [gpus.first(count).port for count in (8, 5, 2)] == [350e9, 200e9, 50e9]
