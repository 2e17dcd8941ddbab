"""The parameters of JAX primitives, in one encoding for all primitives. In goes a Python value; out comes an
attribute, and back.

| Python | attribute |
|---|---|
| None | `unit` |
| bool, int, float, str | `true`, `3 : i64`, `1.0 : f64`, `"same"` |
| a dtype | a type, `f32` |
| tuple, list | an array |
| a numpy or JAX array or scalar | `#onnx.tensor`, exact |
| an enumeration, a named tuple or a dataclass of `jax.lax`, a space of `jax.memory` | `{class = "GatherScatterMode", value = "CLIP"}` |
| a primitive | `{class = "Primitive", value = "ge"}` |
| a sharding over a mesh of no axes, which says nothing | `unit` |

Decoding builds nothing but these: a class is looked up among those of `jax.lax` that hold data, a primitive by name. Anything else
(other shardings, callables) is refused by name.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from functools import cache
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    TensorType,
    UnitAttr,
)
from xdsl.ir import Attribute

from distir.dialects.errors import DistirError
from distir.dialects.jax.library import library
from distir.dialects.onnx.tensors import TensorAttr, numpy_dtype
from distir.dialects.onnx.types import ELEMENT_OF_NUMPY_NAME, ELEMENT_OF_TYPE

_CLASS, _VALUE, _PRIMITIVE = "class", "value", "Primitive"


@cache
def primitives() -> Mapping[str, Any]:
    """JAX's primitives by name."""
    core, others = library("jax.extend.core"), library("jax.extend.core.primitives")
    known = [*vars(library("jax.lax")).values(), *vars(others).values()]
    return {primitive.name: primitive for primitive in known if isinstance(primitive, core.Primitive)}


@cache
def _classes() -> Mapping[str, type]:
    """The classes of `jax.lax` that hold data, and the spaces of memory."""
    space = library().memory.Space
    return {space.__name__: space} | {
        name: item
        for name, item in vars(library("jax.lax")).items()
        if isinstance(item, type)
        and (issubclass(item, enum.Enum) or hasattr(item, "_fields") or dataclasses.is_dataclass(item))
    }


def element_type(dtype: Any, what: str) -> Attribute:
    """The element type of a JAX dtype; DistirError for key arrays and others that no tensor holds."""
    name = getattr(dtype, "name", str(dtype))
    if (element := ELEMENT_OF_NUMPY_NAME.get(name)) is None or name == "object":
        hint = ": make keys with jax.random.PRNGKey, and random numbers outside the step" if "key<" in name else ""
        raise DistirError(f"{what} has elements of type {name}, which no tensor holds{hint}")
    return element.type


def tensor_type(aval: Any, what: str) -> TensorType[Attribute]:
    """The tensor type of an abstract value; DistirError for what is no array of fixed shape."""
    if not hasattr(aval, "shape") or not all(isinstance(dim, int) for dim in aval.shape):
        raise DistirError(f"{what} is a {type(aval).__name__} without a fixed shape, which no tensor holds")
    return TensorType(element_type(aval.dtype, what), aval.shape)


def encode(value: Any, what: str) -> Attribute:
    """A parameter as an attribute; DistirError, naming `what`, for one that has no such form."""
    match value:
        case None:
            return UnitAttr()
        case enum.Enum() if type(value).__name__ in _classes():
            return DictionaryAttr({_CLASS: StringAttr(type(value).__name__), _VALUE: StringAttr(value.name)})
        case bool() | np.bool_():
            return IntegerAttr(int(value), 1)
        case int():
            return IntegerAttr(value, 64)
        case float():
            return FloatAttr(value, 64)
        case str():
            return StringAttr(value)
        case tuple() | list() if not hasattr(value, "_fields"):
            items = cast("tuple[Any, ...]", tuple(value))
            return ArrayAttr([encode(item, what) for item in items])
        case _:
            return _encode_object(value, what)


def _encode_object(value: Any, what: str) -> Attribute:
    name = type(value).__name__
    if _classes().get(name) is type(value):
        fields = value._fields if hasattr(value, "_fields") else [field.name for field in dataclasses.fields(value)]
        members = {field: encode(getattr(value, field), what) for field in fields}
        return DictionaryAttr({_CLASS: StringAttr(name), _VALUE: DictionaryAttr(members)})
    if primitives().get(getattr(value, "name", "")) is value:
        return DictionaryAttr({_CLASS: StringAttr(_PRIMITIVE), _VALUE: StringAttr(value.name)})
    if isinstance(value, library("jax.sharding").NamedSharding) and value.mesh.empty:
        return UnitAttr()
    if isinstance(value, np.integer):
        return IntegerAttr(int(value), 64)
    if isinstance(value, np.generic | np.ndarray) or hasattr(value, "__array__"):
        return TensorAttr.from_numpy(np.asarray(value))
    if isinstance(value, np.dtype) or (isinstance(value, type) and hasattr(value, "dtype")):
        return element_type(np.dtype(value), what)
    raise DistirError(f"{what} is a {name}, which a program cannot hold: remove it from the function")


def decode(attribute: Attribute) -> Any:
    """The parameter that an attribute stands for; DistirError for an attribute that stands for none."""
    match attribute:
        case UnitAttr():
            return None
        case IntegerAttr():
            number = attribute.value.data
            return bool(number) if attribute.type == IntegerType(1) else number
        case FloatAttr():
            return attribute.value.data
        case StringAttr():
            return attribute.data
        case TensorAttr():
            array = attribute.to_numpy()
            return array if array.ndim else array[()]
        case ArrayAttr():
            return tuple(decode(item) for item in attribute.data)
        case DictionaryAttr():
            return _decode_object(attribute)
        case _ if attribute in ELEMENT_OF_TYPE:
            return numpy_dtype(attribute)
        case _:
            raise DistirError(f"no parameter of a JAX primitive is written as {attribute}")


def _decode_object(attribute: DictionaryAttr) -> Any:
    name, value = attribute.data.get(_CLASS), attribute.data.get(_VALUE)
    if name == StringAttr(_PRIMITIVE) and isinstance(value, StringAttr) and value.data in primitives():
        return primitives()[value.data]
    known = _classes().get(name.data) if isinstance(name, StringAttr) else None
    try:
        if known is not None and issubclass(known, enum.Enum) and isinstance(value, StringAttr):
            return known[value.data]
        if known is not None and not issubclass(known, enum.Enum) and isinstance(value, DictionaryAttr):
            return known(**{field: decode(item) for field, item in value.data.items()})
    except (KeyError, TypeError, ValueError) as error:
        raise DistirError(f"{attribute} is no value of jax.lax.{name}: {error}") from error
    raise DistirError(f"expected a value of a class of jax.lax, got {attribute}")
