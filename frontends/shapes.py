"""Binds the dimensions that a model leaves open (`--shape x=8,128`). In go the declared dims of inputs and the given
shapes; out come the dims with both put together, for models and for programs already imported.

A dimension with a name (`batch`) is one unknown wherever the name appears, so binding it on one input binds it on all.
An imported program keeps the names of its open dimensions in the argument attribute `onnx.dim_params`
(`"0:batch,2:seq"`)."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias, cast

from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, DictionaryAttr, FunctionType, StringAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute
from xdsl.rewriter import Rewriter

from distir.dialects.errors import DistirError

Dim: TypeAlias = int | str | None
"""A size, the name of an open dimension, or an open dimension without a name."""


class OtherSize(DistirError):
    """A shape that is given says otherwise than the size that an input has: the program would have to be brought to it."""


MOST_NAMED = 8
"""Inputs that a message lists: parameters come last."""
DIM_PARAMS = "onnx.dim_params"
"""Names of open dimensions by position; a comma inside a name is `%2C`, a percent sign `%25`."""


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """`x=8,128` as ("x", (8, 128)); a scalar is `x=`."""
    name, equals, dims = text.rpartition("=")
    try:
        shape = tuple(int(dim) for dim in dims.split(",")) if dims.strip() else ()
    except ValueError:
        shape = (0,)
    if not name or not equals or any(dim < 1 for dim in shape):
        raise DistirError(f"shape '{text}': expected NAME=SIZE,SIZE,... with sizes of at least 1, as in x=8,128")
    return name, shape


def bind_dims(
    declared: Mapping[str, Sequence[Dim] | None], shapes: Mapping[str, Sequence[int]]
) -> dict[str, list[Dim] | None]:
    """The declared dims of each input with the given shapes put in, named dimensions everywhere at once."""
    sizes: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in declared:
            more = f" and {len(declared) - MOST_NAMED} more" if len(declared) > MOST_NAMED else ""
            named = ", ".join([*declared][:MOST_NAMED])
            raise DistirError(f"no input '{name}' to give a shape; the inputs are {named}{more}")
        dims = declared[name]
        if dims is None:
            continue
        if len(dims) != len(shape):
            raise DistirError(
                f"input '{name}' has {len(dims)} dimensions, but the given shape {list(shape)} has {len(shape)}"
            )
        for i, (dim, size) in enumerate(zip(dims, shape, strict=True)):
            if isinstance(dim, int) and dim != size:
                raise OtherSize(f"input '{name}' has size {dim} in dimension {i}, but the given shape says {size}")
            if isinstance(dim, str) and sizes.setdefault(dim, size) != size:
                raise DistirError(
                    f"input '{name}': dimension '{dim}' (dim {i}) is given size {size}, but elsewhere {sizes[dim]}"
                )
    bound: dict[str, list[Dim] | None] = {}
    for name, dims in declared.items():
        if name in shapes:
            bound[name] = list(shapes[name])
        else:
            bound[name] = None if dims is None else [sizes.get(d, d) if isinstance(d, str) else d for d in dims]
    return bound


def dim_params(dims: Sequence[Dim]) -> str:
    """The names of open dimensions as `onnx.dim_params` has them."""
    named = [(i, dim.replace("%", "%25").replace(",", "%2C")) for i, dim in enumerate(dims) if isinstance(dim, str)]
    return ",".join(f"{i}:{name}" for i, name in named)


def _attributes(function: FuncOp, index: int) -> dict[str, Attribute]:
    return {} if function.arg_attrs is None else dict(function.arg_attrs.data[index].data)


def argument_name(function: FuncOp, index: int) -> str:
    """The `dist.name` of an argument, or its position."""
    name = _attributes(function, index).get("dist.name")
    return name.data if isinstance(name, StringAttr) else f"arg{index}"


def argument_dims(function: FuncOp, index: int) -> list[Dim] | None:
    """The dims of an argument of an imported program; None when it is not a ranked tensor."""
    type = function.args[index].type
    if not isinstance(type, TensorType):
        return None
    names: dict[str, str] = {}
    params = _attributes(function, index).get(DIM_PARAMS)
    if isinstance(params, StringAttr) and params.data:
        for pair in params.data.split(","):
            position, _, name = pair.partition(":")
            names[position] = name.replace("%2C", ",").replace("%25", "%")
    shape = cast(TensorType[Attribute], type).get_shape()
    return [names.get(str(i)) if dim == DYNAMIC_INDEX else dim for i, dim in enumerate(shape)]


def bind_arguments(function: FuncOp, shapes: Mapping[str, Sequence[int]]) -> None:
    """Put shapes into the argument types of an imported program; types inside the body are the caller's to infer."""
    names = [argument_name(function, i) for i in range(len(function.args))]
    declared = {name: argument_dims(function, i) for i, name in enumerate(names)}
    bound = bind_dims(declared, shapes)
    attributes: list[DictionaryAttr] = []
    for i, (name, argument) in enumerate(zip(names, function.args, strict=True)):
        entries = _attributes(function, i)
        dims = bound[name]
        if dims is not None:
            type = cast(TensorType[Attribute], argument.type)
            shape = [dim if isinstance(dim, int) else DYNAMIC_INDEX for dim in dims]
            Rewriter.replace_value_with_new_type(argument, TensorType(type.element_type, shape, type.encoding))
            entries.pop(DIM_PARAMS, None)
            if open_dims := dim_params(dims):
                entries[DIM_PARAMS] = StringAttr(open_dims)
        attributes.append(DictionaryAttr(entries))
    function.arg_attrs = ArrayAttr(attributes)
    function.function_type = FunctionType.from_lists(
        [argument.type for argument in function.args], list(function.function_type.outputs)
    )


def require_static_arguments(function: FuncOp) -> None:
    """Raise on the first argument with an open dimension, saying how to bind it."""
    for i in range(len(function.args)):
        for position, dim in enumerate(argument_dims(function, i) or ()):
            if not isinstance(dim, int):
                name = argument_name(function, i)
                which = f"'{dim}' (dim {position})" if dim else f"{position}"
                raise DistirError(f"input '{name}' has unbound dimension {which}: give --shape {name}=...")
