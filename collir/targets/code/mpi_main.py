"""A main for the MPI target: runs every function on inputs it makes, times it, and checks it.

Every rank computes the whole result by itself, with the function's own local operations on the
global tensors and no collective, and compares its block. Inputs are small integers, so
that no order of reducing them rounds.
"""

import math
from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region

from collir.dialects import coll
from collir.dialects.coll import AxesAttr, DistTensorType, dist_type
from collir.dialects.machine import MESH_ATTRIBUTE, mesh_of
from collir.layout import DistType, Reduction
from collir.semantics.executor import exact
from collir.semantics.meaning import meaning
from collir.targets.code.c_text import (
    AS_BITS,
    C_TYPES,
    MeshNames,
    element_count,
    load,
    size_text,
)
from collir.targets.code.mpi import emit_c, functions_of, mesh_names

_INCLUDES = ("limits.h", "math.h", "mpi.h", "stdint.h", "stdio.h", "stdlib.h", "string.h")

_SUPPORT = """\
/* ---- A main that runs and checks the functions above ---------------------------------------- */

/* How a tensor lies: its rank, the sizes of a block and of the whole, and where the block starts. */
typedef struct {
  int dims;
  size_t local[16], whole[16], start[16];
} layout;

/* The place in the whole tensor of the i-th element of this rank's block. */
static uint64_t place(const layout *x, size_t i)
{
  uint64_t index = 0, stride = 1;
  for (int d = x->dims - 1; d >= 0; --d) {
    index += (x->start[d] + i % x->local[d]) * stride;
    i /= x->local[d];
    stride *= x->whole[d];
  }
  return index;
}

static uint32_t mixed(uint64_t x)
{
  x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
  x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
  return (uint32_t)(x ^ x >> 33);
}

/* What the part-th of `parts` devices holds of element e: small integers, so that reducing them is
 * exact in any order and type. `op` is s(um), p(roduct), m(ax), n (min), a(verage). */
static double part_value(uint64_t e, int part, int parts, char op)
{
  int bound = parts > 24 ? 1 : parts > 16 ? 2 : 3;
  double any = (int)(mixed(e * 1048573 + (uint64_t)part) % (unsigned)(2 * bound + 1)) - bound;
  if (parts == 1) return any;
  if (op == 'p') return (any < 0 ? -1 : 1) * (e % (uint64_t)parts == (uint64_t)part ? 2 : 1);
  if (op == 'a') {
    int up = (int)(mixed(e + 1) % (unsigned)parts), down = (int)(mixed(e + 2) % (unsigned)parts);
    return (int)(mixed(e) % 7) - 3 + parts * ((up == part) - (down == part));
  }
  return any;
}

/* The element that the parts stand for. */
static double whole_value(uint64_t e, int parts, char op)
{
  double total = part_value(e, 0, parts, op);
  for (int part = 1; part < parts; ++part) {
    double one = part_value(e, part, parts, op);
    if (op == 'p') total *= one;
    else if (op == 'm') total = one > total ? one : total;
    else if (op == 'n') total = one < total ? one : total;
    else total += one;
  }
  return op == 'a' ? total / parts : total;
}
"""

_OP_LETTERS = {
    None: "s",
    Reduction.SUM: "s",
    Reduction.PROD: "p",
    Reduction.MAX: "m",
    Reduction.MIN: "n",
    Reduction.AVG: "a",
}


def emit_with_main(module: ModuleOp) -> str:
    """The C of a module with a main; the functions it needs beside are static.

    Raises:
        DiagnosticError: names that C cannot have.
    """
    whole = module.clone()
    functions = functions_of(whole)
    hidden: list[FuncOp] = []
    names = mesh_names(functions)
    runs: list[str] = []
    for function in functions:
        reference_name = f"reference_{function.sym_name.data}"
        reference = _add_reference(whole, function, reference_name)
        total = _add_total(whole, function)
        hidden += [f for f in (reference, total) if f is not None]
        runs.append(_run_text(function, names[mesh_of(function).name], reference_name, total))
    for extra in hidden:
        extra.detach()
        whole.body.block.add_op(extra)
    code = emit_c(whole, hidden, _INCLUDES)
    return "\n".join([code, _SUPPORT, *runs, _main_text(functions, list(names.values()))])


def _add_reference(module: ModuleOp, function: FuncOp, name: str) -> FuncOp:
    """What the function means, on one device, as a function of the same module."""
    alone_module, alone = meaning(function)
    present = {op.sym_name for op in module.ops if hasattr(op, "sym_name")}  # type: ignore
    for op in list(alone_module.ops):
        if op is not alone and op.sym_name in present:  # type: ignore
            continue
        op.detach()
        module.body.block.add_op(op)
    from xdsl.dialects.builtin import StringAttr

    alone.properties["sym_name"] = StringAttr(name)
    return alone


