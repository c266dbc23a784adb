"""The Python API: the work of the tools, as functions. ``import collir`` gives all of them.

module = collir.parse(Path("sync.coll"))
collir.run_passes(module, "decompose{strategy=rs-ar-ag}")
print(collir.emit(module, "mpi{main=true}"))
"""

import logging
import warnings
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass, PassPipeline
from xdsl.utils.arg_spec import parse_spec
from xdsl.utils.exceptions import ArgSpecParseError

from collir.ir.calls import called_names
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Sources
from collir.ir.functions import functions_of
from collir.ir.names import keep_names
from collir.ir.packages import PackageError
from collir.ir.remarks import listening
from collir.ir.verification import verify
from collir.passes.pipelines import Known, expanded_passes
from collir.syntax.encoding import decode
from collir.syntax.mlir import read_mlir
from collir.syntax.reader import read
from collir.syntax.writer import settle_names
from collir.synthesis.propagation.propagate import explicit
from collir.synthesis.searching import session
from collir.tools.missing_rows import locating_missing_rows
from collir.tools.shell import UsageError
from collir.tools.specifications import check_text, configured, unknown_target, usage_error
from collir.transforms import instantiation

if TYPE_CHECKING:
    from collir.cost.formulas.costs import CostFormulas
    from collir.cost.formulas.function import CostFunction
    from collir.cost.programs.simulation import Simulation
    from collir.targets.reports.pass_costs import PassCosts


@cache
def context() -> Context:
    """Return a context that knows the dialects of collir, of xDSL and of other packages."""
    from collir.tools.universe import known_dialects

    ctx = Context()
    for name, factory in known_dialects().items():
        ctx.register_dialect(name, factory)
    return ctx


def parse(
    source: str | Path,
    file: str = "<string>",
    sources: Sources | None = None,
    functions: Collection[str] = (),
) -> ModuleOp:
    """Return the verified module of a file (a path) or of a ``.coll`` text.

    A ``str`` of one line is a path if it ends in ``.coll`` or ``.mlir`` or has a ``/``, and has no
    ``@``, as every program has, nor begins a comment. A file that ends in ``.mlir`` is read as
    MLIR. Of a ``.coll`` text, only ``functions`` and the functions that they need are read; by
    default all are.

    Raises:
        DiagnosticError: the file cannot be read, or has errors.
    """
    sources = Sources() if sources is None else sources
    if isinstance(source, str) and is_path(source):
        source = Path(source)
    if isinstance(source, str):
        module = read(source, file, sources, functions)
    else:
        text = read_text(source)
        if source.suffix == ".mlir":
            module = read_mlir(context(), text, str(source), sources)
        else:
            module = read(text, str(source), sources, functions)
    verify(module)
    keep_names(module)
    return module


def is_path(text: str) -> bool:
    """Return whether a text names a file, which no program does."""
    marked = "/" in text or text.endswith((".coll", ".mlir"))
    return marked and not ("\n" in text or "@" in text or text.lstrip().startswith("//"))


