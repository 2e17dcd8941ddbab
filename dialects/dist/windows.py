"""The exchange of windows, for an operation whose shards overlap (the rows of a convolution). In go the parts of a
tensor along one dim, a part per device; out comes for each device a window of the whole tensor."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import ClassVar, NamedTuple

from xdsl.dialects.builtin import I64, DenseArrayBase, IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, opt_prop_def, prop_def
from xdsl.irdl.declarative_assembly_format import CustomDirective
from xdsl.utils.exceptions import VerifyException

from distir.dialects.dist.checks import dim_property, replaced, tensor_type, verify_concatenable, verify_shape
from distir.dialects.dist.communication import CollectiveOp, Devices


class Overlap(NamedTuple):
    """What the window of participant `reader` has of the part of participant `holder`: indices of that part."""

    holder: int
    reader: int
    start: int
    stop: int


def overlaps(parts: Sequence[int], windows: Sequence[tuple[int, int]]) -> list[Overlap]:
    """All that windows (half-open ranges of the whole) have of parts of these extents, by reader, then by holder."""
    ends = list(accumulate(parts))
    found: list[Overlap] = []
    for reader, (low, high) in enumerate(windows):
        for holder, (extent, end) in enumerate(zip(parts, ends, strict=True)):
            start, stop = max(low - (end - extent), 0), min(high - (end - extent), extent)
            if start < stop:
                found.append(Overlap(holder, reader, start, stop))
    return found


@irdl_op_definition
class ExchangeOp(CollectiveOp):
    """Operands are the parts of a tensor along `dim`, in participant order; participant i gets a window of the whole that begins at
    `from[i]` and is as long as its result: `%r0, %r1 = dist.exchange %p0, %p1 dim 2 from [0, 3] : ...`. Windows may overlap, and
    reach beyond neighbours; every message goes directly from who holds it to who reads it, all of them at once. Over an axis, windows are
    equally long: `%r = dist.exchange %p dim 2 from [3, 0] over "cp" : ...` passes parts of 3 around a ring of two."""

    name = "dist.exchange"
    dim = prop_def(IntegerAttr[I64])
    starts = prop_def(DenseArrayBase[I64])
    over = opt_prop_def(StringAttr)
    custom_directives: ClassVar[tuple[type[CustomDirective], ...]] = (Devices,)
    assembly_format = (
        "$inputs `dim` $dim `from` custom<Devices>($starts) (`over` $over^)? attr-dict `:` "
        "functional-type($inputs, $outputs)"
    )

    def __init__(
        self, inputs: Sequence[SSAValue], dim: int, starts: Sequence[int], result_types: Sequence[Attribute]
    ):
        super().__init__(
            operands=[inputs],
            result_types=[result_types],
            properties={"dim": dim_property(dim), "starts": DenseArrayBase.from_list(i64, list(starts))},
        )

    @property
    def windows(self) -> list[tuple[int, int]]:
        """Of each participant, the half-open range of the whole that it gets."""
        extents = self._extents(self.results)
        starts = (int(start) for start in self.starts.get_values())
        return [(start, start + extent) for start, extent in zip(starts, extents, strict=True)]

    @property
    def parts(self) -> list[int]:
        """The extent of each participant's operand."""
        return self._extents(self.operands)

    def _extents(self, values: Sequence[SSAValue]) -> list[int]:
        extents = [tensor_type(value).get_shape()[self.dim.value.data] for value in values]
        return extents if self.axis is None else extents * len(self.starts.get_values())

    def verify_shapes(self) -> None:
        self.verify_pairwise()
        dim, first, starts = self.dim.value.data, tensor_type(self.operands[0]), self.starts.get_values()
        verify_concatenable(self.operands, dim, "operand")
        if self.axis is None and len(starts) != len(self.results):
            raise VerifyException(f"expected {len(self.results)} starts, one per participant, got {len(starts)}")
        for i, result in enumerate(self.results):
            got = tensor_type(result).get_shape()
            extent = got[dim] if len(got) == len(first.get_shape()) else 0
            verify_shape(result, replaced(first.get_shape(), dim, extent), first.element_type, f"result {i}")
        total = sum(self.parts)
        for i, (start, stop) in enumerate(self.windows):
            if start < 0 or stop > total:
                raise VerifyException(f"expected window {i} inside 0:{total}, got {start}:{stop}")

    def shape_over(self, shape: Sequence[int], size: int) -> tuple[int, ...]:
        if len(starts := self.starts.get_values()) != size:
            raise VerifyException(f'expected {size} starts, one per device along "{self.axis}", got {len(starts)}')
        dim = self.dim.value.data
        return replaced(shape, dim, tensor_type(self.results[0]).get_shape()[dim])
