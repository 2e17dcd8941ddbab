"""Which positions each device has when an operation is cut along a factor that needs an offset: the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import IntegerType, TensorType
from xdsl.ir import Operation

from distir.dialects.errors import DistirError
from distir.dialects.sharding import Gather, Rule, UseFactor
from distir.passes.distribution.conversions import share
from distir.passes.distribution.mesh import Mesh
from distir.passes.distribution.options import Option, rule_of
from distir.passes.structure import shape_of


@dataclass(frozen=True)
class Positions:
    """Of an op that looks up: its operand of indices, the result dim that each of their dims is (-1: of extent 1), and the
    axes that cut its `extent` positions, outermost first."""

    index: int
    dims: tuple[int, ...]
    extent: int
    axes: tuple[int, ...]
    mesh: Mesh

    def range(self, device: int) -> tuple[int, int, int]:
        """start, stop and extent of a device's positions."""
        coordinates, start, stop = self.mesh.coordinates(device), 0, self.extent
        for axis in self.axes:
            first, last = share(stop - start, coordinates[axis], self.mesh.sizes[axis])
            start, stop = start + first, start + last
        return start, stop, self.extent


def positions_of(op: Operation, options: Sequence[Option], mesh: Mesh) -> Positions | None:
    """The positions of an op for its option per axis; None if no option needs any. Raises DistirError for indices that the
    rule does not connect with the result."""
    rule = rule_of(op)
    choices = [option.choice for option in options]
    cuts = [c for c in choices if rule is not None and isinstance(c, UseFactor) and c.factor in rule.offsets]
    if rule is None or not cuts:
        return None
    if len(set(cuts)) > 1 or len(cuts[0].pieces) > 1:
        raise DistirError(f"{op.name} cannot be cut in pieces, or along several factors, that need an offset")
    factor = cuts[0].factor
    shapes = [shape_of(v) for v in op.operands]
    extent = next(
        s[d] for s, dims in zip(shapes, rule.inputs, strict=True) for d, x in enumerate(dims) if x.factor == factor
    )
    index = next(i for i, v in enumerate(op.operands) if _is_integer(v.type))
    dims = tuple(_result_dim(op, rule, x.factor, n) for x, n in zip(rule.inputs[index], shapes[index], strict=True))
    return Positions(index, dims, extent, tuple(a for a, c in enumerate(choices) if c in cuts), mesh)


def _is_integer(type_: object) -> bool:
    return isinstance(type_, TensorType) and isinstance(type_.element_type, IntegerType)


def _result_dim(op: Operation, rule: Rule, factor: str | None, extent: int) -> int:
    combine = rule.combines[factor][0] if factor is not None else None
    if isinstance(combine, Gather):
        return combine.dim
    if extent != 1:
        raise DistirError(f"{op.name}: a dim of its indices is none of its result, so it has no offset")
    return -1