def instantiate(module: ModuleOp, function: str = "", **sizes: int) -> ModuleOp:
    """Give size parameters of functions other values, in place, and return the module.

    Args:
        function: the name of the function; by default, all that have one of the parameters.
        sizes: the values of parameters; others keep their defaults.

    Raises:
        DiagnosticError: there is no such function or parameter, or the program is not well typed
            with these values; the module is left as it was.
    """
    instantiation.instantiate(module, sizes, function)
    return module


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        DiagnosticError: the file cannot be read, or is not UTF-8.
    """
    try:
        return decode(path.read_bytes(), str(path))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DiagnosticError(Diagnostic(f"cannot read {path}: {reason}")) from error


def pass_pipeline(passes: str, known: Known | None = None) -> PassPipeline:
    """Return the passes of a specification such as ``"canonicalize,decompose{strategy=flat}"``.

    A pipeline such as ``ddp`` is replaced by its passes.

    Args:
        known: the available passes; by default those of collir, xDSL and other packages.

    Raises:
        UsageError: a pass that does not exist, or an option it does not have.
    """
    if known is None:
        from collir.tools.universe import known_passes

        known = known_passes()
    try:
        check_text(passes)
        specs = expanded_passes(passes, known)
        if unknown := [spec.name for spec in specs if spec.name not in known]:
            raise ValueError(f"Unrecognized passes: {unknown}")
        return PassPipeline(tuple(configured(known[spec.name](), spec) for spec in specs))
    except (ArgSpecParseError, ValueError) as error:
        raise usage_error(error, known) from error


def run_passes(module: ModuleOp, passes: str, validate: bool = False) -> ModuleOp:
    """Run passes over a module, in place, and verify it after each.

    With ``validate``, the results of the functions are compared before and after each pass; a
    warning names each function that is not proven to compute the same. Remarks of passes, such as
    that a search was cut off, go to the logger ``collir`` as warnings.

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
    """Run passes over a module, as ``run_passes`` does, and return what each of them saved.

    Raises:
        UsageError: a pass that does not exist, or an option it does not have.
        DiagnosticError: a pass cannot do its work on this module.
    """
    from collir.targets.reports.pass_costs import WRITTEN, PassCosts, model_of

    pipeline = pass_pipeline(passes)
    costs = PassCosts(model_of(pipeline.passes))

    def measure(done: str) -> None:
        costs.measure(done, module, [f.sym_name.data for f in functions_of(module)])

    measure(WRITTEN)
    _run(module, pipeline.passes, lambda done: measure(done.name))
    return costs


def _run(
    module: ModuleOp,
    passes: Iterable[ModulePass],
    watch: Callable[[ModulePass], None] = lambda _: None,
) -> None:
    """Run passes, verify the module after each of them, and then call ``watch``."""
    keep_names(module)
    with listening(_log), session(), locating_missing_rows(module):
        for module_pass in passes:
            with naming(module_pass.name):
                module_pass.apply(context(), module)
            verify_after(module_pass, module)
            keep_names(module)
            watch(module_pass)


@contextmanager
def naming(pass_name: str) -> Generator[None]:
    """Add a note with the name of the pass that runs to errors that do not have it."""
    try:
        yield
    except Exception as error:
        if f"pass {pass_name}" not in str(error):
            error.add_note(f"in pass {pass_name}")
        raise


def _log(remark: Diagnostic) -> None:
    """Log a remark; without a configuration of logging, Python prints it on standard error."""
    prefix = f"{remark.position}: " if remark.position else ""
    logging.getLogger("collir").warning("%s%s", prefix, remark.message)


def verify_after(done: ModulePass, module: ModuleOp) -> None:
    """Verify a module after a pass.

    Raises:
        RuntimeError: the module is not valid: the pass is wrong, not the user.
        PackageError: likewise, and another package has the pass.
    """
    try:
        verify(module)
    except DiagnosticError as error:
        raise _mistake(done, "left an invalid module", error) from error


def _mistake(done: ModulePass, what: str, error: DiagnosticError) -> RuntimeError:
    """Return the error for a wrong pass, which is a diagnostic if another package has it."""
    from collir.tools.universe import added_passes

    if package := added_passes().get(done.name):
        said = f"pass {done.name} of the package {package} {what}: "
        return PackageError(replace(x, message=said + x.message) for x in error.diagnostics)
    differences = "; ".join(diagnostic.message for diagnostic in error.diagnostics)
    return RuntimeError(f"pass {done.name} {what}: {differences}")


