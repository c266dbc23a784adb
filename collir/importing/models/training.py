"""A training step around the loss of a model: its gradient, clipping, and an optimiser."""

from collir.importing.models.lines import GIVEN, SIZES, wrapped
from collir.importing.models.program import WEIGHTS, Written

OPTIMIZERS: dict[str, tuple[tuple[str, ...], bool]] = {
    "adamw": (("m", "v"), True),
    "adam": (("m", "v"), True),
    "momentum": (("m",), False),
    "sgd": ((), False),
}
"""The optimisers of the library: the states of a weight, and whether steps are counted."""


def library(optimizer: str, clip: bool) -> list[str]:
    """Return the lines that import what a step calls from the library."""
    return [f"func @{name} = @{name} on any" for name in (optimizer, *["clipped"] * clip)]


def step(loss: Written, mesh: str, axis: str, optimizer: str, clip: bool) -> str:
    """Return the text of a training step.

    Weights and their states are f32; where the model computes in another dtype, they are cast.

    Args:
        axis: the axis that the batch is divided over.
        clip: whether gradients are clipped by the norm of all of them.
    """
    states, counts = OPTIMIZERS[optimizer]
    own, kept, short = loss.records.dtype, "f32", WEIGHTS
    more = ["%rate: f32[]"] + ["%limit: f32[]"] * clip + ["%step: f32[]"] * counts
    kinds = [f"{kept} @weights parameter", *(f"{kept} @weights state" for _ in states)]
    arguments = loss.listed(kept, axis, more)
    arguments += "".join(f",\n     %{s}: {kind}" for s, kind in zip(states, kinds[1:], strict=True))
    lines: list[str] = []
    is_cast = own != kept or loss.records.is_mixed
    if is_cast:
        short = "short"
        weights = [x for x in loss.arguments if x.kind == "weight"] * loss.records.is_mixed
        for x in weights:
            field = x.name.removeprefix(f"{WEIGHTS}.")
            lines.append(f"%short.{field} = cast %{x.name} to {x.dtype}")
        lines += [] if weights else [f"%short = cast %{WEIGHTS} to {own}"]
    operands = dict.fromkeys(f"%{short if x.kind == 'weight' else x.name}" for x in loss.arguments)
    lines.append(f"%loss, %g = gradient @{loss.name}{GIVEN}({wrapped([*operands])}) wrt %{short}")
    gradient, result = "g", "loss"
    if loss.results[0] not in ("f32[]", "f64[]"):
        result = "exact"
        lines.append("%exact = cast %loss to f32")
    if is_cast:
        gradient = "exact_g"
        lines.append(f"%exact_g = cast %g to {kept}")
    if clip:
        lines.append(f"%clipped = call @clipped(%{gradient}, %limit)")
        gradient = "clipped"
    made = [f"%new_{x}" for x in (WEIGHTS, *states)]
    given = [f"%{x}" for x in (WEIGHTS, gradient, *states, "rate", *["step"] * counts)]
    lines.append(f"{', '.join(made)} = call @{optimizer}({', '.join(given)})")
    lines.append(f"return {', '.join([f'%{result}', *made])}")
    number = "f64[]" if loss.results[0] == "f64[]" else "f32[]"
    head = f"func @step{SIZES}\n    ({arguments})\n    -> ({', '.join([number, *kinds])})"
    body = [f"  {line}" for line in lines]
    return "\n".join([f"{head} on @{mesh} auto {{", *body, "}"]) + "\n"
