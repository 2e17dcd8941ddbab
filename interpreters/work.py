"""The work of one operation, from its types: which kind of kernel it is, its flops, and the bytes that it moves.

The default holds for any operator: it reads its operands, writes its results and does one flop per result element.
Contractions say more (`WorkFunctions`, where an operator joins by `@impl`). What a unit of work costs is a cost model's
business (`distir.interpreters.cost_models`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from math import prod
from typing import Any, cast

from xdsl.dialects.builtin import (
    ComplexType,
    FixedBitwidthType,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    TensorType,
    TupleType,
)
from xdsl.interpreter import Interpreter, InterpreterFunctions, PythonValues, impl, register_impls
from xdsl.ir import Attribute, Operation

from distir.dialects.dist import ConcatOp, MoveOp, PackOp, SliceOp, UnpackOp, ZerosOp
from distir.dialects.errors import DistirError
from distir.dialects.grad import MatmulGradOp
from distir.dialects.onnx import OPERATORS, NoValue, OnnxOperation
from distir.interpreters.walk import Walk


class Kind(StrEnum):
    """What limits an operation."""

    MATMUL = "matmul"
    """Contractions: flops or bytes."""
    ELEMENTWISE = "elementwise"
    """Everything else that computes: bytes."""
    DATA_MOVEMENT = "data_movement"
    """Copies without arithmetic: bytes."""
    VIEW = "view"
    """The result is the operand's memory under another type; takes no time."""
    NOTHING = "nothing"
    """Known before the program runs; takes no time."""


@dataclass(frozen=True)
class Work:
    """What one execution of an operation asks of a device."""

    kind: Kind
    flops: int = 0
    """A multiplication and an addition are two."""
    bytes: int = 0
    """Read and written, each operand and result once."""


VIEWS = frozenset(
    [PackOp, UnpackOp, MoveOp]
    + [OPERATORS[name] for name in ("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")]
)
"""Their results have the elements of operand 0, in the same order in memory: types alone cannot tell a reshape from
a transpose of a square, so these are listed."""

CONSTANTS = frozenset([OPERATORS["Constant"], OPERATORS["Shape"], OPERATORS["Size"], NoValue])
"""Their results are known when the program is compiled: values written in it, or static shapes."""


def is_view(op: Operation) -> bool:
    """Whether the results share operand 0's memory (a pack's: all its operands')."""
    return type(op) in VIEWS


