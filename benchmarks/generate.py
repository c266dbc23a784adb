"""Programs for the benchmarks, made from a few numbers and without randomness."""

from collections.abc import Iterator

from collir.layout import Axis, Factor, Mesh
from collir.machine import Level, Machine

MACHINE = """\
machine @cluster {{
  device {{ compute bf16 = 312 TFLOP/s, f32 = 19.5 TFLOP/s; memory = 40 GiB @ 1.5 TB/s }}
  level rack[{rack}] {{ port = 4 GB/s, latency = 30 us }}
  level node[{node}] {{ port = 8 GB/s, latency = 20 us }}
  level gpu[{gpu}] {{ port = 270 GB/s, latency = 3 us }}
}}

mesh @m on @cluster {{ data = rack:{rack} * node:{node}, model = gpu:{gpu} }}
"""

_LAYER = """\
  %a{i} = all_reduce {x} over model
  %q{i} = slice %a{i} over model dim 1
  %k{i} = all_to_all %q{i} over model dim 1 to 0
  %v{i} = all_to_all %k{i} over model dim 0 to 1
  %o{i} = all_gather %v{i} over model dim 1
  %s{i} = add %o{i}, %a{i}
  %n{i} = scale %s{i} by 0.5
  %b{i} = cast %w{i} to f32
  %d{i} = reduce_scatter %b{i} over data.node dim 0
  %e{i} = all_reduce %d{i} over data.rack
  %f{i} = scale %e{i} by 0.0625
  %h{i} = slice %f{i} over data.rack dim 0
  %t{i} = all_gather %h{i} over data.rack dim 0
  %u{i} = all_gather %t{i} over data.node dim 0
  %c{i} = transpose %u{i} order [1, 0]
  %y{i} = mask %n{i} over model op sum
"""
"""Sixteen steps: a layer's activations over ``model``, then the gradients of its weights."""


def _function(name: str, layers: int) -> Iterator[str]:
    weights = "".join(f", %w{i}: bf16[4096, 1024@model] partial(sum: data)" for i in range(layers))
    results = ", ".join(["f32[1024@model, 4096]"] * layers)
    yield f"func @{name}(%x: f32[4096@data, 1024] partial(sum: model){weights})"
    yield f" -> (f32[4096@data, 1024], {results}) on @m {{\n"
    value = "%x"
    for i in range(layers):
        yield _LAYER.format(i=i, x=value)
        value = f"%y{i}"
    yield f"  %r = all_reduce {value} over model\n"
    yield f"  return %r, {', '.join(f'%c{i}' for i in range(layers))}\n}}\n"


def training(functions: int, layers: int = 6) -> str:
    """Return a ``.coll`` text on 8 devices; each of its functions has layers of 16 steps."""
    parts = [MACHINE.format(rack=2, node=2, gpu=2)]
    for index in range(functions):
        parts.append("\n")
        parts += _function(f"step{index}", layers)
    return "".join(parts)


_ALL_RULES = """\
  %aa{i} = terms %p over model dim 0
  %a{i} = all_reduce %p over model
  %b{i} = slice %a{i} over model dim 1
  %c{i} = all_to_all %b{i} over model dim 1 to 0
  %d{i} = permute %c{i} to f32[1048576@(data, model), 1048576]
  %e{i} = all_gather %d{i} over model dim 0
  %ea{i} = shift %e{i} over data by 1
  %eb{i} = keep %ea{i} at stage = 1
  %ec{i} = send %eb{i} over stage from 1 to 0
  %ed{i} = broadcast %ec{i} over stage
  %ee{i} = slice %ed{i} over stage dim 1
  %ef{i} = part %ee{i} over stage at 0 dim 1
  %eg{i} = part %ee{i} over stage at 1 dim 1
  %eh{i} = assemble %ef{i}, %eg{i} over stage dim 1
  %ei{i} = all_gather %eh{i} over stage dim 1
  %f{i} = gather %ei{i} over data.node dim 0
  %g{i} = scatter %f{i} over data.node dim 0
  %h{i} = keep_root %g{i} over model
  %j{i} = broadcast %h{i} over model
  %k{i} = mask %j{i} over model op sum
  %l{i} = reduce %k{i} over model
  %m{i} = broadcast %l{i} over model
  %n{i} = split %m{i} dim 1 into [1024, 1024]
  %o{i} = merge %n{i} dim 1
  %q{i} = reshape %o{i} to [1048576, 2, 524288]
  %r{i} = transpose %q{i} order [0, 2, 1]
  %s{i} = pad %r{i} dim 2 high 2
  %t{i} = concat %s{i}, %s{i} dim 2
  %u{i} = scale %t{i} by 0.5
  %v{i} = cast %u{i} to f64
  %w{i} = add %v{i}, %v{i}
  %z{i} = compute %w{i}, %v{i} flops 0
  %za{i} = barrier %z{i}
  %zb{i} = reinterpret %za{i} to f64[1048576@data, 524288, 8]
  %x{i} = mask %zb{i} over model op sum
  %y{i} = reduce_scatter %x{i} over model dim 1
"""
"""Every operation of the language."""


def every_rule(rack: int, node: int, gpu: int, rounds: int = 3) -> str:
    """Return a function with every operation, on ``rack * node * gpu`` devices.

    It has 36 steps in each round.
    """
    head = (
        "func @every_rule(%p: f32[1048576@data, 1048576] partial(sum: model))"
        " -> f64[1048576@data, 524288@model, 8] on @m {\n"
    )
    steps = "".join(_ALL_RULES.format(i=i) for i in range(rounds))
    machine = MACHINE.format(rack=rack, node=node, gpu=gpu)
    stages = f"{{ stage = rack:2, data = rack:{rack // 2} *"
    machine = machine.replace(f"{{ data = rack:{rack} *", stages)
    return f"{machine}\n{head}{steps}  return %y{rounds - 1}\n}}\n"


def two_levels(nodes: int, gpus: int) -> Mesh:
    """Return a mesh with one axis over nodes of GPUs."""
    node, gpu = Level("node", nodes, 8e9, 20e-6), Level("gpu", gpus, 270e9, 3e-6)
    data = Axis.placed("data", [Factor("node", nodes), Factor("gpu", gpus)])
    return Mesh("m", Machine("cluster", (node, gpu)), (data,))
