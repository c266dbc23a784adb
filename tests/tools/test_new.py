"""Tests of collir new: its programs parse, and the commands in their comments work."""

import random
import re
import shlex
from contextlib import chdir
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.harness.seeds import some

import collir
from collir.dialects.machine import MachineOp
from collir.ir.functions import functions_of
from collir.ir.parameters import parameters_of
from collir.machine import Fabric, Machine
from collir.models import MODELS
from collir.tools import collir as collir_tool
from collir.tools import collopt
from collir.tools.machine import preset
from collir.tools.new import CPU, GPUS
from collir.tools.sweep_model import step_of


def machine_of(path: Path) -> Machine:
    """Return the machine of a file, which is verified."""
    module = collir.parse(path)
    assert functions_of(module)
    return next(op for op in module.ops if isinstance(op, MachineOp)).value()


def test_the_machine_that_the_options_say(tmp_path: Path) -> None:
    file = tmp_path / "mine.coll"
    words = "new --nodes 4 --gpus 8 --gpu h100 --nic 8x400Gb --name mine -o"
    assert collir_tool.main([*words.split(), str(file)]) == 0
    machine = machine_of(file)
    shipped = preset("dgx_h100").op.value()
    assert machine.name == "mine"
    assert machine.device == shipped.device
    node, gpu = machine.levels
    assert (node.size, node.port, node.rails, node.fabric) == (4, 400e9, 8, Fabric.NETWORK)
    assert (gpu.size, gpu.port, gpu.fabric) == (8, shipped.levels[1].port, Fabric.NVLINK)


def test_standard_output_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert collir_tool.main(["new", "--nodes", "3", "--cpus", "1", "--cores", "5"]) == 0
    text = capsys.readouterr().out
    collir.parse(text)
    assert "level core[5]" in text


