"""The mixed domain (DistIR, section 3.3). In goes a module; out comes for every SSA value a concrete array where it
is known, and a type where it is not.

Shapes of a program are values of it: `Shape` of an abstract tensor is a concrete array, the arithmetic on it is
evaluated, and `Reshape` of an abstract tensor by a concrete shape has an abstract result of known shape. A dimension
that stays unknown is an open dimension of the type; `require_static` refuses those and says which operation left one.

    values = infer(module)                    # by SSA value: np.ndarray | TensorType | None (an absent operand)

Each operation has several implementations; the first of these that fits its operands runs:

    concrete      all operands known               -> arrays, by the reference evaluator
    bodies        If, Loop, Scan                   -> `mixed_bodies`
    from shapes   Shape and Size of a known shape  -> an array
    abstract      anything else                    -> types, by the operator's inference with the arrays that are known
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ModuleOp,
    NoneType,
    StringAttr,
    TensorType,
    UnrankedTensorType,
)
from xdsl.interpreter import Interpreter, InterpreterFunctions, PythonValues, impl, register_impls
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.traits import is_side_effect_free

from distir.dialects.errors import DistirError
from distir.dialects.onnx import Constant, OnnxOperation, without_encoding
from distir.dialects.onnx.types import ELEMENT_OF_NUMPY_NAME
from distir.dialects.plugins import implementations
from distir.interpreters.model_names import NAMES
from distir.interpreters.onnx.bodies import has_bodies
from distir.interpreters.operator_dialects import MEANINGS, function_of
from distir.interpreters.shared import Shared
from distir.interpreters.walk import Enter, Walk, single_operations, values_read

Array = np.ndarray[Any, Any]
MixedValue: TypeAlias = Array | Attribute | None
"""A concrete array, the (plain) type of an abstract value, or None for an absent operand."""

LARGEST_CONCRETE = 64 * 1024
"""Arrays of more elements are abstract: shape arithmetic is small, data need not be computed to know its type."""


def infer(
    module: ModuleOp, entry: str = "main", arguments: Mapping[str, MixedValue] | None = None
) -> dict[SSAValue, MixedValue]:
    """What is known of every value of the functions reached from `entry`.

    Arguments of the entry are abstract, of their declared types, unless `arguments` gives a value by `dist.name`. A
    value of a function that is called several times is what holds for all calls. Raises DistirError on an operation
    that cannot work on what is known of its operands.
    """
    walk = MixedWalk(module, default=mixed_operator)
    walk.register([MixedFunctions(), *implementations("mixed")])
    function = walk.function(entry)
    walk.enter(function, [given(function, i, arguments or {}) for i in range(len(function.args))])
    return walk.known


def given(function: func.FuncOp, index: int, arguments: Mapping[str, MixedValue]) -> MixedValue:
    """The value of an argument of the entry."""
    if function.arg_attrs is not None:
        name = function.arg_attrs.data[index].data.get("dist.name")
        if isinstance(name, StringAttr) and name.data in arguments:
            return arguments[name.data]
    return abstract(function.args[index].type)


class MixedWalk(Walk):
    """A walk that remembers what is known of each value, and what an operation gave for what is known of its operands: a
    program of many equal layers is inferred once for each distinct operation of a layer."""

    known: dict[SSAValue, MixedValue]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.known = {}
        self._answers: dict[Hashable, PythonValues] = {}
        self._shared = Shared()

    def enter(self, function: func.FuncOp, arguments: Sequence[MixedValue]) -> PythonValues:
        """Run a function to its end, remembering its arguments."""
        self.remember(function.args, arguments)
        return self.call(function.sym_name.data, tuple(arguments))

    def run(self, op: Operation, operands: PythonValues) -> PythonValues:
        if isinstance(op, OnnxOperation) and op.regions:
            results = mixed_operator(op, operands, self.remember)
        elif op.regions or self.has(op):
            results = super().run(op, operands)
        else:
            key = question(self._shared, op, operands)
            if (results := self._answers.get(key)) is None:
                results = tuple(map(self._shared.value, super().run(op, operands)))
                self._answers[key] = results
        if not (len(results) == 1 and isinstance(results[0], Enter)):
            self.remember(op.results, results)
        return results

    def remember(self, values: Sequence[SSAValue], results: Sequence[MixedValue]) -> None:
        for value, result in zip(values, results, strict=True):
            self.known[value] = join(self.known[value], result) if value in self.known else result


def question(shared: Shared, op: Operation, operands: PythonValues) -> Hashable:
    """Equal for operations of one class, with equal attributes and declared types, and operands of which the same is
    known, wired alike."""
    number, same = shared.number, {value: i for i, value in enumerate(op.operands)}
    return (
        type(op),
        *(item for name, each in op.properties.items() for item in (name, number(each))),
        *(item for name, each in op.attributes.items() if name not in NAMES for item in (name, number(each))),
        *(item for v, known in zip(op.operands, operands, strict=True) for item in (same[v], number(known))),
        *(number(value.type) for values in (op.operands, op.results) for value in values),
    )


@register_impls
class MixedFunctions(InterpreterFunctions):
    """Calls, in the mixed domain."""

    @impl(func.CallOp)
    def run_call(self, interpreter: Interpreter, op: func.CallOp, args: PythonValues) -> PythonValues:
        assert isinstance(interpreter, MixedWalk)
        results = interpreter.enter(interpreter.function(op.callee.string_value()), args)
        interpreter.remember(op.results, results)
        return results


# Values.


def abstract(type: Attribute) -> MixedValue:
    """An unknown value of this type, wherever it lives."""
    if isinstance(type, NoneType):
        return None
    return without_encoding(cast(TensorType[Attribute], type)) if isinstance(type, TensorType) else type


def type_of(value: Array | Attribute) -> Attribute:
    """The type of a value, known or not."""
    if not isinstance(value, np.ndarray):
        return value
    return TensorType(ELEMENT_OF_NUMPY_NAME[value.dtype.name].type, value.shape)


def join(a: MixedValue, b: MixedValue) -> MixedValue:
    """What holds for both values."""
    if a is None or b is None:
        return None
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.array_equal(a, b) and a.dtype == b.dtype:
        return a
    first, second = type_of(a), type_of(b)
    if first == second:
        return first
    if not isinstance(first, TensorType) or not isinstance(second, TensorType):
        return first if isinstance(first, UnrankedTensorType) else second
    one, two = cast(TensorType[Attribute], first), cast(TensorType[Attribute], second)
    if one.get_num_dims() != two.get_num_dims():
        return UnrankedTensorType(one.element_type)
    dims = [m if m == n else DYNAMIC_INDEX for m, n in zip(one.get_shape(), two.get_shape(), strict=True)]
    return TensorType(one.element_type, dims)


def is_static(value: MixedValue) -> bool:
    """Whether every dimension is known."""
    if isinstance(value, TensorType):
        return DYNAMIC_INDEX not in cast(TensorType[Attribute], value).get_shape()
    return not isinstance(value, UnrankedTensorType)


# Implementations, from the most precise to the least.


class Implementation(NamedTuple):
    """What an operation does when `accepts` holds for its operands."""

    accepts: Callable[[Operation, Sequence[MixedValue]], bool]
    run: Callable[[Operation, Sequence[MixedValue]], Sequence[MixedValue]]


def mixed_operator(
    op: Operation,
    operands: Sequence[MixedValue],
    remember: Callable[[Sequence[SSAValue], Sequence[MixedValue]], None] | None = None,
) -> PythonValues:
    """The results of any operator, by the most precise implementation that accepts its operands.

    The operands of an operator with graphs inside are followed by the values that those use from outside; `remember`
    is told what is known of the values inside.
    """
    if has_bodies(op):
        return tuple(_run_bodies(op, operands, remember))
    for implementation in IMPLEMENTATIONS:
        if implementation.accepts(op, operands):
            return tuple(implementation.run(op, operands))
    raise AssertionError("the last implementation accepts everything")


def _all_known(op: Operation, operands: Sequence[MixedValue]) -> bool:
    """Constants and operators on arrays that give arrays; not those that draw at random, nor those with graphs."""
    known = all(value is None or isinstance(value, np.ndarray) for value in operands)
    tensors = all(isinstance(result.type, TensorType | UnrankedTensorType | NoneType) for result in op.results)
    return known and tensors and op.dialect_name() in MEANINGS and not op.regions and is_side_effect_free(op)


def _run_concrete(op: Operation, operands: Sequence[MixedValue]) -> Sequence[MixedValue]:
    if isinstance(op, Constant):
        large = prod(op.value.type.get_shape()) > LARGEST_CONCRETE
        return [op.value.type if large else op.value.to_numpy()]
    try:
        # types first: a few operands can ask for a result that does not fit in memory
        types = abstract_operator(op, operands)
    except DistirError:
        if not _are_small_numbers(operands):
            raise
        types = ()  # the evaluation takes more than the inference does: a scalar with a dim of 1, say
    if any(_is_large(type) for type in types):
        return types
    results = function_of(MEANINGS[op.dialect_name()].reference)(op, cast(Sequence[Array | None], operands))
    return [
        type_of(value) if isinstance(value, np.ndarray) and value.size > LARGEST_CONCRETE else value
        for value in results
    ]


def _are_small_numbers(operands: Sequence[MixedValue]) -> bool:
    numbers = [v for v in operands if isinstance(v, np.ndarray) and v.dtype.kind in "iuf"]
    return all(v.size == 0 or abs(float(v.max())) + abs(float(v.min())) <= LARGEST_CONCRETE for v in numbers)


def _is_large(type: MixedValue) -> bool:
    return (
        isinstance(type, TensorType)
        and is_static(type)
        and prod(cast(TensorType[Attribute], type).get_shape()) > LARGEST_CONCRETE
    )


def _gives_a_shape(op: Operation, operands: Sequence[MixedValue]) -> bool:
    return (
        isinstance(op, OnnxOperation)
        and op.schema.name in ("Shape", "Size")  # the two operators whose result is a function of the operand's type
        and isinstance(operands[0], TensorType)
        and is_static(operands[0])
    )


def _run_on_shape(op: Operation, operands: Sequence[MixedValue]) -> Sequence[MixedValue]:
    """The operator sees an array of the right shape that holds one element."""
    from distir.interpreters.onnx.reference import run_onnx

    shape = cast(TensorType[Attribute], operands[0]).get_shape()
    return run_onnx(op, [np.broadcast_to(np.zeros((), np.bool_), shape)])


def _run_bodies(
    op: Operation,
    operands: Sequence[MixedValue],
    remember: Callable[[Sequence[SSAValue], Sequence[MixedValue]], None] | None,
) -> Sequence[MixedValue]:
    from distir.interpreters.mixed_bodies import infer_with_bodies

    declared = [abstract(result.type) for result in op.results]
    holds = _declaration_holds(op, operands)
    try:
        inferred = infer_with_bodies(op, operands, remember)
    except DistirError:  # a branch that is never taken need not fit; then what was declared is what is known
        if not holds:
            raise
        return declared
    return [_refined(i, d) for i, d in zip(inferred, declared, strict=True)] if holds else inferred


def abstract_operator(op: Operation, operands: Sequence[MixedValue]) -> Sequence[MixedValue]:
    """The types of the results, by the type inference of the operator's meaning; of an operator that has none, those declared."""
    meaning = MEANINGS.get(op.dialect_name())
    if meaning is None and (own := single_operations("mixed")).has(op):
        return own.run(op, tuple(operands))
    if meaning is not None and meaning.types is not None:
        types = function_of(meaning.types)(op, [type_of(value) for value in operands if value is not None])
        return [None if isinstance(type_, NoneType) else type_ for type_ in types]
    declared = [abstract(result.type) for result in op.results]
    if isinstance(op, OnnxOperation) and not op.regions:
        from distir.interpreters.onnx.types import infer_types

        inferred = infer_types(op, operands)
        is_declared = _declaration_holds(op, operands)
        return [_refined(i, d) for i, d in zip(inferred, declared, strict=True)] if is_declared else inferred
    if not _declaration_holds(op, operands):
        raise DistirError(f"{op.name} has no type inference: it cannot have other operand types than those declared")
    return declared


