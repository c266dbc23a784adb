"""The operations that other packages add.

They are loaded before anything is made from the tables of operations: a package may import all of
collir while it is loaded.
"""

from functools import cache

from collir.dialects import tables
from collir.ir.packages import imported, packages


@cache
def load_operations() -> None:
    """Register the dialects of all packages, so that programs may use their operations.

    It is called before the first program is read or built.

    Raises:
        DiagnosticError: a dialect cannot be imported, or two have an operation of the same name.
    """
    for package, universe in packages().items():
        if package == "xdsl":
            continue
        for name, dialect in universe.all_dialects.items():
            imported(
                f"the dialect {name} of the package {package}",
                lambda dialect=dialect: tables.register(dialect()),
            )
