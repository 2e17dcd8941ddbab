"""Properties of `aten` operations as Python has them. An attribute goes in; a number, a text or a list comes out, without torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, FloatAttr, IntegerAttr, IntegerType, StringAttr, UnitAttr
from xdsl.ir import Attribute


def python_value(attribute: Attribute, of_type: Callable[[Attribute], Any]) -> Any:
    """A property as torch takes it; `of_type` says what an element type is there."""
    match attribute:
        case IntegerAttr():
            number = cast(IntegerAttr[Any], attribute)
            return bool(number.value.data) if number.type == IntegerType(1) else number.value.data
        case FloatAttr():
            return cast(FloatAttr[Any], attribute).value.data
        case StringAttr(data=text):
            return text
        case DenseArrayBase():
            return list(cast(DenseArrayBase[Any], attribute).get_values())
        case ArrayAttr():
            return [python_value(item, of_type) for item in attribute.data]
        case UnitAttr():
            return None
        case _:
            return of_type(attribute)
