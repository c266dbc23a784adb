"""Check that functions compute the same as the functions of another file.

What: every function is compared with the function of the same name, types and mesh in the file
``against``. The pass first tries a proof, from the contributions to every element of every result
on all devices at once. If a proof cannot tell, both functions run on random data, provided that
their buffers are small enough; if the results are equal, a remark says that this is no proof, how
many runs there were, and which operations could be wrong without a trace in the results. A
difference is an error that names the function, the result, the element, the device, and the fault.
The module is not changed.

Why: programs are rewritten by hand, by other tools, and by passes. Types catch a wrong layout. They
do not see that an older value of the same type was used, that a sum has a term twice, or that a
bucket was cut in the wrong places.

    collopt after.coll -p 'validate{against="before.coll"}'

prints, if a function adds ``%x`` twice instead of ``%x`` and ``%y``:

    after.coll:12:8: error: @step computes something else for %r: element [0] on data.node=0,
    data.gpu=0, model.gpu=0 lacks the contribution of %y[0] of data.node=0, data.gpu=0, and counts
    %x[0] of data.node=0, data.gpu=0 twice (proven)

When not: rounding, costs and ``async`` are not compared, except that f16 values which underflow
before they are added up are a difference. Axes may have been placed on levels in between, and
levels split. A ``compute`` is the same if its operands and its ``flops`` are. A function in one
file only is an error; a function that stands for another (``for``) is compared with that function.

Cost: the time of a proof depends on the number of steps, not on the numbers of devices and
elements.
"""

from dataclasses import dataclass
from pathlib import Path

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position, Sources
from collir.ir.functions import check_programs, functions_of
from collir.ir.remarks import remark
from collir.ir.verification import verify
from collir.semantics.validation.validate import Checked, Outcome, compare_modules
from collir.syntax.encoding import decode
from collir.syntax.mlir import read_mlir
from collir.syntax.reader import read


@dataclass(frozen=True)
class ValidatePass(ModulePass):
    """Check that functions compute the same as the functions of another file."""

    name = "validate"

    against: str
    """The path of the other file, `.coll` or `.mlir`."""
    memory: int = 1024
    """The most MiB of buffers with which a function that cannot be proven is run instead; for a
    larger function an error says that nothing is known."""
    seed: int = 0
    """The seed of the random inputs."""

    def __post_init__(self) -> None:
        if self.memory < 0 or self.seed < 0:
            raise ValueError("memory and seed are 0 or more")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        before = _read(ctx, Path(self.against))
        for module in (before, op):
            check_programs(
                functions_of(module), "cannot be validated", redistributions=True, nested=True
            )
        memory = self.memory * 2**20
        comparisons = compare_modules(before, op, new=False, seed=self.seed, memory=memory)
        for comparison in comparisons:
            name, verdict = comparison.function.sym_name.data, comparison.verdict
            if (verdict.outcome, verdict.how) == (Outcome.SAME, "execution"):
                remark(comparison.function, f"@{name}: {verdict.explanation}")
        unknown = [c for c in comparisons if c.verdict.outcome is Outcome.UNKNOWN]
        if unknown:
            raise DiagnosticError(map(_unknown_diagnostic, unknown))


def _read(ctx: Context, path: Path) -> ModuleOp:
    """Return the verified module of a file.

    Raises:
        DiagnosticError: the file cannot be read or is not a correct program.
    """
    if path.suffix not in (".coll", ".mlir"):
        raise DiagnosticError(Diagnostic(f"{path} is no .coll or .mlir file: against names one"))
    try:
        text = decode(path.read_bytes(), str(path))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DiagnosticError(Diagnostic(f"cannot read {path}: {reason}")) from error
    as_mlir = path.suffix == ".mlir"
    module = read_mlir(ctx, text, str(path), Sources()) if as_mlir else read(text, str(path))
    verify(module)
    return module


def _unknown_diagnostic(comparison: Checked) -> Diagnostic:
    """Return the error for a function that was neither proven nor run."""
    name, why = comparison.function.sym_name.data, comparison.verdict.explanation
    message = f"whether @{name} computes the same is not known: {why}"
    return Diagnostic(message, Position.of(comparison.function))
