"""A training step around the loss of a model: its gradient, clipping, and an optimiser."""

from collections.abc import Sequence

from collir.importing.models.lines import wrapped
from collir.importing.models.program import GIVEN, SIZES, Argument, Written

OPTIMIZERS: dict[str, tuple[tuple[str, ...], bool]] = {
    "adamw": (("m", "v"), True),
    "adam": (("m", "v"), True),
    "momentum": (("m",), False),
    "sgd": ((), False),
}
"""The optimisers of the library: the states of a weight, and whether steps are counted."""


def library(optimizer: str, clip: bool) -> list[str]:
    """Return the lines that take what a step calls from the library."""
    names = [optimizer, *(("squared_norm", "clip_factor", "scaled") if clip else ())]
    return [f"func @{name} = @{name} on any" for name in names]


def step(loss: Written, mesh: str, axis: str, optimizer: str, clip: bool) -> str:
    """Return the text of a training step.

    Weights and their states are f32; where the model computes in another dtype, they are cast.

    Args:
        axis: the axis that the batch is divided over.
        clip: whether gradients are clipped by the norm of all of them.
    """
    states, counts = OPTIMIZERS[optimizer]
    weights = [x for x in loss.arguments if x.kind == "weight"]
    extra = ["%rate: f32[]"] + ["%limit: f32[]"] * clip + ["%step: f32[]"] * counts
    given = [x.text(axis) for x in loss.arguments if x.kind == "argument"] + extra
    given += [f"%{x.name}: {_f32(x)} parameter" for x in weights]
    given += [f"%{s}_{x.name}: {_f32(x)} state" for s in states for x in weights]
    given += [x.text() for x in loss.arguments if x.kind in ("buffer", "constant")]
    types = ["f32[]" if loss.results[0] != "f64[]" else "f64[]"]
    types += [f"{_f32(x)} parameter" for x in weights]
    types += [f"{_f32(x)} state" for _ in states for x in weights]
    head = f"func @step{SIZES}\n    ({_listed(given, 5)})\n    -> ({_listed(types, 8)})"
    head += f" on @{mesh} auto {{"
    return "\n".join([head, *_body(loss, weights, states, optimizer, clip), "}"]) + "\n"


def _body(
    loss: Written, weights: Sequence[Argument], states: Sequence[str], optimizer: str, clip: bool
) -> list[str]:
    lines: list[str] = []
    name_of = {x.name: x.name for x in loss.arguments}
    for x in weights:
        if x.dtype != "f32":
            name_of[x.name] = f"short_{x.name}"
            lines.append(f"%short_{x.name} = cast %{x.name} to {x.dtype}")
    operands = [f"%{name_of[x.name]}" for x in loss.arguments]
    lines.append(wrapped(["%loss", *(f"%d_{x.name}" for x in weights)]) + " =")
    lines.append(f"    gradient @{loss.name}{GIVEN}({wrapped(operands)})")
    lines.append(f"    wrt {wrapped([f'%{name_of[x.name]}' for x in weights])}")
    result = "loss"
    if loss.results[0] not in ("f32[]", "f64[]"):
        lines.append("%exact = cast %loss to f32")
        result = "exact"
    gradient_of: dict[str, str] = {}
    for x in weights:
        gradient_of[x.name] = f"d_{x.name}"
        if x.dtype != "f32":
            gradient_of[x.name] = f"g_{x.name}"
            lines.append(f"%g_{x.name} = cast %d_{x.name} to f32")
    if clip:
        total = ""
        for x in weights:
            norm = f"norm_{x.name}"
            lines.append(f"%{norm} = call @squared_norm(%{gradient_of[x.name]})")
            if total:
                lines.append(f"%sum_{x.name} = add %{total}, %{norm}")
            total = f"sum_{x.name}" if total else norm
        lines.append(f"%factor = call @clip_factor(%{total}, %limit)")
        for x in weights:
            lines.append(f"%clipped_{x.name} = call @scaled(%{gradient_of[x.name]}, %factor)")
            gradient_of[x.name] = f"clipped_{x.name}"
    counted = ", %step" if OPTIMIZERS[optimizer][1] else ""
    for x in weights:
        made = ", ".join(f"%new_{s}{x.name}" for s in ("", *(f"{s}_" for s in states)))
        given = [f"%{x.name}", f"%{gradient_of[x.name]}", *(f"%{s}_{x.name}" for s in states)]
        lines.append(f"{made} =")
        lines.append(f"    call @{optimizer}({', '.join(given)}, %rate{counted})")
    results = [f"%{result}", *(f"%new_{x.name}" for x in weights)]
    results += [f"%new_{s}_{x.name}" for s in states for x in weights]
    lines.append(f"return {wrapped(results)}")
    return [f"  {line}" for line in lines]


def _f32(x: Argument) -> str:
    return x.type(dtype="f32" if x.dtype != "f64" else "f64")


def _listed(items: Sequence[str], indent: int) -> str:
    return f",\n{' ' * indent}".join(items)
