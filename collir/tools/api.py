"""The Python API: what the tools do, as functions. ``import collir`` gives all of these.

module = collir.parse(Path("sync.coll"))
collir.run_passes(module, "decompose{strategy=rs-ar-ag}")
print(collir.emit(module, "mpi{main=true}"))
"""

from functools import cache
from io import StringIO
from pathlib import Path

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import PassPipeline
from xdsl.utils.arg_spec import parse_spec
from xdsl.utils.exceptions import ArgSpecParseError

from collir.syntax.diagnostics import Diagnostic, DiagnosticError, Sources
from collir.syntax.mlir import read_mlir, verify
from collir.syntax.reader import decode, read


class UsageError(ValueError):
    """A pass or target that does not exist, or an option it does not have."""


@cache
def context() -> Context:
    """A context that knows the dialects of collir, and all of xDSL's."""
    from xdsl.universe import Universe

    from collir.dialects.coll import Coll
    from collir.dialects.machine import Machines

    ctx = Context()
    for name, factory in Universe.get_multiverse().all_dialects.items():
        ctx.register_dialect(name, factory)
    for dialect in (Machines, Coll):
        ctx.register_dialect(dialect.name, lambda dialect=dialect: dialect)
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


def pass_pipeline(passes: str) -> PassPipeline:
    """The passes of a specification such as ``"canonicalize,decompose{strategy=flat}"``.

    Raises:
        UsageError: a pass that does not exist, or an option it does not have.
    """
    from xdsl.universe import Universe

    from collir.passes.table import PASSES

    known = Universe.get_multiverse().all_passes | PASSES
    try:
        return PassPipeline.parse_spec(known, passes)
    except (ArgSpecParseError, ValueError) as error:
        raise UsageError(str(error)) from error


def run_passes(module: ModuleOp, passes: str) -> ModuleOp:
    """Runs passes over a module, in place, and verifies it after each.

    Raises:
        UsageError: a pass that does not exist, or an option it does not have.
        DiagnosticError: a pass cannot do its work on this module.
    """
    for one in pass_pipeline(passes).passes:
        one.apply(context(), module)
        verify(module)
    return module


def emit(module: ModuleOp, target: str = "coll") -> str:
    """What a target prints, such as ``coll``, ``mlir``, ``mpi`` or ``"mpi{main=true}"``.

    Raises:
        UsageError: a target that does not exist, or an option it does not have.
        DiagnosticError: the target cannot print this module.
    """
    from xdsl.universe import Universe

    from collir.targets.table import TARGETS

    known = Universe.get_multiverse().all_targets | TARGETS
    try:
        spec = parse_spec(target)
        if spec.name not in known:
            raise ValueError(f"there is no target '{spec.name}'")
        found = known[spec.name]().from_spec(spec)
    except (ArgSpecParseError, ValueError) as error:
        raise UsageError(str(error)) from error
    output = StringIO()
    found.emit(context(), module, output)
    return output.getvalue()
