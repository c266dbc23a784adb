"""MLIR sorts the dictionaries of attributes and properties by their keys: nothing may depend on
their order."""

from io import StringIO
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp
from xdsl.ir import Attribute
from xdsl.printer import Printer

import collir
from collir.ir.diagnostics import DiagnosticError, Sources
from collir.syntax.mlir import read_mlir
from collir.syntax.writer import settle_names, write
from collir.tools.api import context

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(path for path in EXAMPLES.rglob("*.coll") if "plugin" not in path.parts)
FEW = {"layers", "stages", "uneven", "mlp", "styles"}


def sorted_attribute(attribute: Attribute) -> Attribute:
    """Return an attribute with its dictionaries in the order of their keys."""
    match attribute:
        case DictionaryAttr():
            items = sorted(attribute.data.items())
            return DictionaryAttr({key: sorted_attribute(x) for key, x in items})
        case ArrayAttr():
            return ArrayAttr(map(sorted_attribute, attribute))
        case _:
            return attribute


def through_mlir(module: ModuleOp) -> ModuleOp:
    """Return a module as it comes back from a tool of MLIR that reads and prints it; the module
    itself is changed."""
    settle_names(module)
    for op in module.walk():
        op.attributes = {k: sorted_attribute(x) for k, x in sorted(op.attributes.items())}
        op.properties = {k: sorted_attribute(x) for k, x in sorted(op.properties.items())}
    output = StringIO()
    Printer(output, print_generic_format=True).print_op(module)
    return read_mlir(context(), output.getvalue(), "<mlir>", Sources())


def code(module: ModuleOp) -> str:
    """Return the C of a module for any size, or at its sizes, or the reason why there is none."""
    try:
        return collir.emit(module.clone(), "mpi{sized=true}")
    except DiagnosticError:
        pass
    try:
        return collir.emit(module.clone(), "mpi")
    except DiagnosticError as error:
        return error.diagnostics[0].message


def test_parameters_keep_their_order() -> None:
    module = collir.parse(
        """
        machine @c { level gpu[2] { port = 1 GB/s, latency = 1 us } }
        mesh @m on @c { data = gpu:2 }
        func @g(seq = 4, batch = 2)(%x: f32[batch, seq]) -> f32[batch, seq] on @m {
          %y = scale %x by 2
          return %y
        }
        func @f(seq = 4, batch = 2)(%x: f32[batch, seq]) -> f32[batch, seq] on @m {
          %y = call @g(seq = seq, batch = batch)(%x)
          return %y
        }
        """
    )
    text, again = write(module), through_mlir(module)
    assert write(again) == text
    assert "func @f(seq = 4, batch = 2)" in write(again)
    assert "call @g(seq = seq, batch = batch)" in write(again)


@pytest.mark.turns
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[] if path.stem in FEW else pytest.mark.slow, id=path.stem)
        for path in FILES
    ],
)
def test_examples_come_back_as_they_were(path: Path) -> None:
    module = collir.parse(path)
    text, of_module = write(module), "" if "models" in path.parts else code(module)
    again = through_mlir(module)
    assert write(again) == text
    assert not of_module or code(again) == of_module