def _add_total(module: ModuleOp, function: FuncOp) -> FuncOp | None:
    """A function that reduces the partial results of another, so that they can be compared."""
    mesh = mesh_of(function)
    returned = _returned(function)
    if not any(dist_type(value).partial for value in returned):
        return None
    block = Block(arg_types=[value.type for value in returned])
    results = []
    for arg in block.args:
        x = dist_type(arg)
        if x.partial:
            op = coll.AllReduceOp.make(mesh, arg, axes=AxesAttr(mesh.ordered(x.partial)))
            block.add_op(op)
            results.append(op.result)
        else:
            results.append(arg)
    block.add_op(ReturnOp(*results))
    types = [arg.type for arg in block.args]
    total = FuncOp(
        f"total_{function.sym_name.data}", (types, [r.type for r in results]), Region(block)
    )
    total.attributes[MESH_ATTRIBUTE] = function.attributes[MESH_ATTRIBUTE]
    module.body.block.add_op(total)
    return total


def _returned(function: FuncOp) -> list:
    last: Operation | None = function.body.block.last_op
    return list(last.operands) if last else []


def _array(sizes: Sequence[object]) -> str:
    return "{" + ", ".join(map(str, sizes or [1])) + "}"


def _layout_text(variable: str, x: DistType, names: MeshNames) -> str:
    """A C value that says how this rank's block of a tensor lies in the whole."""
    local = x.local_shape(names.mesh)
    starts = [
        f"(size_t)({names.index_over(dim.axes)}) * {size_text(size)}" if dim.axes else "0"
        for dim, size in zip(x.dims, local, strict=True)
    ]
    return (
        f"const layout {variable} = {{{len(local)}, {_array([size_text(n) for n in local])}, "
        f"{_array([size_text(n) for n in x.shape])}, {_array(starts)}}};"
    )


def _stored(value: str, x: DistType) -> str:
    if x.dtype in AS_BITS:
        return f"{x.dtype}_store((float){value})"
    return f"({C_TYPES[x.dtype]}){value}"


def _run_text(
    function: FuncOp, names: MeshNames, reference: str, total: FuncOp | None
) -> str:
    """A function that runs another, and returns whether its results are right."""
    mesh = names.mesh
    name = function.sym_name.data
    arguments = [dist_type(arg) for arg in function.args]
    results = [dist_type(value) for value in _returned(function)]
    tolerance = max(
        (0.0 if exact(function) else x.dtype.epsilon * mesh.devices for x in results), default=0.0
    )
    inputs = [f"in{i}" for i in range(len(arguments))]
    outputs = [f"out{i}" for i in range(len(results))]
    lines = [
        f"static int run_{name}(int repeats, int check)",
        "{",
        "  int err = MPI_SUCCESS, wrong = 0, anywhere = 0;",
        "  double best = 1e300;",
    ]
    for variable, x in zip(inputs + outputs, arguments + results, strict=True):
        kind = C_TYPES[x.dtype]
        extra = f", *total_{variable} = NULL" if x.partial and variable in outputs else ""
        lines.append(f"  {kind} *{variable} = NULL, *whole_{variable} = NULL{extra};")
    if not arguments + results:
        lines.append("  (void)check;")
    for variable, x in zip(inputs, arguments, strict=True):
        lines += _fill_text(variable, x, names)
    for variable, x in zip(outputs, results, strict=True):
        lines.append(f"  NEW({variable}, {_bytes(element_count(x, mesh), x)});")
    call = f"{name}({', '.join(inputs + outputs)})"
    lines += [
        "  for (int i = 0; i < repeats; ++i) {",
        "    double start, taken, slowest;",
        f"    TRY(MPI_Barrier({names.variable}.comm));",
        "    start = MPI_Wtime();",
        f"    TRY({call});",
        "    taken = MPI_Wtime() - start;",
        f"    TRY(MPI_Allreduce(&taken, &slowest, 1, MPI_DOUBLE, MPI_MAX, {names.variable}.comm));",
        "    if (slowest < best) best = slowest;",
        "  }",
    ]
    final = list(outputs)
    if total is not None:
        for i, x in enumerate(results):
            final[i] = f"total_{outputs[i]}" if x.partial else f"total_{outputs[i]}"
            if not x.partial:
                lines.insert(4, f"  {C_TYPES[x.dtype]} *total_{outputs[i]} = NULL;")
            lines.append(f"  NEW({final[i]}, {_bytes(element_count(x, mesh), x)});")
        lines.append(f"  TRY(total_{name}({', '.join(outputs + final)}));")
    lines.append("  if (check) {")
    for variable, x in zip(inputs, arguments, strict=True):
        lines += _fill_whole_text(variable, x, mesh.group_size(x.partial))
    for variable, x in zip(outputs, results, strict=True):
        lines.append(f"    NEW(whole_{variable}, {_bytes(x.elements, x)});")
    every = ", ".join(f"whole_{v}" for v in inputs + outputs)
    lines.append(f"    TRY({reference}({every}));")
    for variable, done, x in zip(outputs, final, results, strict=True):
        lines += _compare_text(variable, done, x, names, tolerance)
    lines += [
        f"    TRY(MPI_Allreduce(&wrong, &anywhere, 1, MPI_INT, MPI_MAX, {names.variable}.comm));",
        "  }",
        f"  if ({names.variable}.rank == 0)",
        f'    printf("{name}: %s on {mesh.devices} ranks, best of %d: %.3f ms\\n",',
        '           !check ? "not checked" : anywhere ? "WRONG" : "ok", repeats, best * 1e3);',
        "done:",
        "  if (err != MPI_SUCCESS) {",
        "    char text[MPI_MAX_ERROR_STRING];",
        "    int length;",
        "    MPI_Error_string(err, text, &length);",
        f'    fprintf(stderr, "{name}: rank %d: %s\\n", {names.variable}.rank, text);',
        "    MPI_Abort(MPI_COMM_WORLD, 1);",
        "  }",
    ]
    owned = [f"{prefix}{v}" for v in inputs + outputs for prefix in ("", "whole_")]
    owned += [v for v in final if v not in outputs]
    lines += [f"  free({variable});" for variable in owned]
    return "\n".join([*lines, "  return anywhere;", "}", ""])


