"""Finds rounding inside of programs, which a comparison in one type does not see. In go two programs; out come the
operators that the second computes in a type with fewer digits, or a smaller range, than all types of the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from xdsl.dialects.builtin import AnyFloat, ModuleOp, TensorType
from xdsl.ir import Operation, SSAValue

from distir.dialects.dist import CastOp
from distir.interpreters.comparison import Comparison

_BITS = {"f64": (52, 11), "f32": (23, 8), "f16": (10, 5), "bf16": (7, 8)}
"""Of the fraction, and of the exponent (IEEE 754; bfloat16 has the exponent of f32)."""

_PLACING = ("dist", "rank", "func", "builtin")
"""Dialects that move values and add them up in the types that they have."""


def rounded_more(first: ModuleOp, second: ModuleOp | Sequence[ModuleOp]) -> list[Comparison]:
    """One comparison, which does not hold, for each such operator."""
    known = {type_ for types in _types_of([first]).values() for type_ in types}
    found: list[Comparison] = []
    for name, types in _types_of([second] if isinstance(second, ModuleOp) else second).items():
        for type_ in sorted(types):
            if known and not any(_has_all_of(type_, other) for other in known):
                says = f"computes in {type_}, the first program in {' and '.join(sorted(known))}"
                found.append(Comparison(name, False, says))
    return found


def rounded_on_purpose(program: ModuleOp | Sequence[ModuleOp]) -> list[Comparison]:
    """One comparison, which holds, for each type to which a program casts values of more digits or range (`gradient-type`)."""
    modules = [program] if isinstance(program, ModuleOp) else program
    casts = [op for module in modules for op in module.walk() if isinstance(op, CastOp)]
    pairs = sorted({(_element(op.input), _element(op.output)) for op in casts})
    return [
        Comparison(
            CastOp.name, True, f"rounds {own} to {there}, which computing all in one type does not show", tested=False
        )
        for own, there in pairs
        if not _has_all_of(there, own)
    ]


def _element(value: SSAValue) -> str:
    return str(cast("TensorType[Any]", value.type).element_type)


def _types_of(modules: Sequence[ModuleOp]) -> dict[str, set[str]]:
    """The floating types of each operator's results, by its name."""
    found: dict[str, set[str]] = {}
    for op in (op for module in modules for op in module.walk() if op.dialect_name() not in _PLACING):
        found.setdefault(op.name, set()).update(_floats(op))
    return found


def _floats(op: Operation) -> set[str]:
    elements = (cast(TensorType[Any], type_).element_type for type_ in op.result_types if isinstance(type_, TensorType))
    return {str(element) for element in elements if isinstance(element, AnyFloat) and str(element) in _BITS}


def _has_all_of(type_: str, other: str) -> bool:
    """Whether a type has the digits and the range of another."""
    return all(mine >= its for mine, its in zip(_BITS[type_], _BITS[other], strict=True))
