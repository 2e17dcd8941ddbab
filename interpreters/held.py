"""What a program that is only simulated has in place of parameters that one call alone takes: an operation inside the function that is called.
However many layers there are, nothing about their parameters is said layer by layer then."""

from __future__ import annotations

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute
from xdsl.irdl import IRDLOperation, irdl_op_definition, result_def

from distir.dialects.errors import DistirError


class NeedsArguments(DistirError):
    """What is to be done with a program needs its parameters as arguments."""


@irdl_op_definition
class HeldOp(IRDLOperation):
    """A parameter. Each call of the function has one of its own, which is there from the start of the program to its end: the bytes
    are those of an argument of the entry. No program that is written has this operation."""

    name = "dist.held"
    output = result_def(TensorType)

    def __init__(self, type_: Attribute):
        super().__init__(result_types=[type_])