def _declaration_holds(op: Operation, operands: Sequence[MixedValue]) -> bool:
    """Whether what is known of the operands is the declared types, perhaps with open dimensions bound."""
    return all(
        value is None or join(type_of(value), declared := abstract(operand.type)) == declared
        for operand, value in zip(values_read(op), operands, strict=False)
    )


def _refined(inferred: MixedValue, declared: MixedValue) -> MixedValue:
    """What both types say; they may each leave dimensions open."""
    if not isinstance(inferred, TensorType) or not isinstance(declared, TensorType):
        return declared if isinstance(inferred, UnrankedTensorType) else inferred
    one, two = cast(TensorType[Attribute], inferred), cast(TensorType[Attribute], declared)
    if one.get_num_dims() != two.get_num_dims():
        return inferred
    dims = [n if m == DYNAMIC_INDEX else m for m, n in zip(one.get_shape(), two.get_shape(), strict=True)]
    return TensorType(one.element_type, dims)


IMPLEMENTATIONS = (
    Implementation(_all_known, _run_concrete),
    Implementation(_gives_a_shape, _run_on_shape),
    Implementation(lambda op, operands: True, abstract_operator),
)


# What is still unknown.


def require_static(values: Mapping[SSAValue, MixedValue], function: func.FuncOp) -> None:
    """Raise on the first value of the function, graphs of operators included, with a dimension that is not known."""
    for op in function.body.walk():
        for i, result in enumerate(op.results):
            value = values.get(result, abstract(result.type))
            if not is_static(value):
                raise DistirError(f"{op.name} in @{function.sym_name.data}: {_unknown(value, i)}{_reason(op, values)}")


def _unknown(value: MixedValue, index: int) -> str:
    if not isinstance(value, TensorType):
        return f"result {index} has an unknown number of dimensions"
    shape = cast(TensorType[Attribute], value).get_shape()
    return f"dimension {shape.index(DYNAMIC_INDEX)} of result {index} is unknown"


def _reason(op: Operation, values: Mapping[SSAValue, MixedValue]) -> str:
    """The operands whose values would tell: not the first, which is the data, if there are others."""
    if has_bodies(op):
        return ": it depends on how its graphs run, which is not known here"
    names = [parameter.name for parameter in op.schema.inputs] if isinstance(op, OnnxOperation) else []
    unknown = [
        f"'{names[min(i, len(names) - 1)]}'" if names else f"operand {i}"
        for i, operand in enumerate(op.operands)
        if isinstance(values.get(operand), TensorType | UnrankedTensorType)
    ]
    if not unknown:
        return ""
    return f": it depends on the value of {', '.join(unknown[1:] or unknown)}, which is not known here"