def validate_after(done: ModulePass, before: ModuleOp, after: ModuleOp) -> list[str]:
    """Compare what the functions of a module compute before and after a pass.

    Returns:
        A remark for each function that is not proven to compute the same, unless it is new and a
        part of functions that call it.

    Raises:
        RuntimeError: a function computes something else: the pass is wrong, not the user.
        PackageError: likewise, and another package has the pass.
    """
    from collir.semantics.validation.validate import compare_modules

    try:
        comparisons = compare_modules(before, after)
    except DiagnosticError as error:
        raise _mistake(done, "changed the program", error) from error
    compared = {comparison.function for comparison in comparisons}
    called = called_names(after)
    return [
        f"pass {done.name}, @{comparison.function.sym_name.data}: {comparison.verdict.explanation}"
        for comparison in comparisons
        if comparison.verdict.how != "proof"
    ] + [
        f"pass {done.name}, @{function.sym_name.data}: new, so there is nothing to compare it with"
        for function in after.ops
        if isinstance(function, FuncOp)
        and function not in compared
        and function.sym_name.data not in called
    ]


LANGUAGES = ("coll", "mlir")
"""The targets that print a module as it is; others print what runs, so ``auto`` functions get their
layouts first."""


def simulate(
    module: ModuleOp,
    model: str = "auto",
    algorithm: str = "auto",
    order: str = "auto",
) -> "list[Simulation]":
    """Return what each function of a module does over time, in order: spans, critical path, memory.

    Raises:
        DiagnosticError: an operation that is not of the coll dialect, a mesh that is not placed on
            levels, an algorithm that does not fit its group; with its position.
        ValueError: a model, algorithm or order that does not exist.
    """
    from collir.cost.model import CostModel
    from collir.cost.programs import simulate as simulations

    with locating_missing_rows(module):
        return simulations.simulate(module, CostModel(model, algorithm, order))


def cost_formulas(module: ModuleOp, function: str = "") -> "list[CostFormulas]":
    """Return the costs of each function of a module, or of one, as expressions of sympy in its
    parameters, the sizes of axes and constants of the machine such as ``node.port``: operations,
    bytes, messages, memory, time.

    Raises:
        DiagnosticError: see ``simulate``; sympy is missing, or a cost has no formula.
    """
    with _formulas(), locating_missing_rows(module):
        from collir.cost.formulas import costs

        return costs.cost_formulas(module, None, function)


def cost_function(module: ModuleOp, function: str = "") -> "CostFunction":
    """Return the costs of a function of a module as a function of its parameters, the sizes of axes
    and constants of the machine such as ``node.port``, which takes numbers or arrays of numpy.

    Args:
        function: the name of the function; by default, that of the last one.

    Raises:
        DiagnosticError: see ``cost_formulas``; there is no such function.
    """
    with _formulas():
        from collir.cost.formulas.function import CostFunction

        formulas = cost_formulas(module, function)
        if not formulas:
            raise DiagnosticError(Diagnostic(f"there is no function @{function}"))
        name = formulas[-1].name

        def others(values: Mapping[str, int]) -> "CostFormulas":
            return cost_formulas(instantiate(module.clone(), name, **values), name)[0]

        return CostFunction(formulas[-1], others)


@contextmanager
def _formulas() -> Generator[None]:
    """Make errors of formulas diagnostics."""
    try:
        from collir.cost.formulas.functions import FormulaMissingError
    except ImportError as error:
        message = "formulas need sympy: install it with `pip install 'collir[formulas]'`"
        raise DiagnosticError(Diagnostic(message)) from error
    try:
        yield
    except FormulaMissingError as error:
        raise DiagnosticError(Diagnostic(str(error))) from error


def emit(module: ModuleOp, target: str = "coll") -> str:
    """Return what a target prints, such as ``coll``, ``mlir``, ``mpi`` or ``"mpi{main=true}"``.

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
        printer = configured(known[spec.name](), spec)
    except UsageError:
        raise
    except (ArgSpecParseError, ValueError) as error:
        raise usage_error(error) from error
    if spec.name == "mlir":
        module = module.clone()
        settle_names(module)
    output = StringIO()
    with listening(_log), session(), locating_missing_rows(module):
        printer.emit(context(), module if spec.name in LANGUAGES else explicit(module), output)
    return output.getvalue()
