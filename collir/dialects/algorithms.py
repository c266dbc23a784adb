"""Algorithms that a program declares: a symbol of the module, and the name behind ``using``."""

import re

from xdsl.dialects.builtin import SymbolNameConstraint
from xdsl.ir import Data
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    prop_def,
    traits_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from collir.layout.algorithm_names import AlgorithmName


def _encoded(text: str) -> str:
    """Return a text in ASCII, as xDSL does not read other letters again."""
    return re.sub(r"[^\x00-\x5b\x5d-\x7f]", lambda match: f"\\u{{{ord(match[0]):x}}}", text)


def _decoded(text: str) -> str:
    return re.sub(r"\\u\{([0-9a-f]{1,6})\}", lambda match: chr(int(match[1], 16)), text)


@irdl_attr_definition
class AlgorithmAttr(Data[AlgorithmName]):
    """A declared algorithm: ``<"@mine", "all_reduce", "algorithm @mine ...">``.

    A step holds the declaration itself, as a machine with a reference holds its levels.
    """

    name = "coll.algorithm"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> AlgorithmName:
        with parser.in_angle_brackets():
            symbol = parser.parse_str_literal()
            parser.parse_punctuation(",")
            collective = parser.parse_str_literal()
            parser.parse_punctuation(",")
            return AlgorithmName(symbol, collective, _decoded(parser.parse_str_literal()))

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            text = _encoded(self.data.text)
            for number, part in enumerate((str(self.data), self.data.collective, text)):
                printer.print_string(", " if number else "")
                printer.print_string_literal(part)


@irdl_op_definition
class AlgorithmOp(IRDLOperation):
    """A declared algorithm."""

    name = "coll.declared"

    sym_name = prop_def(SymbolNameConstraint())
    declared = prop_def(AlgorithmAttr)

    traits = traits_def(SymbolOpInterface())

    assembly_format = "$sym_name $declared attr-dict"

    def verify_(self) -> None:
        if str(self.declared.data) != f"@{self.sym_name.data}":
            raise VerifyException(f"@{self.sym_name.data} declares {self.declared.data}")