def element_bytes(element_type: Attribute) -> int:
    """Bytes of one element; less than a byte takes a byte, as in numpy."""
    if isinstance(element_type, ComplexType):
        return 2 * element_bytes(cast(ComplexType[Any], element_type).element_type)
    if isinstance(element_type, FixedBitwidthType):
        return -(-element_type.bitwidth // 8)
    return 8


def tensor_elements(type_: TensorType[Any]) -> int:
    return prod(type_.get_shape())


def type_bytes(type_: Attribute) -> int:
    """Memory of a value; what is not a tensor or a tuple of tensors (an absent operand) takes none."""
    if isinstance(type_, TensorType):
        tensor = cast(TensorType[Any], type_)
        return tensor_elements(tensor) * element_bytes(tensor.element_type)
    if isinstance(type_, TupleType):
        return sum(map(type_bytes, type_.types.data))
    return 0


def work_of(op: Operation) -> Work:
    """The work of a compute operation. Raises DistirError if a shape is not static."""
    for value in (*op.operands, *op.results):
        if isinstance(value.type, TensorType) and not cast(TensorType[Any], value.type).has_static_shape():
            raise DistirError(f"{op.name}: {value.type} has no static shape: run onnx-fold-shapes first")
    (work,) = _domain().run(op, tuple(v.type for v in op.operands))
    return work


def default_work(op: Operation, types: PythonValues) -> tuple[Work]:
    """The work of an operator without an `@impl`."""
    if type(op) in CONSTANTS:
        return (Work(Kind.NOTHING),)
    if is_view(op):
        return (Work(Kind.VIEW),)
    if _only_moves(op):
        return (Work(Kind.DATA_MOVEMENT, 0, moved_bytes(op)),)
    return (Work(Kind.ELEMENTWISE, sum(_result_elements(op)), moved_bytes(op)),)


def moved_bytes(op: Operation) -> int:
    """Every operand read and every result written once."""
    return sum(type_bytes(v.type) for v in (*op.operands, *op.results))


def _result_elements(op: Operation) -> list[int]:
    return [tensor_elements(cast(TensorType[Any], v.type)) for v in op.results if isinstance(v.type, TensorType)]


def _only_moves(op: Operation) -> bool:
    """Whether the operator is defined on strings too: then it copies elements and does no arithmetic on them."""
    if not isinstance(op, OnnxOperation) or not op.schema.outputs:
        return isinstance(op, SliceOp | ConcatOp | ZerosOp)
    result = op.schema.outputs[0]
    return "tensor(string)" in result.types and result.type_variable in {p.type_variable for p in op.schema.inputs}


@cache
def _domain() -> Walk:
    return Walk(ModuleOp([]), default=default_work).register([WorkFunctions()])


def _shape(type_: Attribute) -> tuple[int, ...]:
    return cast(TensorType[Any], type_).get_shape()


def _matmul(op: Operation, flops: int) -> tuple[Work]:
    return (Work(Kind.MATMUL, flops, moved_bytes(op)),)


def einsum_flops(equation: str, shapes: Sequence[Sequence[int]]) -> int:
    """Flops of a contraction of one or two operands: one multiplication and one addition per point of the space that
    all labels span. More operands are counted as contracted from left to right with no dim summed early."""
    terms = equation.replace(" ", "").split("->")[0].split(",")
    extents: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        before, dots, after = term.partition("...")
        batch = len(shape) - len(before) - len(after) if dots else 0
        # Broadcast dims are aligned at the right, so they are named from there.
        labels = [*before, *(f"...{batch - i}" for i in range(batch)), *after]
        for label, extent in zip(labels, shape, strict=True):
            extents[label] = max(extents.get(label, 1), extent)
    return (2 * (len(terms) - 1) or 1) * prod(extents.values())


@register_impls
class WorkFunctions(InterpreterFunctions):
    """Contractions. Arguments are operand types, the value is the operation's Work. Formulas are those of
    torch.utils.flop_counter unless said otherwise; bias additions are not counted, as there."""

    @impl(OPERATORS["MatMul"])
    def matmul(self, interpreter: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        """2 x result elements x contracted extent."""
        return _matmul(op, 2 * prod(_shape(op.results[0].type)) * _shape(args[0])[-1])

    @impl(OPERATORS["MatMulInteger"])
    def matmul_integer(self, interpreter: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        """As MatMul."""
        return _matmul(op, 2 * prod(_shape(op.results[0].type)) * _shape(args[0])[-1])

    @impl(OPERATORS["Gemm"])
    def gemm(self, interpreter: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        """2mnk; A is transposed if transA."""
        transposed = op.properties.get("transA")
        contracted = 0 if isinstance(transposed, IntegerAttr) and transposed.value.data else 1
        return _matmul(op, 2 * prod(_shape(op.results[0].type)) * _shape(args[0])[contracted])

    @impl(OPERATORS["Conv"])
    def conv(self, interpreter: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        """2 x result elements x elements of one filter (channels / groups x kernel: the weight's later dims)."""
        return _matmul(op, 2 * prod(_shape(op.results[0].type)) * prod(_shape(args[1])[1:]))

    @impl(OPERATORS["ConvInteger"])
    def conv_integer(self, interpreter: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        """As Conv."""
        return _matmul(op, 2 * prod(_shape(op.results[0].type)) * prod(_shape(args[1])[1:]))

    @impl(OPERATORS["ConvTranspose"])
    def conv_transpose(self, interpreter: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        """2 x operand elements x elements of one filter: every input element meets every weight of its channel."""
        return _matmul(op, 2 * prod(_shape(args[0])) * prod(_shape(args[1])[1:]))

    @impl(OPERATORS["Einsum"])
    def einsum(self, interpreter: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        """`einsum_flops`; of one operand it is a reduction or transposition, not a contraction."""
        equation = cast(StringAttr, op.properties["equation"]).data
        flops = einsum_flops(equation, [_shape(type_) for type_ in args])
        return (Work(Kind.MATMUL if len(args) > 1 else Kind.ELEMENTWISE, flops, moved_bytes(op)),)

    @impl(OPERATORS["Attention"])
    def attention(self, interpreter: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        """2 x result elements x keys for `P @ V`, and 2 x queries x keys x head size for `Q @ K.T`; a fused kernel, so
        scores are not in its bytes. Operands are (batch, heads, length, head size) or (batch, length, hidden)."""
        query, key, result = _shape(args[0]), _shape(args[1]), _shape(op.results[0].type)
        past = _shape(args[4])[2] if len(args) > 4 and isinstance(args[4], TensorType) else 0
        keys = key[-2] + past
        return _matmul(op, 2 * keys * (prod(query) + prod(result)))

    @impl(MatmulGradOp)
    def matmul_grad(self, interpreter: Interpreter, op: MatmulGradOp, args: PythonValues) -> PythonValues:
        """Two matmuls of the forward's 2mnk flops each: `dy @ w.T` and `x.T @ dy`."""
        return _matmul(op, 4 * prod(_shape(args[2])) * _shape(args[0])[-1])
