"""Draws arrays to run a program on. In go a module and a seed; out come global arrays for arguments without given
values, valid for the program's operators.

Floating values are drawn so that every one of them matters in the outputs: were parameters as small as at the start
of a training, a wrong gradient in a deep network would be too small to see. Integers that index a tensor must lie
inside its dim; the indexed tensors are found by running, not from a list of operators (`index_limit`). It takes
running on indices out of range, which kernels may not check: operators are tried in a fork of the process.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any, cast
from zlib import crc32

import ml_dtypes
import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import DYNAMIC_INDEX, IntegerAttr, ModuleOp, TensorType, TupleType, i1
from xdsl.interpreter import PythonValues
from xdsl.ir import Attribute, Operation, SSAValue

from distir.dialects.dist import BroadcastOp, CallOp, MoveOp, PackOp, SendOp, UnpackOp
from distir.dialects.errors import DistirError
from distir.dialects.onnx import numpy_dtype
from distir.interpreters.entry import Port, arguments_of, entry_function
from distir.interpreters.global_arrays import Array
from distir.interpreters.isolation import NoAnswer, answers
from distir.interpreters.operator_dialects import MEANINGS, function_of
from distir.interpreters.reference import run_operator
from distir.interpreters.reference_dist import CallFunctions, CommunicationFunctions, LocalFunctions
from distir.interpreters.walk import Walk, values_read
from distir.interpreters.work import CONSTANTS

PASS_ON = (BroadcastOp, CallOp, MoveOp, PackOp, SendOp, UnpackOp, func.CallOp)
"""What moves values without looking at them."""

STEPS = 4
"""Steps that an optimizer has taken, at most."""

EDGES = 4
"""Integer inputs of more elements than that have the first and the last valid index among them."""

SMALL = 0.1
"""What small inputs and parameters are times the usual ones."""

UNUSED_LIMIT = 2
"""Integers that index nothing are 0 or 1: masks, flags, seeds."""


def draw_inputs(
    module: ModuleOp, seed: int, entry: str = "main", names: Collection[str] | None = None
) -> dict[str, Array]:
    """Global arrays for the arguments of the entry of these names; by default, those without a value in the module's
    weights.

    Each depends on the seed and its name only, so a sequential and a distributed program get the same. Inputs and
    labels are normal; parameters and buffers too, scaled to keep the size of what they multiply, or uniform in
    [0.5, 1.5) with at most one dimension (they scale, shift, or are variances), as are scalars and state; a state of one
    element counts steps and is a whole number of 1 to 4. Integers are uniform in their valid range, at its ends too;
    those of role `seed` count from 0. Raises DistirError for an argument that cannot be drawn.
    """
    from distir.interpreters.weights import weights_of

    ports = {port.name: port for port in reversed(arguments_of(entry_function(module, entry)))}
    if names is None:
        names = [name for name in ports if name not in weights_of(module)]
    drawn: dict[str, Array] = {}
    for name in names:
        port = ports[name]
        dtype = _dtype(port)
        limit = index_limit(module, name, entry) if _is_integer(dtype) else None
        drawn[name] = _draw(port, dtype, limit or UNUSED_LIMIT, np.random.default_rng([seed, crc32(name.encode())]))
    return drawn


def _dtype(port: Port) -> np.dtype[Any]:
    if not isinstance(port.type, TensorType):
        raise DistirError(f"input {port.name} is a {port.type}, which cannot be drawn: give its value")
    dtype = numpy_dtype(cast(TensorType[Any], port.type).element_type)
    if dtype.kind == "O":
        raise DistirError(f"input {port.name} is a tensor of strings, which cannot be drawn: give its value")
    if DYNAMIC_INDEX in global_shape(port):
        raise DistirError(f"input {port.name} has unbound dimensions ({port.type}): bind its shape first")
    return dtype


def global_shape(port: Port) -> Sequence[int]:
    """The shape of the global array that a tensor argument or result is, or is a part of."""
    return port.part.global_shape if port.part is not None else cast(TensorType[Any], port.type).get_shape()


def _is_integer(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "iu" or (dtype.kind == "V" and "int" in dtype.name)


def _draw(port: Port, dtype: np.dtype[Any], limit: int, generator: np.random.Generator) -> Array:
    shape = global_shape(port)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(np.bool_)
    if port.role == "seed" and _is_integer(dtype):
        return np.arange(prod(shape)).reshape(shape).astype(dtype)
    if port.role == "state" and (_is_integer(dtype) or prod(shape) == 1):
        return np.asarray(generator.integers(1, 1 + STEPS, shape)).astype(dtype)
    if _is_integer(dtype):
        values = generator.integers(0, limit, shape)
        if values.size > EDGES:
            places = generator.choice(values.size, 2, replace=False)
            values.reshape(-1)[places] = 0, limit - 1
        return np.asarray(values).astype(dtype)
    if port.role == "state" or not shape or (len(shape) == 1 and port.role in ("parameter", "buffer")):
        return np.asarray(generator.random(shape) + 0.5).astype(dtype)
    values = generator.standard_normal(shape, np.float64 if dtype == np.float64 else np.float32)
    if port.role in ("parameter", "buffer"):
        rows, columns, *rest = shape
        values /= np.sqrt(max(1.0, np.sqrt(rows * columns) * prod(rest)))
    return values.astype(dtype, copy=False)


def between_zero_and_one(module: ModuleOp, values: Mapping[str, Array]) -> dict[str, Array]:
    """The values, with floating inputs and labels brought into (0, 1): some programs take probabilities, or logarithms of them."""
    floating = {n: v for n, v in _floating(module, values, "input", "label").items() if v.dtype.kind != "c"}
    return {**values, **{n: _as(v, 0.5 + 0.5 * np.tanh(v.astype(np.float64))) for n, v in floating.items()}}


def small(module: ModuleOp, values: Mapping[str, Array]) -> dict[str, Array]:
    """The values, with floating inputs, labels and parameters that are small, and so are gradients: less than what clips them."""
    floating = _floating(module, values, "input", "label", "parameter")
    return {**values, **{n: _as(v, v * v.dtype.type(SMALL)) for n, v in floating.items()}}


def _floating(module: ModuleOp, values: Mapping[str, Array], *roles: str) -> dict[str, Array]:
    """Those of the arguments of these roles that are no integers and no truths."""
    of_role = {port.name for port in arguments_of(entry_function(module)) if port.role in roles}
    return {n: v for n, v in values.items() if n in of_role and v.dtype.kind != "b" and not _is_integer(v.dtype)}


def _as(value: Array, other: Array) -> Array:
    return np.asarray(other).astype(value.dtype)


# Which integers are valid.


def index_limit(module: ModuleOp, name: str, entry: str = "main") -> int | None:
    """The largest n for which the program can index with every integer of [0, n) in the input of this name; None if
    it does not index with it.

    The input is followed, filled with one number, through everything that is computed from it and from constants (a
    reshape, a cast, an added offset). Wherever it meets an operand that it is not computed with, such as a table of
    embeddings, the operation is tried: if it works on n - 1 everywhere and raises on n, with n an extent of the table,
    then n is the limit there. One that ends its process does not check its indices, and tells no limit.
    """
    return _limit(module, entry, name, Tried())


def _limit(module: ModuleOp, entry: str, name: str, tried: Tried) -> int | None:
    met = _followed(module, entry, name, 0, tried).met
    if not met:
        return None
    limit = max(1, min(extent - largest for largest, extent in met))
    while limit > 1 and any(n >= extent for n, extent in _followed(module, entry, name, limit - 1, tried).met):
        limit //= 2  # what is indexed with grows faster than the input
    return limit


def special_indices(module: ModuleOp, name: str, entry: str = "main") -> list[int]:
    """Numbers that are no positions and that the program takes in this input all the same: a label that a loss ignores, an
    index that counts from the end. They are looked for among the numbers in the operations that the input meets, and
    tried: all that index with it must run on them, whether other integers (lengths, flags) are 0 or 1."""
    tried = Tried()
    if (limit := _limit(module, entry, name, tried)) is None:
        return []
    told = _followed(module, entry, name, 0, tried).told
    outside = [number for number in sorted(told) if not 0 <= number < limit]
    walks = {n: [_followed(module, entry, name, n, tried, others) for others in (0, 1)] for n in outside}
    return [n for n, pair in walks.items() if any(w.met for w in pair) and not any(w.refused for w in pair)]


def _followed(module: ModuleOp, entry: str, name: str, number: int, tried: Tried, others: int = 0) -> IndexWalk:
    """What meets the input when it is `number` everywhere, and other integer inputs are `others`."""
    walk = IndexWalk(module, tried=tried)
    walk.register([CommunicationFunctions(), LocalFunctions(), CallFunctions()])
    ports = arguments_of(entry_function(module, entry))
    tables = integer_tables(module, ports)
    arguments = [
        Traced(tables[port.name], False)
        if port.name in tables
        else _argument(port, number if port.name == name else others, port.name == name)
        for port in ports
    ]
    walk.call(entry, tuple(arguments))
    return walk


def integer_tables(module: ModuleOp, ports: Iterable[Port]) -> dict[str, Array]:
    """The model's own values of buffers of integers: offsets and tables of positions, which are what they are in every run."""
    from distir.interpreters.weights import weights_of

    names = [p.name for p in ports if p.role == "buffer" and isinstance(p.type, TensorType) and _is_integer(_dtype(p))]
    if not names:
        return {}
    own = weights_of(module)
    return {name: np.asarray(own[name]) for name in names if name in own}