def _bytes(count: int, x: DistType) -> str:
    return size_text(count * x.dtype.bytes)


def _fill_text(variable: str, x: DistType, names: MeshNames) -> list[str]:
    """This rank's block of an input; what a device at no root holds is never read."""
    mesh = names.mesh
    count = element_count(x, mesh)
    part = names.index_over(mesh.ordered(x.partial))
    parts, op = mesh.group_size(x.partial), _OP_LETTERS[x.reduction]
    value = f"part_value(place(&lies, i), {part}, {parts}, '{op}')"
    return [
        f"  NEW({variable}, {_bytes(count, x)});",
        "  {",
        f"    {_layout_text('lies', x, names)}",
        f"    for (size_t i = 0; i < {size_text(count)}; ++i)",
        f"      {variable}[i] = {_stored(value, x)};",
        "  }",
    ]


def _fill_whole_text(variable: str, x: DistType, parts: int) -> list[str]:
    value = f"whole_value(i, {parts}, '{_OP_LETTERS[x.reduction]}')"
    return [
        f"    NEW(whole_{variable}, {_bytes(x.elements, x)});",
        f"    for (size_t i = 0; i < {size_text(x.elements)}; ++i)",
        f"      whole_{variable}[i] = {_stored(value, x)};",
    ]


def _compare_text(
    variable: str, done: str, x: DistType, names: MeshNames, tolerance: float
) -> list[str]:
    count = element_count(x, names.mesh)
    mine, right = load(f"{done}[i]", x.dtype), load(f"whole_{variable}[at]", x.dtype)
    if x.dtype.is_float and tolerance:
        off = f"fabs((double){mine} - {right}) > {tolerance!r} * fmax(1, fabs((double){right}))"
    else:
        off = f"{mine} != {right}"
    holds = names.at_zero(x.root)
    lines = [
        _layout_text("lies", x, names),
        f"for (size_t i = 0; i < {size_text(count)}; ++i) {{",
        "  uint64_t at = place(&lies, i);",
        f"  if ({off}) wrong = 1;",
        "}",
    ]
    head = f"    if ({holds}) {{" if holds else "    {"
    return [head, *(f"      {line}" for line in lines), "    }"]


def _main_text(functions: Sequence[FuncOp], meshes: Sequence[MeshNames]) -> str:
    lines = [
        "/* Arguments: how often to run each function (default 10), and 0 not to check. */",
        "int main(int argc, char **argv)",
        "{",
        "  int repeats = argc > 1 ? atoi(argv[1]) : 10, check = argc > 2 ? atoi(argv[2]) : 1;",
        "  int wrong = 0, err = MPI_Init(&argc, &argv);",
        "  if (err != MPI_SUCCESS || repeats < 1) return 1;",
    ]
    for names in meshes:
        lines += [
            f"  if ({names.mesh.name}_init(MPI_COMM_WORLD) != MPI_SUCCESS) {{",
            f'    fprintf(stderr, "run this on {names.mesh.devices} ranks\\n");',
            "    MPI_Abort(MPI_COMM_WORLD, 1);",
            "  }",
        ]
    lines += [f"  wrong |= run_{f.sym_name.data}(repeats, check);" for f in functions]
    lines += [f"  {names.mesh.name}_finalize();" for names in meshes]
    return "\n".join([*lines, "  MPI_Finalize();", "  return wrong;", "}", ""])


__all__ = ["DistTensorType", "emit_with_main", "math"]
