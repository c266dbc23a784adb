"""Records: named groups of values. The IR keeps the definitions of records. A field is a value of
its own; its name is the name of the record, a dot, and the name of the field."""

from collections.abc import Mapping

from xdsl.dialects.builtin import ArrayAttr, StringAttr, SymbolNameConstraint
from xdsl.ir import ParametrizedAttribute
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    param_def,
    prop_def,
    traits_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import SymbolOpInterface
from xdsl.utils.exceptions import VerifyException


@irdl_attr_definition
class FieldAttr(ParametrizedAttribute):
    """A field of a record: its name, and its type as ``.coll`` writes it, for any mesh that has its
    axes and any function that has its sizes: ``#coll.field<"up" : "float[hidden@model, 64]">``.
    """

    name = "coll.field"

    field: StringAttr = param_def()
    type: StringAttr = param_def()

    @staticmethod
    def of(field: str, type: str) -> "FieldAttr":
        """Return a field with a name and a type."""
        return FieldAttr(StringAttr(field), StringAttr(type))

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> tuple[StringAttr, StringAttr]:
        with parser.in_angle_brackets():
            field = parser.parse_str_literal()
            parser.parse_punctuation(":")
            return StringAttr(field), StringAttr(parser.parse_str_literal())

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string_literal(self.field.data)
            printer.print_string(" : ")
            printer.print_string_literal(self.type.data)


@irdl_op_definition
class RecordOp(IRDLOperation):
    """A named list of fields, which functions take and return as one."""

    name = "coll.record"

    sym_name = prop_def(SymbolNameConstraint())
    fields = prop_def(ArrayAttr[FieldAttr])

    traits = traits_def(SymbolOpInterface())

    assembly_format = "$sym_name $fields attr-dict"

    @staticmethod
    def of(name: str, fields: Mapping[str, str]) -> "RecordOp":
        """Return a record of fields, each with its type as ``.coll`` writes it."""
        listed = ArrayAttr(FieldAttr.of(*field) for field in fields.items())
        return RecordOp.create(properties={"sym_name": StringAttr(name), "fields": listed})

    def verify_(self) -> None:
        names = [field.field.data for field in self.fields]
        if not names:
            raise VerifyException("a record has at least one field")
        for number, name in enumerate(names):
            if name in names[:number]:
                raise VerifyException(f"two fields are named '{name}'")