@dataclass
class Tried:
    """What trying operations told, for all walks through a program."""

    extents: dict[tuple[Operation, int], int | None] = field(default_factory=dict[tuple[Operation, int], int | None])
    """The extent that an operand of an operation indexes, or None."""
    unchecked: set[Operation] = field(default_factory=set[Operation])
    """Operations that ended their process on some index."""


@dataclass(frozen=True)
class Traced:
    """A value of the walk."""

    array: Array | None
    """None is an absent operand."""
    followed: bool
    """Whether it is computed from the input."""


UNKNOWN = object()
"""A value that does not depend on constants and integer inputs alone."""


def _unknown(type_: Attribute) -> object:
    return tuple([UNKNOWN] * len(type_.types.data)) if isinstance(type_, TupleType) else UNKNOWN


def _argument(port: Port, number: int, is_followed: bool) -> object:
    if not isinstance(port.type, TensorType):
        return _unknown(port.type)
    type_ = cast(TensorType[Any], port.type)
    dtype = numpy_dtype(type_.element_type)
    if not _is_integer(dtype) or not type_.has_static_shape():
        return UNKNOWN
    return Traced(np.full(type_.get_shape(), number, dtype), is_followed)


@dataclass
class IndexWalk(Walk):
    """Computes what it can from constants and integer inputs, and tries operations that index with those."""

    tried: Tried = field(default_factory=Tried)
    met: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """The largest value and the extent, wherever something computed from the input indexes."""
    told: set[int] = field(default_factory=set[int])
    """Whole numbers that the operations which meet the input have beside it."""
    refused: bool = False
    """Whether an operation that indexes did not take the input."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.default = run_operator

    def run(self, op: Operation, operands: PythonValues) -> PythonValues:
        if isinstance(op, PASS_ON):
            return super().run(op, operands)
        followed = [i for i, value in enumerate(operands) if isinstance(value, Traced) and value.followed]
        for i in followed:
            self._meet(op, i, operands)
        if followed:
            self.told |= _numbers(op, operands)
        if op in self.tried.unchecked or not all(isinstance(value, Traced) for value in operands):
            return tuple([_unknown(type_) for type_ in op.result_types])
        try:
            results = super().run(op, tuple(value.array for value in operands))
        except DistirError:
            return tuple([_unknown(type_) for type_ in op.result_types])
        depends = bool(followed) and type(op) not in CONSTANTS  # a shape does not depend on the values
        return tuple(Traced(result, depends) for result in results)

    def _meet(self, op: Operation, position: int, operands: PythonValues) -> None:
        array = cast(Traced, operands[position]).array
        if array is None or not array.size or not _is_integer(array.dtype):
            return
        extents = self.tried.extents
        if (op, position) not in extents:
            extents[op, position] = self._indexed_extent(op, position, operands)
        largest = int(array.max())
        if (extent := extents[op, position]) is not None:
            self.met.append((largest, extent))
            inside = 0 <= int(array.min()) and largest < extent
            self.refused |= not inside and [*_tries(op, [_operands(op, operands)])] != [True]
        elif op in self.tried.unchecked:
            least = min(_extents(_operands(op, operands), position), default=1)
            self.refused |= not (0 <= int(array.min()) and largest < least)

    def _indexed_extent(self, op: Operation, position: int, operands: PythonValues) -> int | None:
        arrays = _operands(op, operands)
        indices = cast(Array, arrays[position])
        if any(array is None and value is UNKNOWN for array, value in zip(arrays, operands, strict=True)):
            return None
        largest = int(ml_dtypes.iinfo(indices.dtype).max)  # int8 has no index beyond 128 rows
        extents = [extent for extent in _extents(arrays, position) if extent <= largest]
        filled = [np.full(indices.shape, n, indices.dtype) for extent in extents for n in (extent - 1, extent)]
        tries = [[*arrays[:position], each, *arrays[position + 1 :]] for each in filled]
        with closing(_tries(op, tries)) as found:
            for extent, last, beyond in zip(extents, found, found, strict=False):
                if last is None or beyond is None:
                    self.tried.unchecked.add(op)
                    return None
                if last and not beyond:
                    return extent
        return None


def _extents(arrays: Sequence[Array | None], position: int) -> list[int]:
    """Of all arrays but the one at this position, from the least on."""
    return sorted({n for i, array in enumerate(arrays) if i != position and array is not None for n in array.shape})


def _numbers(op: Operation, operands: PythonValues) -> set[int]:
    """Whole numbers among the attributes of an operation and its constant operands of one element."""
    attributes = (*op.properties.values(), *op.attributes.values())
    found = {a.value.data for a in cast(Any, attributes) if isinstance(a, IntegerAttr) and a.type != i1}
    for value in operands:
        if isinstance(value, Traced) and not value.followed and value.array is not None and value.array.size == 1:
            number = value.array.reshape(-1)[0]
            if _is_integer(value.array.dtype):
                found.add(int(number))
    return found


def _operands(op: Operation, operands: PythonValues) -> list[Array | None]:
    """The operands, or what stands in for them."""
    return [_stand_in(value, operand) for value, operand in zip(operands, values_read(op), strict=True)]


def _tries(op: Operation, tries: Sequence[Sequence[Array | None]]) -> Generator[bool | None]:
    """Whether the operation works on each of these operands; None where it ends its process, or does not end."""
    questions = [partial(_works, op, operands) for operands in tries]
    if op.dialect_name() not in MEANINGS or not (hasattr(os, "fork") and MEANINGS[op.dialect_name()].is_forkable):
        yield from (question() == WORKS for question in questions)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a library that has threads, and is not asked in the fork
        for found in answers(questions):
            yield None if isinstance(found, NoAnswer) else found == WORKS


WORKS, RAISES = "works", "raises"


def _works(op: Operation, operands: Sequence[Array | None]) -> str:
    meaning = MEANINGS.get(op.dialect_name())
    try:
        if meaning is None or meaning.checked is None or meaning.is_forkable:
            run_operator(op, operands)
        else:
            function_of(meaning.checked)(op, operands)
    except Exception:  # an implementation may raise anything, and that it does is the answer
        return RAISES
    return WORKS


def _stand_in(value: object, operand: SSAValue[Attribute]) -> Array | None:
    """The value, or zeros of its type; None if there is no static type to go by."""
    if isinstance(value, Traced):
        return value.array
    if not isinstance(operand.type, TensorType):
        return None
    type_ = cast(TensorType[Any], operand.type)
    return np.zeros(type_.get_shape(), numpy_dtype(type_.element_type)) if type_.has_static_shape() else None
