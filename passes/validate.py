"""Compare the functions with those of another file: do they compute the same?

What: every function is compared with that of the same name in the file ``against``, of the same
types and mesh. First by proof: what every element of every result is made of, on all devices at
once. Where that cannot tell, both functions are run on random data, if their buffers are small
enough; where they are equal, a remark says that this is no proof, and how many runs there were. A
difference is an error, that names the function, the result, the element, the device, and what is
wrong with it. The module stays as it is.

Why: programs are rewritten by hand, by other tools, and by passes. Types catch a wrong layout; they
do not see that an older value of the same type was used, that a sum has a term twice, or that a
bucket was cut in the wrong places.

    collopt after.coll -p 'validate{against="before.coll"}'

says, of a function that adds ``%x`` twice in the place of ``%x`` and ``%y``:

    after.coll:12:8: error: @step computes something else for %r: element [0] on data.node=0,
    data.gpu=0, model.gpu=0 lacks the contribution of %y[0] of data.node=0, data.gpu=0, and counts
    %x[0] of data.node=0, data.gpu=0 twice (proven)

When not: rounding is no difference, but for what underflows in f16 and is added up then; nor is
what a step costs, or whether it is ``async``. Axes may have been placed on levels, and levels
split, in between; a ``compute`` is the same if what it computes on is. Functions that only one side
has are errors; one that takes the place of another (``for``) is compared with that.

Cost: the proof takes time by the number of steps, whatever the numbers of devices and elements.
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
from collir.syntax.mlir import read_mlir
from collir.syntax.parsing import decode
from collir.syntax.reader import read


@dataclass(frozen=True)
class ValidatePass(ModulePass):
    """Compare the functions with those of another file: do they compute the same?

    against: the file, .coll or .mlir. memory: MiB of buffers up to which functions that nothing is
    proven of are run; of larger ones an error says that nothing is known. seed: of their inputs.
    """

    name = "validate"

    against: str
    memory: int = 1024
    seed: int = 0

    def __post_init__(self) -> None:
        if self.memory < 0 or self.seed < 0:
            raise ValueError("memory and seed are 0 or more")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        before = _read(ctx, Path(self.against))
        for module in (before, op):
            check_programs(functions_of(module), "cannot be validated", redistributions=True)
        memory = self.memory * 2**20
        done = compare_modules(before, op, new=False, seed=self.seed, memory=memory)
        for one in done:
            name, verdict = one.function.sym_name.data, one.verdict
            if (verdict.outcome, verdict.how) == (Outcome.SAME, "execution"):
                remark(one.function, f"@{name}: {verdict.explanation}")
        unknown = [one for one in done if one.verdict.outcome is Outcome.UNKNOWN]
        if unknown:
            raise DiagnosticError(map(_nothing_known, unknown))


def _read(ctx: Context, path: Path) -> ModuleOp:
    """The verified module of a file.

    Raises:
        DiagnosticError: it cannot be read, or anything is wrong with it.
    """
    try:
        text = decode(path.read_bytes(), str(path))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DiagnosticError(Diagnostic(f"cannot read {path}: {reason}")) from error
    as_mlir = path.suffix == ".mlir"
    module = read_mlir(ctx, text, str(path), Sources()) if as_mlir else read(text, str(path))
    verify(module)
    return module


def _nothing_known(one: Checked) -> Diagnostic:
    """What to say of a function that is neither proven nor run."""
    message = (
        f"whether @{one.function.sym_name.data} computes the same is not known: "
        f"{one.verdict.explanation}; a larger `memory` lets it run, or smaller sizes in both files"
    )
    return Diagnostic(message, Position.of(one.function))