@pytest.mark.parametrize(
    ("cores", "share", "memory"),
    [
        (1, "all of a socket's", "256 GiB @ 204.8 GB/s"),
        (2, "half of a socket's", "128 GiB @ 102.4 GB/s"),
        (3, "a 3rd of a socket's", "87381 MiB @ 68.27 GB/s"),
        (8, "an 8th of a socket's", "32 GiB @ 25.6 GB/s"),
        (11, "an 11th of a socket's", "23831 MiB @ 18.62 GB/s"),
        (64, "a 64th of a socket's", "4 GiB @ 3.2 GB/s"),
        (112, "a 112th of a socket's", "2340 MiB @ 1.829 GB/s"),
    ],
)
def test_a_core_has_its_share_of_a_socket(
    cores: int, share: str, memory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert collir_tool.main(["new", "--cpus", "2", "--cores", str(cores)]) == 0
    text = capsys.readouterr().out
    assert share in " ".join(line.strip("/ ") for line in text.splitlines())
    assert f"memory = {memory};" in text
    assert "64th" not in text or cores == 64


@pytest.mark.parametrize(
    ("nic", "port", "rails"),
    [
        ("8x400Gb", 400e9, 8),
        ("2x100Gbps", 25e9, 2),
        ("25GB/s", 25e9, 1),
        ("16x50Gbit/s", 100e9, 8),  # two for each GPU
        ("3x100Gb", 37.5e9, 1),  # 8 GPUs share them
    ],
)
def test_adapters(nic: str, port: float, rails: int, tmp_path: Path) -> None:
    file = tmp_path / "mine.coll"
    assert collir_tool.main(["new", "--nic", nic, "-o", str(file)]) == 0
    node = machine_of(file).levels[0]
    assert (node.port, node.rails) == (port, rails)


@given(
    nodes=st.integers(1, 300),
    gpus=st.integers(1, 80),
    gpu=st.sampled_from(list(GPUS)),
    nic=st.none() | st.builds("{}x{}Gb".format, st.integers(1, 16), st.sampled_from([25, 400])),
)
@settings(max_examples=18)
def test_any_cluster_of_gpus_parses(nodes: int, gpus: int, gpu: str, nic: str | None) -> None:
    from collir.tools.collir import _parser  # pyright: ignore[reportPrivateUsage]
    from collir.tools.new import program

    words = ["new", "--nodes", str(nodes), "--gpus", str(gpus), "--gpu", gpu]
    options = _parser("new").parse_args(words + (["--nic", nic] if nic else []))
    if nodes * gpus == 1:
        with pytest.raises(collir.UsageError, match="single device"):
            program(options, "x.coll")
        return
    text = program(options, "x.coll")
    module = collir.parse(text)
    printed = collir.emit(module)
    assert collir.emit(collir.parse(printed)) == printed
    assert all(len(line) <= 100 for line in text.splitlines() if line.startswith("//"))


@pytest.mark.turns
@pytest.mark.parametrize(
    "words",
    [
        ["--nodes", "4", "--gpus", "8", "--gpu", "h100", "--nic", "8x400Gb"],
        ["--nodes", "3", "--gpus", "1", "--gpu", "b200"],
        ["--nodes", "1", "--gpus", "8", "--gpu", "v100"],
        ["--nodes", "2", "--cpus", "2", "--cores", "6", "--nic", "100Gb"],
    ],
    ids=" ".join,
)
def test_commands_in_the_comments_work(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They place tensor parallelism inside nodes."""
    with chdir(tmp_path):
        assert collir_tool.main(["new", *words, "-o", "my cluster.coll"]) == 0
        text = Path("my cluster.coll").read_text(encoding="utf-8")
        commands = re.findall(r"^//   (.*)$", text, re.MULTILINE)
        assert len(commands) == 4
        for command in commands:
            name, *arguments = shlex.split(command)
            assert name == "collopt"
            assert collopt.main(arguments) == 0
            if "-t placements" in command and "model" in text:
                best = capsys.readouterr().out.splitlines()[2]
                assert re.match(r"  data = node:\d+, model = ", best)
        suffix = ".c" if "--cores" in words else ".cu"
        assert "int main(" in Path(f"my cluster{suffix}").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*GPUS.values(), CPU])
def test_each_number_keeps_its_source(name: str) -> None:
    words = {source: ["--gpu", gpu] for gpu, source in GPUS.items()} | {CPU: ["--cpus", "1"]}
    from collir.tools.collir import _parser  # pyright: ignore[reportPrivateUsage]
    from collir.tools.new import program

    text = program(_parser("new").parse_args(["new", *words[name]]), "x.coll")
    lines = text.splitlines()
    for index, line in enumerate(lines):
        if line.startswith(("  device", "  level")):
            assert lines[index - 1].startswith("  // "), line
    for level in preset(name).op.value().levels:
        assert re.search(rf"Port: [^\0]*Latency: [^\0]*  level {level.name}\[", text)


def test_a_node_has_as_many_adapters_for_each_gpu_as_a_shipped_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A DGX has 8 of 400 Gbit/s for 8 GPUs; a node with fewer GPUs is no DGX."""
    for gpus, port in ((8, "400 GB/s"), (4, "200 GB/s"), (1, "50 GB/s"), (16, "800 GB/s")):
        assert collir_tool.main(["new", "--nodes", "2", "--gpus", str(gpus)]) == 0
        text = capsys.readouterr().out
        assert f"level node[2] {{ port = {port}, latency = 14 us" in text
        assert f"// Port: {gpus} x 400 Gbit/s" in text


def test_links_are_kept_for_the_number_of_gpus_that_they_join(tmp_path: Path) -> None:
    for gpus, linked in ((8, True), (4, False)):
        file = tmp_path / f"{gpus}.coll"
        words = ["new", "--gpu", "v100", "--gpus", str(gpus), "-o", str(file)]
        assert collir_tool.main(words) == 0
        assert (machine_of(file).levels[1].links is not None) == linked
        assert ("Links:" in file.read_text(encoding="utf-8")) == linked


def test_a_file_is_overwritten_only_by_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.coll"
    file.write_text("kept", encoding="utf-8")
    assert collir_tool.main(["new", "-o", str(file)]) == 1
    assert file.read_text(encoding="utf-8") == "kept"
    err = capsys.readouterr().err
    assert err.endswith("exists: overwrite it with --force, or choose another name\n")
    assert collir_tool.main(["new", "--force", "-o", str(file)]) == 0
    machine_of(file)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--nic 8x400", "--nic 8x400: write a number of adapters and a rate, such as 8x400Gb"),
        ("--nic 0x400Gb", "--nic 0x400Gb: at least one adapter that sends is needed"),
        ("--name sync_gradients", "the program has @sync_gradients already: choose another --name"),
        ("--force", "--force goes with -o FILE"),
        ("--nodes 0", "argument --nodes: '0' is not an integer from 1 to 2^31 - 1"),
        ("--gpu h101", "argument --gpu: invalid choice: 'h101'"),
        ("--gpu h100 --cores 4", "--cpus and --cores are for machines without GPUs"),
        ("--nodes 1 --gpus 1", "the machine has a single device: nothing has to be sent"),
        ("--nodes 2147483647", "devices"),
        ("--name 4x", "'4x' is not a name: letters, digits and _, no digit first"),
    ],
)
def test_wrong_options_are_one_line(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert collir_tool.main(["new", *words.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("collir: error: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("model", some(list(MODELS), 5))
def test_a_step_of_a_model_fits_the_cluster(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(model)
    words = ["--nodes", rng.choice("124"), "--gpus", rng.choice("48"), "--gpu", rng.choice([*GPUS])]
    assert collir_tool.main(["new", "--model", model, *words]) == 0
    text = capsys.readouterr().out
    module = collir.parse(text)
    step = next(f for f in functions_of(module) if f.sym_name.data == "step")
    given = parameters_of(step)
    assert {name: given[name] for name in MODELS[model].sizes} == MODELS[model].sizes
    devices = int(words[1]) * int(words[3])
    assert given["batch"] == 8 * devices
    assert f"collir sweep cluster.coll --devices {devices}\n" in text or model == "resnet-50"
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("model", some([name for name in MODELS if name != "resnet-50"], 5))
def test_a_step_of_a_model_can_be_swept(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As its first lines say; a router of experts is no attention."""
    assert collir_tool.main(["new", "--model", model]) == 0
    step = step_of("cluster.coll", capsys.readouterr().out, "", (), "pipe")
    assert step.batch == "batch"
    assert step.layers in step.parameters
    attention = {name for name, is_one in step.called.items() if is_one}
    assert not any("experts" in name for name in attention)


@pytest.mark.parametrize("name", ["block", "model", "adamw", "m"])
def test_a_machine_has_no_name_of_the_page(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert collir_tool.main(["new", "--model", "gemma-3-12b", "--name", name]) == 2
    assert f"the program has @{name} already" in capsys.readouterr().err


def test_a_model_that_no_axes_divide_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert collir_tool.main(["new", "--model", "mixtral-8x7b", "--nodes", "1", "--gpus", "2"]) == 2
    assert "no axes of mixtral-8x7b fit 1 node of 2 GPUs" in capsys.readouterr().err
    assert collir_tool.main(["new", "--model", "mixtral-8x7b", "--cpus", "2"]) == 2
    assert "--model is for machines with GPUs" in capsys.readouterr().err
