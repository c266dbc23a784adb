"""Pipelines whose tasks take given times: text of programs with a computation for each task."""

from collections.abc import Mapping, Sequence

from collir.layout.pipelines.tasks import Part, TaskGraph, part_name

RATE = 1e12
"""The operations that a device computes in a second."""

_MESH = """\
machine @row {{
  device {{ compute f32 = 1 TFLOP/s; memory = 80 GB }}
  level node[{places}] {{ port = {port}, latency = {latency}, fabric = network }}
}}

mesh @m on @row {{ pipe = node:{places} }}
"""


def written(
    graph: TaskGraph,
    durations: Mapping[Part, float],
    microbatches: int,
    schedule: str,
    port: str = "1000000 TB/s",
    latency: str = "0 us",
    size: int = 4,
) -> str:
    """Return a function @f whose loop has the tasks of a graph, each of which takes its seconds.

    Args:
        port, latency: those of a place; by default sends take next to no time.
        size: the elements of what tasks send and keep.
    """
    places = max(graph.places.values()) + 1
    lines = [_MESH.format(places=places, port=port, latency=latency)]
    for part in graph.places:
        lines += _function(part, max(1, len(graph.needs[part])), durations[part], size)
    first = [part for part in graph.places if not graph.needs[part]]
    arguments = [f"%x{n}: f32[{microbatches}, {size}] {_at(graph, p)}" for n, p in enumerate(first)]
    results = [f"f32[{microbatches}, {size}] {_at(graph, part)}" for part in _ends(graph)]
    lines += [f"func @f({', '.join(arguments)}) -> ({', '.join(results)}) on @m {{"]
    targets = ", ".join(f"%r{n}" for n in range(len(_ends(graph))))
    slices = ", ".join(f"%x{n} = %x{n}" for n in range(len(first)))
    lines += [f'  {targets} = repeat {microbatches} slice({slices}) schedule "{schedule}" {{']
    lines += _body(graph, first)
    lines += ["  }", f"  return {targets}", "}", ""]
    return "\n".join(lines)


def _at(graph: TaskGraph, part: Part) -> str:
    place = graph.places[part]
    return f"at(pipe = {place})" if place else "root(pipe)"


def _ends(graph: TaskGraph) -> list[Part]:
    """Return the parts whose results no other part needs."""
    used = {needed for needs in graph.needs.values() for needed in needs}
    return [part for part in graph.places if part not in used]


def _function(part: Part, operands: int, seconds: float, size: int) -> list[str]:
    names = [f"%a{n}" for n in range(operands)]
    listed = ", ".join(f"{name}: f32[{size}]" for name in names)
    return [
        f"func @{part_name(part)}({listed}) -> f32[{size}] on @m {{",
        f"  %y = compute {', '.join(names)} flops {seconds * RATE:.17g}",
        "  return %y",
        "}",
        "",
    ]


def _body(graph: TaskGraph, first: Sequence[Part]) -> list[str]:
    lines: list[str] = []
    done: set[Part] = set()
    left = list(graph.places)
    while left:
        part = next(p for p in left if done.issuperset(graph.needs[p]))
        left.remove(part)
        done.add(part)
        name, place = part_name(part), graph.places[part]
        operands: list[str] = []
        for needed in graph.needs[part]:
            value, home = f"%{part_name(needed)}", graph.places[needed]
            if home != place:
                sent = f"{value}_to_{name}"
                lines.append(f"    {sent} = send {value} over pipe from {home} to {place}")
                value = sent
            operands.append(value)
        operands = operands or [f"%x{first.index(part)}"]
        lines.append(f"    %{name} = call @{name}({', '.join(operands)}) task {name}")
    ends = ", ".join(f"%{part_name(part)}" for part in _ends(graph))
    return [*lines, f"    yield {ends}"]
