"""Text of Python: names that it can have, calls and tables in lines, numbers."""

import builtins
import keyword
import math
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import groupby

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from collir.ir.names import result_names
from collir.layout import DType
from collir.semantics.reference.buffers import NUMPY
from collir.targets.code.names import Definition, check_definitions, distinct
from collir.targets.code.numpy_methods import METHODS as NUMPY_METHODS
from collir.targets.code.python_lines import WIDTH
from collir.targets.code.torch_methods import METHODS as TORCH_METHODS

USED = frozenset(
    """
    self xp torch dist F np MPI time itertools ml_dtypes start start_2 to from_ sent work
    SUM_OF_F16 PROD_OF_F16 MAX_OF_F16 MIN_OF_F16 SUM_OF_BF16 PROD_OF_BF16 MAX_OF_BF16 MIN_OF_BF16
    """.split()  # noqa: SIM905
)
"""Names that the emitted functions use, and no variable may have."""

METHODS = frozenset(
    ["free", "comm", "rank", "xp", "device", "_argument", "_packed", "_strided"]
    + [f"_{name}" for name in (*NUMPY_METHODS, *TORCH_METHODS)]
)
"""Names of the attributes and methods of every mesh, which no function may have."""


def comment(text: str) -> str:
    """Return text that cannot end a comment or a string: in MLIR, axes may have any name."""
    return re.sub(r'[^ -~]|\\|"', "_", text)


def remark(text: str) -> str:
    """Return text that cannot end a comment of one line."""
    return re.sub(r"[^ -~]|\\", "_", text)


def variables(names: Sequence[str], taken: Iterable[str] = ()) -> list[str]:
    """Return a distinct Python variable for each of the names of values, none of them taken."""
    return distinct(map(_variable, names), {*taken, *USED})


def _variable(name: str) -> str:
    """Return a variable for a name, which may be the same as for another name."""
    base = re.sub(r"\W", "_", name, flags=re.ASCII) or "_"
    if base[0].isdigit():
        base = f"v{base}"
    used = keyword.iskeyword(base) or hasattr(builtins, base) or base in USED
    return f"{base}_" if used else base


def shown_results(
    function: FuncOp,
    returned: Sequence[SSAValue],
    names: Mapping[SSAValue, str],
    variable: Mapping[SSAValue, str],
) -> list[str]:
    """Return the names of the results of a function for docstrings.

    They are the returned variables, or the names of results where these differ from the names of
    their values.
    """
    values = zip(result_names(function), returned, strict=True)
    return [
        variable[value] if name == names[value] or name.isdigit() else name
        for name, value in values
    ]


def class_name(mesh: str) -> str:
    """Return the class of a mesh: DataMesh for @data_mesh."""
    return "".join(word[:1].upper() + word[1:] for word in mesh.split("_"))


def identifier_problem(name: str) -> str | None:
    """Return the reason why nothing in Python can have this name, or None."""
    if keyword.iskeyword(name):
        return f"'{name}' is a keyword of Python"
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        return "names in Python are letters, digits and _"
    return None


def function_problem(name: str) -> str | None:
    """Return the reason why a class cannot have a method of this name, or None."""
    if name in METHODS:
        return f"'{name}' is a name of the emitted code"
    if name.startswith("__"):
        return "names that start with '__' are Python's own"
    return identifier_problem(name)


def class_problem(name: str) -> str | None:
    """Return the reason why a module cannot have a class of this name, or None."""
    if hasattr(builtins, name) and not keyword.iskeyword(name):
        return f"'{name}' is a name of Python's own"
    if name in USED:
        return f"'{name}' is a name of the emitted code"
    return identifier_problem(name)


def check_names(module: ModuleOp, meshes: Container[str]) -> None:
    """Check that functions, and the meshes they are on, can have the same names in Python.

    Raises:
        DiagnosticError: all the names that Python cannot have.
    """

    def class_definition(mesh: str) -> Definition:
        name = class_name(mesh)
        return Definition(name, class_problem(name), "class")

    check_definitions(
        module,
        "Python",
        lambda mesh: [class_definition(mesh)] if mesh in meshes else [],
        lambda function: [Definition(function, function_problem(function), None)],
        models=True,
    )


def call(head: str, arguments: Sequence[str], indent: int = 16) -> list[str]:
    """Return the lines of a call that is indented by a number of letters."""
    line = f"{head}({', '.join(arguments)})"
    if indent + len(line) <= WIDTH:
        return [line]
    return [f"{head}(", *(f"    {argument}," for argument in arguments), ")"]


def tuple_text(items: Sequence[object]) -> str:
    """Return a tuple as Python writes it."""
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(map(str, items))})"


def table_text(items: Sequence[int]) -> str:
    """Return a tuple of integers; if it is long, equal ones that follow each other as products."""
    runs = [(item, len(list(group))) for item, group in groupby(items)]
    if len(items) <= _LONG_TABLE or 4 * len(runs) > len(items):
        return tuple_text(items)
    return f"({' + '.join(f'({item},) * {count}' for item, count in runs)})"


_LONG_TABLE = 16
"""The most numbers of a table that are always written one by one."""


def postfix(text: str) -> str:
    """Return an expression to which an attribute or an index may be added: in brackets, if it has
    operators outside of all brackets."""
    depth = 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0 and letter in " -":
            return f"({text})"
    return text


def number_text(value: float, dtype: DType) -> str:
    """Return a constant, rounded to a dtype: in f32 and f64 the shortest text that rounds to it."""
    if dtype is DType.BOOL:
        return str(bool(value))
    if not dtype.is_float:
        return str(int(value))
    if math.isinf(value):
        return f'float("{value}")'
    rounded = NUMPY[dtype].type(value)
    return repr(float(str(rounded) if dtype in (DType.F32, DType.F64) else rounded))
