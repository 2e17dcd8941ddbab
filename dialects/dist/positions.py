"""Local operations for operators that depend on positions. In go indices of all positions; out come indices of a
shard's range of rows, or values that are right in that range.

Lifecycle: `apply-sharding` creates them around an operator whose rule has an `offset` (a lookup in a table of which each
device has some rows); projection keeps them, without placement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import I64, DenseArrayBase, IntegerAttr, TensorType, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, opt_prop_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from distir.dialects.dist.checks import tensor_type, verify_same_types
from distir.dialects.dist.local import LocalOp


def _integers(**values: int) -> dict[str, IntegerAttr[I64]]:
    return {name: IntegerAttr(value, i64) for name, value in values.items()}


class PositionOp(LocalOp):
    """Base: of `extent` positions, the shard has those in `[start, stop)`. A negative index counts from the end."""

    start = prop_def(IntegerAttr[I64])
    stop = prop_def(IntegerAttr[I64])
    extent = prop_def(IntegerAttr[I64])

    @property
    def range(self) -> tuple[int, int, int]:
        """start, stop and extent."""
        return self.start.value.data, self.stop.value.data, self.extent.value.data

    def at(self, start: int, stop: int, extent: int) -> Mapping[str, Attribute]:
        """The properties that say this range."""
        return _integers(start=start, stop=stop, extent=extent)

    def verify_shapes(self) -> None:
        start, stop, extent = self.range
        if not 0 <= start < stop <= extent:
            raise VerifyException(f"expected 0 <= start < stop <= extent, got {start}, {stop} and {extent}")


@irdl_op_definition
class LocalIndexOp(PositionOp):
    """Indices of all positions as indices of the shard's; what lies outside becomes the nearest that is inside, which `dist.inside`
    undoes. With `ignored`, an index that the operator ignores, it becomes that, negative indices too: they are no positions."""

    name = "dist.local_index"
    indices = operand_def(TensorType)
    ignored = opt_prop_def(IntegerAttr[I64])
    output = result_def(TensorType)

    def __init__(self, indices: SSAValue, start: int, stop: int, extent: int, ignored: int | None = None):
        properties = _integers(start=start, stop=stop, extent=extent)
        if ignored is not None:
            properties |= _integers(ignored=ignored)
        super().__init__(operands=[indices], result_types=[indices.type], properties=properties)

    def verify_shapes(self) -> None:
        super().verify_shapes()
        verify_same_types([self.indices, self.output], "value")
        if self.ignored is not None and 0 <= self.ignored.value.data < self.range[2]:
            raise VerifyException(f"expected an ignored index that is no position, got {self.ignored.value.data}")


@irdl_op_definition
class InsideOp(PositionOp):
    """A value where the index is of the shard, and zero elsewhere (an addend of the whole), or what is there in `otherwise`. Dim i
    of `indices` is dim `dims[i]` of the value, or of extent 1 where that is -1."""

    name = "dist.inside"
    input = operand_def(TensorType)
    indices = operand_def(TensorType)
    otherwise = opt_operand_def(TensorType)
    dims = prop_def(DenseArrayBase[I64])
    output = result_def(TensorType)

    def __init__(
        self,
        input: SSAValue,
        indices: SSAValue,
        dims: Sequence[int],
        start: int,
        stop: int,
        extent: int,
        otherwise: SSAValue | None = None,
    ):
        properties = {**_integers(start=start, stop=stop, extent=extent), "dims": DenseArrayBase.from_list(i64, dims)}
        operands = [input, indices, [] if otherwise is None else [otherwise]]
        super().__init__(operands=operands, result_types=[input.type], properties=properties)

    @property
    def mask_shape(self) -> tuple[int, ...]:
        """The shape of the indices as it broadcasts over the value."""
        extents = dict(zip(self.dims.get_values(), tensor_type(self.indices).get_shape(), strict=True))
        return tuple(extents.get(d, 1) for d in range(tensor_type(self.input).get_num_dims()))

    def verify_shapes(self) -> None:
        super().verify_shapes()
        other = [] if self.otherwise is None else [self.otherwise]
        verify_same_types([self.input, self.output, *other], "value")
        dims, shape = list(self.dims.get_values()), tensor_type(self.indices).get_shape()
        kept = [d for d in dims if d >= 0]
        if len(dims) != len(shape) or kept != sorted(set(kept)):
            raise VerifyException(f"expected one dim of the value, increasing, per dim of the indices, got {dims}")
        whole = tensor_type(self.input).get_shape()
        for d, extent in zip(dims, shape, strict=True):
            if (d >= len(whole)) or extent != (1 if d < 0 else whole[d]):
                raise VerifyException(f"expected indices that fit {list(whole)} at dims {dims}, got {list(shape)}")
