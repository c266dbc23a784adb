"""The installed dialects, passes and targets: of collir, of xDSL and of other packages.

Packages register what they add by an entry point of the group ``xdsl.universe``. That of collir
is ``COLLIR``, so that xdsl-opt has all that collopt has, except the language ``.coll``.
"""

from collections.abc import Callable, Mapping
from functools import cache

from xdsl.ir import Dialect
from xdsl.passes import ModulePass
from xdsl.transforms import get_all_passes
from xdsl.universe import Universe
from xdsl.utils.target import Target

from collir.dialects.tables import DIALECTS
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.passes.table import PASSES
from collir.targets.table import TARGETS

_OF_XDSL = get_all_passes()

COLLIR = Universe(
    all_dialects={dialect.name: lambda dialect=dialect: dialect for dialect in DIALECTS},
    all_passes={name: factory for name, factory in PASSES.items() if name not in _OF_XDSL},
    all_targets=dict(TARGETS),
)
"""The dialects, passes and targets that collir adds to xDSL, which has its own ``canonicalize``."""


@cache
def _installed() -> Universe:
    """Return the universe of all packages, xDSL's own included.

    Raises:
        DiagnosticError: a package cannot be loaded, or two packages add something of the same name.
    """
    try:
        return Universe.get_multiverse()
    except Exception as error:  # the import of a package may raise anything
        message = f"a package for xDSL cannot be loaded: {type(error).__name__}: {error}"
        raise DiagnosticError(Diagnostic(message)) from error


def known_dialects() -> Mapping[str, Callable[[], Dialect]]:
    """Return all dialects by name."""
    ours = {dialect.name: lambda dialect=dialect: dialect for dialect in DIALECTS}
    return {**_installed().all_dialects, **ours}


def of_other_packages() -> Mapping[str, Callable[[], type[ModulePass]]]:
    """Return the passes that neither collir nor xDSL itself has."""
    return {n: factory for n, factory in known_passes().items() if n not in {**_OF_XDSL, **PASSES}}


def known_passes() -> Mapping[str, Callable[[], type[ModulePass]]]:
    """Return all passes by name; a pass of collir replaces xDSL's pass of the same name."""
    return {**_installed().all_passes, **PASSES}


def known_targets() -> Mapping[str, Callable[[], type[Target]]]:
    """Return all targets by name."""
    return {**_installed().all_targets, **TARGETS}
