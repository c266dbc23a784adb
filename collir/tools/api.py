"""The Python API: what the tools do, as functions. ``import collir`` gives all of these.

module = collir.parse(Path("sync.coll"))
collir.run_passes(module, "decompose{strategy=rs-ar-ag}")
print(collir.emit(module, "mpi{main=true}"))
"""

import difflib
import logging
import re
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass, PassPipeline
from xdsl.utils.arg_spec import parse_spec
from xdsl.utils.exceptions import ArgSpecParseError

from collir.ir.diagnostics import Diagnostic, DiagnosticError, Sources
from collir.ir.functions import functions_of
from collir.ir.remarks import listening
from collir.ir.verification import verify
from collir.passes.pipelines import PIPELINES, Known, expanded_passes
from collir.passes.table import PASSES
from collir.syntax.mlir import read_mlir
from collir.syntax.parsing import decode
from collir.syntax.reader import read
from collir.synthesis.searching import session
from collir.targets.table import TARGETS
from collir.tools.specifications import check_text, made

if TYPE_CHECKING:
    from collir.cost.programs.simulation import Simulation
    from collir.tools.pass_costs import PassCosts


class UsageError(ValueError):
    """A pass or target that does not exist, or an option it does not have."""


def _nearest(name: str, ours: Iterable[str], all_names: Iterable[str]) -> str:
    for names in (ours, all_names):
        if close := difflib.get_close_matches(name, list(names), n=1):
            return f"did you mean {close[0]}?"
    return "collopt --help lists them"


def usage_error(error: BaseException, passes: Iterable[str] = ()) -> UsageError:
    """What xDSL says of a specification of passes or of a target, in words for users."""
    text = getattr(error, "msg", None) or str(error).strip().splitlines()[-1].strip()
    if match := re.match(r"Unrecognized passes: \['(.*)'\]", text):
        unknown = match[1].split("', '")[0]
        text = f"there is no pass '{unknown}'; {_nearest(unknown, (*PASSES, *PIPELINES), passes)}"
    elif match := re.match(r"Provided arguments \[(.*)\] not found in expected \S+ \[(.*)\]", text):
        given, known = (part.replace('"', "") for part in match.groups())
        text = f"there is no option {given}; " + (f"there is {known}" if known else "it has none")
    elif match := re.match(r"Incompatible types: given \((.*?),?\), expected (.*) for (.*)", text):
        wanted = re.sub("<class '(.*?)'>", r"\1", match[2])
        text = f"the option {match[3]} takes {wanted}, not {match[1]}"
    return UsageError(text)


@cache
def context() -> Context:
    """A context that knows the dialects of collir, of xDSL and of other packages."""
    from collir.tools.universe import known_dialects

    ctx = Context()
    for name, factory in known_dialects().items():
        ctx.register_dialect(name, factory)
    return ctx


