"""The installed dialects, passes and targets: of collir, of xDSL and of other packages.

Packages register what they add by an entry point of the group ``xdsl.universe``. The entry point of
collir is ``COLLIR``, so that xdsl-opt has all that collopt has, except the language ``.coll``.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TypeVar

from xdsl.ir import Dialect
from xdsl.passes import ModulePass
from xdsl.transforms import get_all_passes
from xdsl.universe import Universe
from xdsl.utils.target import Target

from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.ir.lazy import Lazy
from collir.ir.packages import imported, packages
from collir.passes.table import PASSES
from collir.targets.table import TARGETS

_T = TypeVar("_T")
_OF_XDSL = get_all_passes()

COLLIR = Universe(
    all_dialects={
        "machine": Lazy("collir.dialects.machine", "Machines"),
        "coll": Lazy("collir.dialects.coll", "Coll"),
        "nn": Lazy("collir.dialects.nn", "Nn"),
        "local": Lazy("collir.dialects.local", "Local"),
    },
    all_passes={name: factory for name, factory in PASSES.items() if name not in _OF_XDSL},
    all_targets=dict(TARGETS),
)
"""The dialects, passes and targets that collir adds to xDSL, which has its own ``canonicalize``."""


def _merged(kind: str, rows: Callable[[Universe], Mapping[str, _T]]) -> dict[str, _T]:
    """Return the dialects, passes or targets of all packages.

    Raises:
        DiagnosticError: a package cannot be loaded, or two packages add something of the same name.
    """
    known: dict[str, _T] = {}
    owner: dict[str, str] = {}
    for package, universe in {"collir": COLLIR, **packages()}.items():
        for name, row in rows(universe).items():
            if name in known:
                message = f"the packages {owner[name]} and {package} both have a {kind} {name}"
                raise DiagnosticError(Diagnostic(message))
            known[name], owner[name] = row, package
    return known


def known_dialects() -> Mapping[str, Callable[[], Dialect]]:
    """Return all dialects by name."""
    # Imported here because it is slow and the tools start fast.
    from collir.dialects.tables import DIALECTS

    added = _merged("dialect", lambda universe: universe.all_dialects)
    # The import of a package may have registered a dialect that its universe does not have.
    return {**added, **{dialect.name: lambda dialect=dialect: dialect for dialect in DIALECTS}}


def _added(rows: Callable[[Universe], Mapping[str, object]]) -> dict[str, str]:
    return {
        name: package
        for package, universe in packages().items()
        if package != "xdsl"
        for name in rows(universe)
    }


def added_passes() -> dict[str, str]:
    """Return the passes that neither collir nor xDSL has, each with its package."""
    return _added(lambda universe: universe.all_passes)


def added_targets() -> dict[str, str]:
    """Return the targets that neither collir nor xDSL has, each with its package."""
    return _added(lambda universe: universe.all_targets)


@cache
def _passes() -> Mapping[str, Callable[[], type[ModulePass]]]:
    return _merged("pass", lambda universe: universe.all_passes)


def known_passes() -> Mapping[str, Callable[[], type[ModulePass]]]:
    """Return all passes by name; a pass of collir replaces xDSL's pass of the same name.

    Functions of other packages raise a ``DiagnosticError`` that names the pass if it cannot be
    imported.
    """
    return _loaded("pass", {**_passes(), **PASSES})


def known_targets() -> Mapping[str, Callable[[], type[Target]]]:
    """Return all targets by name, as ``known_passes`` does passes."""
    merged = _merged("target", lambda universe: universe.all_targets)
    return _loaded("target", {**merged, **TARGETS})


def _loaded(kind: str, known: dict[str, Callable[[], _T]]) -> dict[str, Callable[[], _T]]:
    """Return functions that name a pass or target in the error if it cannot be imported."""
    return known | {
        name: partial(imported, f"the {kind} {name}", factory)
        for name, factory in known.items()
        if not isinstance(factory, Lazy)
    }
