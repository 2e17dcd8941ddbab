"""What discovery asks of the interpreters. In go an op and arrays; out come its results. In go types and known
values; out come its result types.

Both are interpreters of the IR, so an operator of any dialect that they know has its rule discovered."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from distir.dialects.onnx import numpy_dtype
from distir.interpreters.exact.arrays import with_scalars
from distir.interpreters.exact.residues import EXACT

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Abstract: TypeAlias = TensorType[Any] | Array | None
"""An operand of type inference: only its type is known, its value is known, or it is absent."""


class NotKnown(Exception):
    """What an op gives is not known, or is no tensor: it does not reject its operands."""


class Domains(Protocol):
    """Two views of one op. Both raise any exception for what the op rejects."""

    states_numbers: bool
    """Whether every number that an op computes with is one that it states: those in a callable's code are not."""

    def is_forked(self, op: Operation) -> bool:
        """Whether a fork of this process asks the op, which may crash it or hang."""
        ...

    def evaluate(self, op: Operation, operands: Sequence[Array | None]) -> list[Array | None]:
        """The results on these arrays, whatever the operand types of `op` say; floats may be exact scalars, of the type `EXACT`, and
        their results so too, or object arrays of them."""
        ...

    def infer(self, op: Operation, operands: Sequence[Abstract]) -> list[TensorType[Any] | None]:
        """The result types; a dim that cannot be known is dynamic. An absent result is None. Raises NotKnown where even that is not known."""
        ...

    def kept(self, op: Operation, operands: Sequence[Array | None]) -> dict[int, Array]:
        """Operands that are integers which another operator gave on these other operands, with those integers: others
        would be no operands of this one."""
        ...

    def checking(self, op: Operation) -> Domains | None:
        """The views by which an operator that crashes is asked again; None if there are none."""
        ...


class InterpreterDomains:
    """The reference executor's operators and the mixed domain's types."""

    states_numbers = True

    def __init__(self, checks_indices: bool = False):
        self._checks_indices = checks_indices
        """Whether no kernel is given an index out of range."""

    def is_forked(self, op: Operation) -> bool:
        from distir.interpreters.operator_dialects import MEANINGS

        meaning = MEANINGS.get(op.dialect_name())
        return hasattr(os, "fork") and (meaning is None or meaning.is_forkable)

    def evaluate(self, op: Operation, operands: Sequence[Array | None]) -> list[Array | None]:
        from distir.interpreters.operator_dialects import MEANINGS, function_of
        from distir.interpreters.reference import run_operator

        meaning = MEANINGS.get(op.dialect_name())
        if any(isinstance(array, np.ndarray) and array.dtype == EXACT for array in operands):
            if self._checks_indices and meaning is not None and meaning.checked is not None:
                function_of(meaning.checked)(op, [_in_floats(a, v) for a, v in zip(operands, op.operands, strict=True)])
            if meaning is not None and meaning.exact is not None:
                return list(function_of(meaning.exact)(op, operands))
            operands = with_scalars(operands)
        if meaning is not None and meaning.checked is not None and (self._checks_indices or not meaning.is_forkable):
            return list(function_of(meaning.checked)(op, operands))
        return list(run_operator(op, operands))

    def infer(self, op: Operation, operands: Sequence[Abstract]) -> list[TensorType[Any] | None]:
        from distir.interpreters.mixed import mixed_operator, type_of

        results = mixed_operator(op, operands)
        types = [None if result is None else type_of(result) for result in results]
        for type_ in types:
            if type_ is not None and not isinstance(type_, TensorType):
                raise NotKnown(f"a result of type {type_}")
        return cast(list[TensorType[Any] | None], types)

    def kept(self, op: Operation, operands: Sequence[Array | None]) -> dict[int, Array]:
        from distir.interpreters.operator_dialects import MEANINGS, function_of

        meaning = MEANINGS.get(op.dialect_name())
        return {} if meaning is None or meaning.kept is None else function_of(meaning.kept)(op, operands)

    def checking(self, op: Operation) -> InterpreterDomains | None:
        """These, of an operator that crashes: it is not given indices out of range, if what it is made of says which are."""
        from distir.interpreters.operator_dialects import MEANINGS

        meaning = MEANINGS.get(op.dialect_name())
        return None if meaning is None or meaning.checked is None else InterpreterDomains(checks_indices=True)


def _in_floats(array: Array | None, operand: SSAValue) -> Array | None:
    """Ones in place of exact scalars; others as they are."""
    if not isinstance(array, np.ndarray) or array.dtype != EXACT:
        return array
    return np.ones(array.shape, numpy_dtype(cast(TensorType[Any], operand.type).element_type))
