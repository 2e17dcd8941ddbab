"""The `random` dialect: draws that are a function of a key and of positions, so that every shard draws exactly its part.

Operand i of the positions says where along dim i of the result each element is: `0, 1, 2, ...` in a sequential program. A
device that has some rows is given their positions, and draws what the whole program draws there; two devices with equal
positions draw the same. So the operators are pure, their rules are found by running them like any other's, and no
generator has a state. What they compute is in `distir.interpreters.random`, once, for every domain.

Lifecycle: frontends create them at level 1 for what a model draws (dropout); every pass treats them like any operator.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import Any, cast

from xdsl.dialects.builtin import Float64Type, FloatAttr, TensorType, f32, f64, i1, i64
from xdsl.ir import Attribute, Dialect, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, prop_def, result_def, traits_def, var_operand_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException


class DrawOp(IRDLOperation, ABC):
    """Base: element (i, j, ...) of the result is drawn by the key, `positions[0][i]`, `positions[1][j]`, ..."""

    key = operand_def(TensorType)
    positions = var_operand_def(TensorType)
    output = result_def(TensorType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        for i, value in enumerate(self.operands):
            type_ = cast(TensorType[Any], value.type)
            if type_.element_type != i64:
                raise VerifyException(f"operand {i}: expected element type i64, got {type_.element_type}")
        if shape := cast(TensorType[Any], self.key.type).get_shape():
            raise VerifyException(f"expected a key without dims, got {list(shape)}")
        vectors = [cast(TensorType[Any], value.type).get_shape() for value in self.positions]
        if wrong := [shape for shape in vectors if len(shape) != 1]:
            raise VerifyException(f"expected positions of one dim, got {list(wrong[0])}")
        expected = [shape[0] for shape in vectors]
        output = cast(TensorType[Any], self.output.type)
        if list(output.get_shape()) != expected:
            raise VerifyException(f"expected a result of shape {expected}, got {list(output.get_shape())}")
        self.verify_element(output.element_type)

    def verify_element(self, element: Attribute) -> None:
        """Subclass hook: the element type of the result."""


@irdl_op_definition
class BernoulliOp(DrawOp):
    """True with this probability, rounded to a multiple of 2^-53."""

    name = "random.bernoulli"
    probability = prop_def(FloatAttr[Float64Type])
    assembly_format = "$key `at` $positions `probability` $probability attr-dict `:` functional-type(operands, results)"

    def __init__(self, key: SSAValue, positions: Sequence[SSAValue], probability: float):
        super().__init__(
            operands=[key, positions],
            result_types=[TensorType(i1, _shape(positions))],
            properties={"probability": FloatAttr(probability, f64)},
        )

    def verify_element(self, element: Attribute) -> None:
        if element != i1:
            raise VerifyException(f"expected a result of truth values (i1), got {element}")
        if not 0 <= (p := self.probability.value.data) <= 1:
            raise VerifyException(f"expected a probability of 0 to 1, got {p}")


@irdl_op_definition
class UniformOp(DrawOp):
    """A multiple of 2^-24 in [0, 1), each as likely as the others, in single precision."""

    name = "random.uniform"
    assembly_format = "$key `at` $positions attr-dict `:` functional-type(operands, results)"

    def __init__(self, key: SSAValue, positions: Sequence[SSAValue]):
        super().__init__(operands=[key, positions], result_types=[TensorType(f32, _shape(positions))])

    def verify_element(self, element: Attribute) -> None:
        if element != f32:
            raise VerifyException(f"expected a result of f32, got {element}")


def _shape(positions: Sequence[SSAValue]) -> list[int]:
    """The shape of what is drawn at these positions."""
    return [cast(TensorType[Any], value.type).get_shape()[0] for value in positions]


Random = Dialect("random", [BernoulliOp, UniformOp])
