"""The operations of the `onnx` dialect that are written by hand: constants, absent operands, and terminators. The
base class of all operators is here too."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from xdsl.dialects.builtin import NoneType, TensorType, UnitAttr
from xdsl.ir import Attribute
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import ConstantLike, IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from distir.dialects.onnx.schemas import SCHEMAS, OperatorSchema
from distir.dialects.onnx.tensors import Literal, TensorAttr, print_literal, without_encoding


class OnnxOperation(IRDLOperation):
    """Base of every operator of ONNX: its class knows the operator's schema."""

    if TYPE_CHECKING:  # at run time xDSL would take it for a field of the operation
        schema: ClassVar[OperatorSchema]


@irdl_op_definition
class Constant(OnnxOperation):
    """A tensor known at compile time. `value` is exact in memory and in text; the result may also say where it lives.

    Lifecycle: frontends make them from integer, boolean and string initializers, `onnx-fold-shapes` from shape
    arithmetic. Floating-point initializers are parameters, not constants.
    """

    name = "onnx.Constant"
    value = prop_def(TensorAttr)
    output = result_def(TensorType)
    traits = traits_def(Pure(), ConstantLike())
    irdl_options = (ParsePropInAttrDict(),)

    def __init__(self, value: TensorAttr, result_type: Attribute | None = None) -> None:
        super().__init__(properties={"value": value}, result_types=[result_type or value.type])

    def verify_(self) -> None:
        if without_encoding(self.output.type) != self.value.type:
            raise VerifyException(f"expected a result of type {self.value.type}, got {self.output.type}")

    def print(self, printer: Printer) -> None:
        printer.print_op_attributes(self.attributes)
        printer.print_string(" ")
        print_literal(printer, self.value)
        printer.print_string(" : ")
        printer.print_attribute(self.output.type)

    @classmethod
    def parse(cls, parser: Parser) -> Constant:
        attributes = parser.parse_optional_attr_dict()
        literal = Literal(parser)
        parser.parse_punctuation(":")
        result_type = parser.parse_type()
        op = cls(literal.typed(result_type), result_type)
        op.attributes |= attributes
        return op


Constant.schema = SCHEMAS["Constant"]


@irdl_op_definition
class NoValue(IRDLOperation):
    """The operand that stands for an optional input that is absent; its type is `none`."""

    name = "onnx.NoValue"
    value = opt_prop_def(UnitAttr)
    none_val = result_def(NoneType)
    traits = traits_def(Pure())
    irdl_options = (ParsePropInAttrDict(),)

    def __init__(self) -> None:
        super().__init__(result_types=[NoneType()], properties={"value": UnitAttr()})


@irdl_op_definition
class Yield(IRDLOperation):
    """Ends the body of `If`, `Loop`, `Scan` and `SequenceMap` with the body's results."""

    name = "onnx.Yield"
    arguments = var_operand_def()
    traits = traits_def(IsTerminator())
    assembly_format = "attr-dict ($arguments^ `:` type($arguments))?"