def parse(source: str | Path, file: str = "<string>", sources: Sources | None = None) -> ModuleOp:
    """The verified module of a file (a ``Path``) or of a ``.coll`` text (a ``str``).

    A path that ends in ``.mlir`` is read as MLIR.

    Raises:
        DiagnosticError: the file cannot be read, or anything is wrong with it.
    """
    sources = Sources() if sources is None else sources
    if isinstance(source, str):
        module = read(source, file, sources)
    else:
        text = read_text(source)
        if source.suffix == ".mlir":
            module = read_mlir(context(), text, str(source), sources)
        else:
            module = read(text, str(source), sources)
    verify(module)
    return module


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        DiagnosticError: it cannot be read, or is not UTF-8.
    """
    try:
        return decode(path.read_bytes(), str(path))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DiagnosticError(Diagnostic(f"cannot read {path}: {reason}")) from error


def pass_pipeline(passes: str, known: Known | None = None) -> PassPipeline:
    """The passes of a specification such as ``"canonicalize,decompose{strategy=flat}"``.

    A pipeline in it, such as ``ddp``, is replaced by its passes.

    Args:
        known: the passes that there are; those of collir, xDSL and other packages if not given.

    Raises:
        UsageError: a pass that does not exist, or an option it does not have.
    """
    if known is None:
        from collir.tools.universe import known_passes

        known = known_passes()
    try:
        check_text(passes)
        specs = expanded_passes(passes, known)
        if unknown := [one.name for one in specs if one.name not in known]:
            raise ValueError(f"Unrecognized passes: {unknown}")
        return PassPipeline(tuple(made(known[one.name](), one) for one in specs))
    except (ArgSpecParseError, ValueError) as error:
        raise usage_error(error, known) from error


def run_passes(module: ModuleOp, passes: str, validate: bool = False) -> ModuleOp:
    """Runs passes over a module, in place, and verifies it after each.

    With ``validate``, what the functions compute is compared before and after each pass; a warning
    says where it is not proven to be the same. What passes remark, such as that a search was cut
    off, goes to the logger ``collir`` as warnings.

    Raises:
        UsageError: a pass that does not exist, or an option it does not have.
        DiagnosticError: a pass cannot do its work on this module.
        RuntimeError: a pass is wrong.
    """
    before = module.clone() if validate else None

    def check(done: ModulePass) -> None:
        nonlocal before
        if before is not None:
            for remark in validate_after(done, before, module):
                warnings.warn(remark, stacklevel=4)
            before = module.clone()

    _run(module, pass_pipeline(passes).passes, check)
    return module


def pass_costs(module: ModuleOp, passes: str) -> "PassCosts":
    """Runs passes over a module, as ``run_passes`` does, and says what each of them saved.

    Raises:
        UsageError: a pass that does not exist, or an option it does not have.
        DiagnosticError: a pass cannot do its work on this module.
    """
    from collir.tools.pass_costs import WRITTEN, PassCosts, model_of

    pipeline = pass_pipeline(passes)
    costs = PassCosts(model_of(pipeline.passes))
    costs.measure(WRITTEN, module)
    _run(module, pipeline.passes, lambda done: costs.measure(done.name, module))
    return costs


def _run(
    module: ModuleOp,
    passes: Iterable[ModulePass],
    watch: Callable[[ModulePass], None] = lambda _: None,
) -> None:
    """Runs passes, verifies after each, and calls ``watch`` then."""
    with listening(_log), session():
        for one in passes:
            one.apply(context(), module)
            verify_after(one, module)
            watch(one)


def _log(remark: Diagnostic) -> None:
    """Logs a remark; where nothing is said of logging, Python prints it on standard error."""
    where = f"{remark.position}: " if remark.position else ""
    logging.getLogger("collir").warning("%s%s", where, remark.message)


def verify_after(done: ModulePass, module: ModuleOp) -> None:
    """Verifies a module after a pass.

    Raises:
        RuntimeError: it is not valid: the pass is wrong, not the user.
    """
    try:
        verify(module)
    except DiagnosticError as error:
        raise RuntimeError(f"pass {done.name} left an invalid module: {error}") from error


def validate_after(done: ModulePass, before: ModuleOp, after: ModuleOp) -> list[str]:
    """Compares what the functions of a module compute before and after a pass.

    Returns: a remark for each function of which it is not proven.

    Raises:
        RuntimeError: a function computes something else: the pass is wrong, not the user.
    """
    from collir.semantics.validation.validate import compare_modules

    try:
        checked = compare_modules(before, after)
    except DiagnosticError as error:
        found = "; ".join(one.message for one in error.diagnostics)
        raise RuntimeError(f"pass {done.name} changed the program: {found}") from error
    compared = {one.function for one in checked}
    return [
        f"pass {done.name}, @{one.function.sym_name.data}: {one.verdict.explanation}"
        for one in checked
        if one.verdict.how != "proof"
    ] + [
        f"pass {done.name}, @{one.sym_name.data}: new, so there is nothing to compare it with"
        for one in functions_of(after)
        if one not in compared
    ]


def unknown_target(name: str, targets: Iterable[str]) -> str:
    """What to say of a target that does not exist."""
    return f"there is no target '{name}'; {_nearest(name, TARGETS, targets)}"


def simulate(
    module: ModuleOp,
    model: str = "auto",
    algorithm: str = "auto",
    order: str = "auto",
) -> "list[Simulation]":
    """What every function of a module does over time: spans, critical path, memory; in order.

    Raises:
        DiagnosticError: an operation that is not of the coll dialect, a mesh that is not placed on
            levels, an algorithm that does not fit its group; with its position.
        ValueError: a model, algorithm or order that does not exist.
    """
    from collir.cost.model import CostModel
    from collir.cost.programs import simulation

    return simulation.simulate(module, CostModel(model, algorithm, order))


def emit(module: ModuleOp, target: str = "coll") -> str:
    """What a target prints, such as ``coll``, ``mlir``, ``mpi`` or ``"mpi{main=true}"``.

    Raises:
        UsageError: a target that does not exist, or an option it does not have.
        DiagnosticError: the target cannot print this module.
    """
    from collir.tools.universe import known_targets

    known = known_targets()
    try:
        check_text(target)
        spec = parse_spec(target)
        if spec.name not in known:
            raise UsageError(unknown_target(spec.name, known))
        found = made(known[spec.name](), spec)
    except UsageError:
        raise
    except (ArgSpecParseError, ValueError) as error:
        raise usage_error(error) from error
    output = StringIO()
    with listening(_log), session():
        found.emit(context(), module, output)
    return output.getvalue()
