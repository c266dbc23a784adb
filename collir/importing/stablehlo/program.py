"""A program of StableHLO in ``.coll``."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from collir.importing.hlo.devices import machine_of
from collir.importing.hlo.groups import Digit, Digits, GroupsError, tiles_of
from collir.importing.hlo.mesh import mesh_of
from collir.importing.models.export import fault
from collir.importing.models.graph import ModelInput, Shaped
from collir.importing.models.imported import MACHINE, MESH, Imported, headed, program_of
from collir.importing.models.jax_rows import loops, maps, shapes, sums
from collir.importing.models.program import NotUnderstoodError
from collir.importing.models.repeats import repeated
from collir.importing.models.softmaxes import with_softmaxes
from collir.importing.models.training import OPTIMIZERS
from collir.importing.stablehlo.graphs import graph_of, malformed, shaped
from collir.importing.stablehlo.text import Region, StableHloFunction, StableHloModule, read
from collir.importing.values import MALFORMED
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position

_ = loops, maps, shapes, sums  # their rows


def import_stablehlo(
    text: str,
    file: str = "<stablehlo>",
    *,
    optimizer: str = "",
    clip: bool = False,
    machine: str = "",
    mesh: Mapping[str, int] | None = None,
    comment: str = "",
) -> Imported:
    """Return the main function of a module of StableHLO as a program.

    The text is that of ``jax.jit(f).lower(...).as_text(debug_info=True)``, or the generic form.
    Where it says what the user calls its arguments (``params['up']``), the ones that the first
    argument has are the weights of the model. Sizes are those of the text.

    Args:
        optimizer: adds a training step with an optimiser of the library; the first result is the
            loss.
        clip: whether the step clips gradients by the norm of all of them.
        machine: the machine, as a reference in ``.coll``; by default hosts of 8 H100.
        mesh: the axes of the mesh of JAX, in order, with their sizes; by default those of the text.

    Raises:
        DiagnosticError: the text is no StableHLO, an operation cannot be imported, or the loss is
            no number.
    """
    if optimizer and optimizer not in OPTIMIZERS:
        raise fault(f"there is no optimizer {optimizer}: {', '.join(OPTIMIZERS)}")
    module = read(text, file)
    try:
        return _imported(module, file, optimizer, clip, machine, dict(mesh or {}), comment)
    except NotUnderstoodError as error:
        raise malformed(*error.args) from error
    except MALFORMED as error:
        raise malformed("the module", f"{file}:1") from error


def _imported(
    module: StableHloModule, file: str, optimizer: str, clip: bool, machine: str, mesh: dict[str,
    int],
    comment: str,
) -> Imported:  # fmt: skip
    function = module.functions.get("main") or next(iter(module.functions.values()))
    placed = _Placed(module, function, file, mesh, machine)
    inputs = _inputs(function, placed.axes)
    if optimizer and not any(x.kind == "weight" for x in inputs):
        raise fault(
            "the text does not say which arguments are weights: print it with their names, "
            "as_text(debug_info=True), and let the first argument have several arrays",
            f"{file}:1",
        )
    imported = graph_of(module, function, inputs, placed.axes)
    is_free = placed.pieces is None
    axis = placed.mesh.partition("=")[0].strip() if is_free else ""
    remarks = dict(imported.remarks)
    first = next((x for x in inputs if x.kind == "argument" and not x.axes and x.value.shape), None)
    if axis and first is not None and first.value.shape[0] % 8:
        axis = ""
        what = (
            f"nothing is divided: 8 devices do not divide the {first.value.shape[0]} of {first.of}"
        )
        remarks[what] = ""
    graph = with_softmaxes(imported.graph)
    written, constants, made = program_of(graph, optimizer, clip, axis, repeated)
    whole = headed(made, written, None, placed.machine, placed.mesh, comment)
    listed = tuple(f"{line}: {what}" if line else what for what, line in remarks.items())
    return Imported(whole, written.arguments, constants, None, False, listed)


def _inputs(
    function: StableHloFunction, layout: Callable[[Any, int], tuple[str, ...]]
) -> list[ModelInput]:
    """Return what a function takes: the arrays of its first argument are weights."""
    made: list[ModelInput] = []
    roots = [_steps(x.of or x.name.lstrip("%"))[0] for x in function.body.takes]
    floats = [getattr(x.type, "dtype", "").startswith(("f", "bf")) for x in function.body.takes]
    count = sum(root == roots[0] for root in roots)
    names: set[str] = set()
    for x, root, is_float in zip(function.body.takes, roots, floats, strict=True):
        is_weight = bool(x.of) and root == roots[0] and count > 1 and is_float
        steps = _steps(x.of or x.name.lstrip("%"))
        of = ".".join(steps[1:] if is_weight and len(steps) > 1 else steps)
        while of in names:
            of += "_"
        names.add(of)
        value = shaped(x.type, x.of or x.name)
        sharding = x.attributes.get("sdy.sharding") or x.attributes.get("mhlo.sharding")
        axes = layout(sharding, len(value.shape)) if sharding is not None else ()
        kind = "weight" if is_weight else "argument"
        made.append(ModelInput("", value, of, kind, axes if any(axes) else ()))
    return _with_batch(made)


def _with_batch(inputs: Sequence[ModelInput]) -> list[ModelInput]:
    """Return inputs; those without the first size of the first argument become whole."""
    first: int | None = None
    made: list[ModelInput] = []
    for x in inputs:
        size = None if x.value == _KEY or not x.value.shape else x.value.shape[0]
        if x.kind == "argument" and not x.axes:
            first = size if first is None else first
            if size is None or size != first:
                x = replace(x, axes=("",) * len(x.value.shape))
        made.append(x)
    return made


def _steps(name: str) -> list[str]:
    """Return the names on the way to an array of a pytree: ``params['layers'][0].up``."""
    found = re.findall(r"[A-Za-z_]\w*|\d+", name.replace("<flat index ", "").replace(">", ""))
    return found or ["x"]


_KEY = Shaped((2,), "i32")
"""The type of a key of random numbers."""


class _Placed:
    """The layout of a module on a machine.

    Attributes:
        machine, mesh: as they are written.
        pieces: the mesh of the shardings; None if there are none.
    """

    def __init__(
        self,
        module: StableHloModule,
        function: StableHloFunction,
        file: str,
        mesh: dict[str, int],
        machine: str,
    ):
        self.module, self.pieces = module, None
        self.named = mesh or dict([*module.meshes.values(), dict[str, int]()][0])
        texts = [*_shardings(module)]
        count = 1
        for size in self.named.values():
            count *= size
        self.count = max(module.partitions, count)
        self.machine, self.mesh = machine or MACHINE, MESH
        if self.count == 1 or not (mesh or any(self.tiles(text) for text in texts)):
            return
        at = Position(file, 1, 1)
        declared = machine_of(machine, self.count, at)
        digits = [d for text in texts for own in self.tiles(text) or () for d in own]
        try:
            self.pieces = mesh_of(digits, self.count, self.named, declared.levels)
        except GroupsError as error:
            raise DiagnosticError(Diagnostic(str(error), at)) from error
        self.machine, self.mesh = declared.text, self.pieces.text

    def tiles(self, sharding: str) -> tuple[Digits, ...] | None:
        """Return the digits that divide each dimension; None if that is not said."""
        if "devices=" in sharding or ("replicated" in sharding and "@" not in sharding):
            try:
                found = tiles_of(sharding, _rank(sharding), self.count)
            except GroupsError:
                return None
            return None if found is None else found.dims
        return _shardy(sharding, self.module.meshes)

    def axes(self, sharding: Any, rank: int) -> tuple[str, ...]:
        """Return what stands behind the size of each dimension: ``@data``; nothing if a sharding
        does not name all."""
        if self.pieces is None:
            return ()
        tiles = self.tiles(str(sharding))
        if tiles is None or not rank:
            return ()
        made: list[str] = []
        for own in (*tiles, *((),) * rank)[:rank]:
            try:
                text = self.pieces.listed(self.pieces.of(own))
            except GroupsError:
                return ()
            made.append("" if not text else f"@({text})" if "," in text else f"@{text}")
        return tuple(made)


def _rank(sharding: str) -> int:
    """Return the most dimensions that the tiles of a sharding have."""
    sizes = re.search(r"devices=\[([\d,]+)\]", sharding)
    count = sizes[1].count(",") + 1 if sizes else 0
    more = "last_tile_dim_replicate" in sharding
    return count - more - max(0, sharding.count("last_tile_dims"))


def _shardy(text: str, meshes: Mapping[str, Mapping[str, int]]) -> tuple[Digits, ...] | None:
    """Return the digits of ``<@mesh, [{"data", "model":(1)2}, {}]>``; None if a dimension is open,
    or a mesh is not known."""
    sharding = re.search(r"(@[\w$.\-]+)\s*,\s*\[(.*?)\]", text, re.DOTALL)
    if sharding is None or sharding[1] not in meshes or "?" in sharding[2]:
        return None
    strides: dict[str, Digit] = {}
    inner = 1
    for name, size in [*meshes[sharding[1]].items()][::-1]:
        strides[name] = Digit(inner, size)
        inner *= size
    dims: list[Digits] = []
    for part in re.findall(r"\{([^{}]*)\}", sharding[2]):
        own: list[Digit] = []
        for name, before, size in re.findall(r'"([^"]+)"(?::\((\d+)\)(\d+))?', part):
            if name not in strides:
                return None
            whole = strides[name]
            if size:
                if whole.size % (int(before) * int(size) or 1):
                    return None
                whole = Digit(whole.stride * (whole.size // (int(before) * int(size))), int(size))
            own.append(whole)
        dims.append(tuple(own))
    return tuple(dims)


def _shardings(module: StableHloModule) -> Iterable[str]:
    """Yield the shardings of a module, as they are written."""
    for function in module.functions.values():
        listed: Sequence[Mapping[str, Any]] = [*(x.attributes for x in function.body.takes),
                                               *function.results]  # fmt: skip
        for attributes in listed:
            yield from _texts(attributes)
        stack: list[Region] = [function.body]
        while stack:
            for x in stack.pop().operations:
                yield from _texts(x.attributes)
                stack += x.regions


def _texts(attributes: Mapping[str, Any]) -> Iterable[str]:
    for name in ("sdy.sharding", "mhlo.sharding", "sharding"):
        if (text := attributes.get(name)) is not None:
            yield str(text)
