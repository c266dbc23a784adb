"""``collir new``: a program to start from, for the cluster that the options describe."""

import argparse
import math
import re
import shlex
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from collir.dialects.machine import LevelAttr
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.machine import Fabric, Level, LinkKind, Machine, MachineError
from collir.models import MODELS
from collir.syntax.units import Quantity, plain
from collir.syntax.writer import level_text
from collir.tools.foreign import comment
from collir.tools.machine import Preset, preset
from collir.tools.shell import UsageError, write_whole

GPUS = {
    "v100": "dgx1_v100",
    "a100": "dgx_a100",
    "a100-80gb": "dgx_a100_80gb",
    "h100": "dgx_h100",
    "h200": "dgx_h200",
    "b200": "dgx_b200",
}
"""Kind of GPU -> the shipped machine that its numbers, and their sources, are taken from."""
CPU = "cpu_cluster"
"""The shipped machine of CPUs."""

_TAKEN = ("m", "sync_gradients", "sum_products")
"""The names of the mesh and the functions of the program."""

_MICROBATCHES = 16
"""The microbatches of a training step."""

_PRODUCTS = 4 * _MICROBATCHES
"""How often products of a layer are summed in a training step: twice forward, twice backward."""

_ELEMENTS = 2**26
"""The approximate number of elements of a value on each device."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    number = _positive
    parser.add_argument("--nodes", metavar="N", type=number, default=2, help="default: 2")
    parser.add_argument("--gpus", metavar="N", type=number, help="of each node (default: 8)")
    parser.add_argument("--gpu", choices=list(GPUS), help="kind of GPU (default: h100)")
    parser.add_argument("--cpus", metavar="N", type=number, help="without GPUs: sockets of a node")
    parser.add_argument("--cores", metavar="N", type=number, help="without GPUs: of each socket")
    parser.add_argument(
        "--nic", metavar="[N x]RATE", help="of each node, such as 8x400Gb or 25GB/s (default: "
        "for each GPU as in NVIDIA's DGX; for CPUs 200Gb)",
    )  # fmt: skip
    parser.add_argument("--model", choices=list(MODELS), help="a training step of it (for GPUs)")
    parser.add_argument("--name", default="cluster", help="of the machine (default: cluster)")
    parser.add_argument("-o", "--output", metavar="FILE", help="default: standard output")
    parser.add_argument("--force", action="store_true", help="overwrite FILE")


def run(options: argparse.Namespace) -> int:
    """Write the program; return the exit status."""
    if options.output is None:
        if options.force:
            raise UsageError("--force goes with -o FILE")
        sys.stdout.write(program(options, f"{options.name}.coll"))
        return 0
    text = program(options, options.output)
    if Path(options.output).is_file() and not options.force:
        message = f"{options.output} exists: overwrite it with --force, or choose another name"
        raise DiagnosticError(Diagnostic(message))
    write_whole(options.output, text)
    return 0


def _positive(text: str) -> int:
    if not re.fullmatch(r"[0-9]+", text) or not 1 <= int(text) < 2**31:
        raise argparse.ArgumentTypeError(f"'{text}' is not an integer from 1 to 2^31 - 1")
    return int(text)


def program(options: argparse.Namespace, file: str) -> str:
    """Return the text of the program, whose comments call it ``file``.

    Raises:
        UsageError: the options do not describe a machine.
    """
    on_cpus = options.cpus is not None or options.cores is not None
    if not re.fullmatch(r"[A-Za-z_]\w*", options.name, re.ASCII):
        raise UsageError(f"'{options.name}' is not a name: letters, digits and _, no digit first")
    if options.model is not None and on_cpus:
        raise UsageError("--model is for machines with GPUs")
    taken = MODELS[options.model].names if options.model is not None else _TAKEN
    if options.name in taken:
        raise UsageError(f"the program has @{options.name} already: choose another --name")
    if on_cpus and (options.gpus is not None or options.gpu is not None):
        raise UsageError("--cpus and --cores are for machines without GPUs")
    source = CPU if on_cpus else GPUS[options.gpu or "h100"]
    shipped = preset(source)
    inner = _inner_levels(shipped.op.value(), options, on_cpus)
    sizes = [level.size for level in inner]
    outer = shipped.op.value().levels[0]
    usual = _usual_adapters(shipped.op.value(), None if on_cpus else math.prod(sizes))
    count, rate = _adapters(options.nic) if options.nic else usual
    node = replace(
        outer,
        size=options.nodes,
        port=count * rate,
        rails=math.gcd(count, math.prod(sizes)),  # adapters of a GPU, or shared by GPUs
        fabric=Fabric.NETWORK,
    )
    _check_devices(options.name, (node, *inner))
    if options.model is not None:
        return _training(options, shipped, node, inner, file, (count, rate))
    axes = _axes(options.nodes, math.prod(sizes))
    weights = f'{{weights="sum_products:{_PRODUCTS}"}}' if len(axes) > 1 else ""
    lines = [
        f"// {_description(options.nodes, sizes, options.gpu or 'h100', on_cpus)}",
        f"// From @{source}, which `collir machine {source}` prints.",
        "//",
        *_commands(file if file.isprintable() else f"{options.name}.coll", weights, on_cpus),
        f"machine @{options.name} {{",
        *(_core(shipped, sizes[-1]) if on_cpus else _device(shipped.text)),
        *_level_lines(node, inner, _sources(shipped.text), count, rate),
        "}",
        "",
        *_functions(options.name, axes),
    ]
    return "\n".join(lines) + "\n"


def _training(
    options: argparse.Namespace,
    shipped: Preset,
    node: Level,
    inner: list[Level],
    file: str,
    adapters: tuple[int, float],
) -> str:
    """Return a training step of a model.

    Raises:
        UsageError: no sizes of its axes fit the machine.
    """
    model, [level] = MODELS[options.model], inner
    nodes, gpus = options.nodes, level.size
    degrees = [m for m in range(2, gpus + 1) if gpus % m == 0] if model.has_model_axis else [1]
    fitting = (m for m in degrees if m < nodes * gpus and model.divides(nodes * gpus // m, m))
    if (degree := next(fitting, None)) is None:
        raise UsageError(
            f"no axes of {options.model} fit {_counted(nodes, 'node')} of {_counted(gpus, 'GPU')}: "
            "choose other --nodes or --gpus"
        )
    places = [f"{node.name}:{nodes}"] * (nodes > 1)
    places += [f"{level.name}:{gpus // degree}"] * (degree < gpus)
    axes = f"data = {' * '.join(places)}" + f", model = {level.name}:{degree}" * (degree > 1)
    lines = [
        "//",
        f"// {_description(nodes, [gpus], options.gpu or 'h100', on_cpus=False)}",
        f"machine @{options.name} {{",
        *_device(shipped.text),
        *_level_lines(node, inner, _sources(shipped.text), *adapters),
        "}",
    ]
    own = file if file.isprintable() else f"{options.name}.coll"
    text = model.program("\n".join(lines), options.name, axes, nodes * gpus, own)
    return f"// {options.model}, as its published configuration has it.\n{text}"


def _inner_levels(machine: Machine, options: argparse.Namespace, on_cpus: bool) -> list[Level]:
    """Return the levels of a node of a shipped machine, with the sizes of the options."""
    sizes = (options.cpus, options.cores) if on_cpus else (options.gpus,)
    levels = [
        _of_size(level, size or level.size)
        for level, size in zip(machine.levels[1:], sizes, strict=True)
    ]
    return levels if on_cpus else [replace(level, fabric=Fabric.NVLINK) for level in levels]


def _check_devices(name: str, levels: tuple[Level, ...]) -> None:
    """Check that levels make a machine of several devices.

    Raises:
        UsageError: the levels make no machine, or a single device.
    """
    try:
        devices = Machine(name, levels).devices
    except MachineError as error:
        raise UsageError(str(error)) from None
    if devices == 1:
        raise UsageError("the machine has a single device: nothing has to be sent")


def _level_lines(
    node: Level,
    inner: list[Level],
    sources: dict[str, dict[str, str]],
    adapters: int,
    rate: float,
) -> list[str]:
    """Return the lines of the levels, each behind a comment with its sources."""
    bits = f"{plain(Decimal(repr(rate * 8)) / 10**9)} Gbit/s"
    latency = sources["node"].get("Latency", "")
    port = f"Port: {adapters} x {bits}, the line rate of the adapters of a node. {latency}"
    lines = [*comment(port, "  "), f"  {level_text(LevelAttr.of(node))}"]
    for level in inner:
        kept = [
            text for label, text in sources[level.name].items() if label != "Links" or level.links
        ]
        lines += [*comment(" ".join(kept), "  "), f"  {level_text(LevelAttr.of(level))}"]
    return lines


def _of_size(level: Level, size: int) -> Level:
    """Return a level with another number of children, without its matrix of links."""
    if size == level.size or level.links is None:
        return replace(level, size=size)
    return replace(level, size=size, links=None, kind=LinkKind.SWITCH)


def _usual_adapters(machine: Machine, gpus: int | None) -> tuple[int, float]:
    """Return the number of adapters of a node, and the bytes/second of each: as many for each GPU
    as a shipped machine has; without GPUs, as many."""
    outer, below = machine.levels[0], math.prod(level.size for level in machine.levels[1:])
    count = outer.rails if gpus is None else max(1, outer.rails * gpus // below)
    return count, outer.port / outer.rails


def _adapters(text: str) -> tuple[int, float]:
    """Return the number of adapters, and the bytes/second of each, of a text such as
    ``8x400Gb``."""
    match = re.fullmatch(r"(?:([0-9]+)\s*x\s*)?([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+(?:/s)?)", text)
    unit = re.sub(r"(ps|/s)?$", "/s", match[3], count=1) if match else ""
    if not match or unit not in Quantity.BANDWIDTH.units:
        raise UsageError(f"--nic {text}: write a number of adapters and a rate, such as 8x400Gb")
    count, rate = int(match[1] or 1), Quantity.BANDWIDTH.parse(match[2], unit)
    if count < 1 or rate <= 0:
        raise UsageError(f"--nic {text}: at least one adapter that sends is needed")
    return count, rate


# --- the parts of a shipped machine ---------------------------------------------------------------


def _device(text: str) -> list[str]:
    """Return the lines of the device of a machine, with the comment that has their sources."""
    match = re.search(r"(?:  //[^\n]*\n)*  device \{\n.*?\n  \}", text, re.DOTALL)
    assert match
    return match[0].splitlines()


def _core(shipped: Preset, cores: int) -> list[str]:
    """Return the lines of the device of a machine of CPUs, whose sockets have other numbers of
    cores: a core has its share of the memory of a socket."""
    machine = shipped.op.value()
    usual, device = machine.levels[-1].size, machine.device
    assert device
    assert device.memory
    assert device.memory_bandwidth
    if cores == usual:
        return _device(shipped.text)
    mebibytes = device.memory * usual / cores // 2**20
    memory = Quantity.BYTES.format(mebibytes * 2**20)
    bandwidth = Quantity.BANDWIDTH.format(float(f"{device.memory_bandwidth * usual / cores:.4g}"))
    text = "\n".join(_device(shipped.text))
    text, comments = re.subn(r"\ba\s+64th\s+of\b", _share(cores), text)
    text, values = re.subn(r"memory = [^;]*;", f"memory = {memory} @ {bandwidth};", text)
    assert (comments, values) == (1, 1)
    above, _, inside = text.partition("  device {")
    words = " ".join(line.strip().removeprefix("//").strip() for line in above.splitlines())
    return [*comment(words, "  "), *f"  device {{{inside}".splitlines()]


def _share(parts: int) -> str:
    """Return the words for one of some equal parts, such as ``a 16th of``."""
    if parts <= 2:
        return "all of" if parts == 1 else "half of"
    last = 0 if parts // 10 % 10 == 1 else parts % 10
    article = "an" if re.match(r"8|1[18](?:\d{3})*$", str(parts)) else "a"
    return f"{article} {parts}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(last, 'th') } of"


def _sources(text: str) -> dict[str, dict[str, str]]:
    """Return for each level the parts of its comment by label: ``Port``, ``Latency``, ``Links``."""
    sources: dict[str, dict[str, str]] = {}
    for comment_text, name in re.findall(r"((?:  //[^\n]*\n)*)  level (\w+)", text):
        words = " ".join(re.findall(r"//\s*(.*)", comment_text))
        parts = re.split(r"(?=\b(?:Port|Links|Latency): )", words)
        sources[name] = {part.partition(":")[0]: part.strip() for part in parts if part.strip()}
    return sources


# --- what is written around it --------------------------------------------------------------------


def _description(nodes: int, sizes: list[int], gpu: str, on_cpus: bool) -> str:
    if not on_cpus:
        return f"{_counted(nodes, 'node')} of {_counted(sizes[0], gpu.upper())}."
    cpus, cores = sizes
    return f"{_counted(nodes, 'node')} of {_counted(cpus, 'CPU')} with {_counted(cores, 'core')}."


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _commands(file: str, weights: str, on_cpus: bool) -> list[str]:
    """Return comments with commands for the program in a file.

    Args:
        weights: the options that say how often its functions run.
    """
    target, suffix = ("mpi", ".c") if on_cpus else ("nccl", ".cu")
    code = shlex.quote(f"{file.removesuffix('.coll')}{suffix}")
    file, placements = shlex.quote(file), shlex.quote(f"placements{weights}")
    passes = f"-p {shlex.quote(f'place{weights},decompose')}"
    commands = {
        "Where should the axes of the mesh live?": f"-t {placements} {file}",
        "The cheapest programs there:": f"{passes} {file}",
        "What do they cost, step by step?": f"{passes} -t cost {file}",
        f"Code for {target.upper()}, with a main:": (
            f"{passes} -t '{target}{{main=true}}' {file} -o {code}"
        ),
    }
    return [
        line
        for title, arguments in commands.items()
        for line in (f"// {title}", f"//   collopt {arguments}")
    ]


def _axes(nodes: int, below: int) -> dict[str, int]:
    """Return the axes of the mesh with their sizes; an axis of size 1 has no use."""
    if nodes == 1 or below == 1:
        return {"data": nodes * below}
    return {"data": nodes, "model": below}


def _functions(machine: str, axes: dict[str, int]) -> list[str]:
    """Return a mesh and functions over each of its axes."""
    data, model = axes["data"], axes.get("model", 1)
    elements = math.ceil(_ELEMENTS / data) * data
    weights = f"f32[{elements * model}{'@model' if model > 1 else ''}]"
    lines = [
        "// Two axes of parallelism; `place` decides on which levels they live."
        if model > 1
        else "// One axis of parallelism.",
        f"mesh @m on @{machine} {{ {', '.join(f'{n} = {s}' for n, s in axes.items())} }}",
        "",
        "// Data parallelism: each device has a gradient of the weights that it holds, for its own",
        "// part of the batch; all want the sum.",
        f"func @sync_gradients(%g: {weights} partial(sum: data)) -> {weights} on @m {{",
        "  %r = all_reduce %g over data",
        "  return %r",
        "}",
    ]
    if model > 1:
        rows = f"{4096 * data}@data, 8192"
        lines += [
            "",
            "// Tensor parallelism: each device of a group has a partial product of the same rows.",
            f"// In a step of {_MICROBATCHES} microbatches, a layer has {_PRODUCTS} such sums",
            "// for one of gradients: `weights` says so to `place`.",
            f"func @sum_products(%y: bf16[{rows}] partial(sum: model)) -> bf16[{rows}] on @m {{",
            "  %r = all_reduce %y over model",
            "  return %r",
            "}",
        ]
    return lines
