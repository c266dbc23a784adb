"""The lowering of types: what is written in them, and in the signatures of functions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lark import Token

from collir.dialects.nested import Signature
from collir.ir.diagnostics import Diagnostic
from collir.layout import Dim, DistType, DType, LayoutError, Mesh, Reduction, check_type, place_at
from collir.layout.mesh import digits_over
from collir.layout.sizes import default_error
from collir.layout.types import check_coordinate, unknown_axis_message
from collir.syntax.formulas import FormulaLowering
from collir.syntax.lowering import groups_of, result_groups, results_of
from collir.syntax.trees import SyntaxTree, first_token

FLOAT = "float"
"""The name that stands for a floating-point dtype in a generic function, the same everywhere."""

WIDE = "wide"
"""The name that stands for f32 where ``float`` is a dtype of 16 bits, and else for the same."""

FLOATS = (FLOAT, WIDE)


class TypeLowering(FormulaLowering):
    """The base class of lowerings that read types on a mesh.

    Args:
        overridden: values of parameters to take in place of the function's defaults.

    Attributes:
        float_dtype: the dtype that ``float`` stands for in a generic function.
    """

    float_dtype: DType | None = None

    def __init__(
        self,
        file: str,
        errors: list[Diagnostic],
        mesh: Mesh,
        overridden: Mapping[str, int] | None = None,
    ):
        super().__init__(file, errors)
        self.mesh = mesh
        self.overridden = overridden or {}
        self.sizes = {}

    def signature(self, tree: SyntaxTree, function_name: str) -> Signature | None:
        """Return the types of a function under a name, or None after an error."""
        errors_before = len(self.errors)
        inputs: list[DistType | None] = []
        outputs: list[DistType | None] = []
        arguments: list[Token] = []
        results: list[Token | None] = []
        self.read_parameters(tree)
        for token, x, _ in (argument.children for argument in tree.parts("argument")):
            inputs.append(self.type(x))
            arguments.append(token)
        for name, x, _ in results_of(tree):
            outputs.append(self.type(x))
            results.append(name)
        if len(self.errors) > errors_before:
            return None
        return Signature(
            name=function_name,
            mesh=self.mesh.name,
            inputs=tuple(filter(None, inputs)),
            outputs=tuple(filter(None, outputs)),
            parameters=tuple(self.sizes.items()),
            argument_groups=groups_of(arguments),
            result_groups=result_groups(results, tree),
        )

    def read_parameters(self, function: SyntaxTree) -> None:
        """Read the parameters of a function: with its defaults where no other value is given."""
        for tree in function.parts("parameters"):
            self.sizes = self.defaults(tree) | dict(self.overridden)

    def defaults(self, tree: SyntaxTree) -> dict[str, int]:
        """Return the parameters with their defaults; a wrong default is an error, and 1."""
        values = {str(parameter.children[0]): 1 for parameter in tree.children}
        for name, (value, token) in self.parameters(tree).items():
            if problem := default_error(name, value):
                self.error(token, problem)
            values[name] = 1 if problem else value
        return values

    def sub_axes(self, token: Token) -> tuple[str, ...]:
        """Return the sub-axes that a token names: a sub-axis, or all of an axis, major to minor."""
        return self.mesh.named(str(token)) or ()

    def axes(self, tokens: Sequence[Token]) -> tuple[str, ...]:
        """Return the sub-axes that tokens name, in order.

        An axis stands for all of its sub-axes, major to minor, and for none if its size is 1.
        """
        axes: list[str] = []
        for token in tokens:
            named = self.mesh.named(str(token))
            if named is None:
                self.error(token, unknown_axis_message(self.mesh, str(token)))
            axes.extend(named or ())
        return tuple(axes)

    def trivial_parts_once(self, tokens: Sequence[Token], problem: str) -> None:
        """Report a part of size 1 that tokens name twice; of others the typing rules know."""
        trivial = self.mesh.trivial_parts
        seen: set[str] = set()
        for token in tokens if trivial else ():
            parts = trivial.get(str(token), frozenset[str]())
            if twice := seen.intersection(parts):
                self.error(token, problem.format(min(twice)))
            seen |= parts

    def naming(self, tokens: Sequence[Token], axis: str) -> Token:
        """Return the last token that names the sub-axis, or the last token if none does."""
        return next((t for t in reversed(tokens) if axis in self.sub_axes(t)), tokens[-1])

    def type(self, tree: SyntaxTree) -> DistType | None:
        """Return the type as written, or None after an error."""
        name, *rest = tree.children
        errors_before = len(self.errors)
        dtype = self.dtype(name)
        dims: list[Dim] = []
        sizes: list[Token] = []
        axes: list[Token] = []
        partial = frozenset[str]()
        coordinates: dict[str, int] = {}
        reduction: Reduction | None = None
        for part in filter(None, rest):
            if part.data == "dim":
                token, *names = part.children
                names = [t for t in names if t is not None]
                size = self.size(token)
                dims.append(Dim(0 if size is None else size, self.axes(names)))
                sizes.append(first_token(token))
                axes += names
            elif part.data == "partial":
                op, names = part.children
                partial, reduction = self.axis_set(names), self.reduction(op)
                axes += names.children
            elif part.data == "root":
                coordinates = dict.fromkeys(self.axis_set(part.children[0]), 0)
                axes += part.children[0].children
            else:
                self.place(part.children[0], coordinates)
                axes += [entry.children[0] for entry in part.children[0].children]
        twice = "sub-axis {} is used twice: a value has one state on each sub-axis"
        if len(self.errors) == errors_before:
            self.trivial_parts_once(axes, twice)
        if len(self.errors) > errors_before:
            return None
        written = DistType(dtype, tuple(dims), partial, reduction, place_at(coordinates))
        try:
            check_type(self.mesh, written)  # the reduction fits the dtype, even if over nothing
        except LayoutError as error:
            place = name if error.dim is None else sizes[error.dim]
            if error.dim is None and error.axes:
                place = self.naming(axes, error.axes[0])
            self.error(place, error.text(()))
            return None
        return replace(written, reduction=None) if reduction and not partial else written

    def reduction(self, name: Token) -> Reduction | None:
        """Return a reduction by its name, or None after an error."""
        if str(name) in list(Reduction):
            return Reduction(str(name))
        hint = self.suggest(name, list(Reduction))
        self.error(name, f"'{name}' is not a reduction: use {', '.join(Reduction)}{hint}")
        return None

    def dtype(self, name: Token) -> DType:
        """Return a dtype by its name, or any after an error."""
        if name in FLOATS and self.float_dtype is not None:
            return DType.F32 if name == WIDE and self.float_dtype.bytes < 4 else self.float_dtype
        if str(name) in list(DType):
            return DType(str(name))
        hint = self.suggest(name, list(DType))
        if name in FLOATS:
            hint = (
                f"; `{name}` is for generic functions and records: `bf16 @layer` says which it is"
            )
        self.error(name, f"'{name}' is not a dtype: use {', '.join(DType)}{hint}")
        return DType.F32

    def place(self, tree: SyntaxTree, coordinates: dict[str, int]) -> None:
        """Add the coordinates that a tree names; those on a whole axis become its digits."""
        for entry in tree.children:
            token, number = entry.children
            axes, index = self.axes([token]), self.integer(number)
            if twice := next((axis for axis in axes if axis in coordinates), None):
                self.error(token, f"sub-axis {twice} is named twice")
            if self.mesh.named(str(token)) is None or index is None:
                continue
            try:
                check_coordinate(self.mesh, axes, index)
            except LayoutError as error:
                self.error(number, error.text(()))
                continue
            coordinates.update(digits_over(self.mesh, axes, index))

    def axis_set(self, names: SyntaxTree) -> frozenset[str]:
        axes: set[str] = set()
        for token in names.children:
            named = self.axes([token])
            if twice := axes.intersection(named):
                axis = next(axis for axis in named if axis in twice)
                self.error(token, f"sub-axis {axis} is named twice")
            axes.update(named)
        self.trivial_parts_once(names.children, "sub-axis {} is named twice")
        return frozenset(axes)
