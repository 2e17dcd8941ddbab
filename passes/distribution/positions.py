"""Positions of each device, where an operation is cut along a factor that needs an offset (the rows of a table or of
a triangle). In go an operation and its options; out come each device's positions, and the local operations around a lookup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import IntegerType, TensorType
from xdsl.ir import Operation, SSAValue

from distir.dialects.dist import InsideOp, LocalIndexOp
from distir.dialects.errors import DistirError
from distir.dialects.sharding import Gather, Outside, OutsideKind, Rule, Shift, UseFactor, share
from distir.passes.distribution.conversions import Insert
from distir.passes.distribution.mesh import Mesh
from distir.passes.distribution.options import Option, rule_of
from distir.passes.structure import shape_of

Range = tuple[int, int, int]
"""start, stop and extent of a device's positions."""


@dataclass(frozen=True)
class Positions:
    """Of an op that looks up: its operand of indices, what is done about those outside, the dim that each of their dims is (-1: of
    extent 1) where something is masked, and the axes that cut its `extent` positions, outermost first."""

    index: int
    outside: Outside
    dims: tuple[int, ...]
    extent: int
    axes: tuple[int, ...]
    mesh: Mesh

    def range(self, device: int) -> Range:
        """start, stop and extent of a device's positions."""
        return *_held(self.extent, self.axes, self.mesh, device), self.extent

    def before(self, operands: Sequence[SSAValue], held: Range, insert: Insert) -> list[SSAValue]:
        """The operands as a device that has these positions takes them."""
        found, indices = list(operands), operands[self.index]
        local = LocalIndexOp(indices, *held, self.outside.ignored)
        insert(local)
        found[self.index] = local.output
        if self.outside.kind is OutsideKind.ZERO:
            inside = InsideOp(operands[self.outside.number], indices, self.dims, *held)
            insert(inside)
            found[self.outside.number] = inside.output
        return found

    @property
    def replaces(self) -> tuple[int, ...]:
        """The operands instead of which a device takes some of its own."""
        return (self.index, *((self.outside.number,) if self.outside.kind is OutsideKind.ZERO else ()))

    @property
    def masks_results(self) -> bool:
        """Whether the operation's results are masked."""
        return self.outside.kind in (OutsideKind.RESULT, OutsideKind.KEPT)

    def after(self, result: SSAValue, operands: Sequence[SSAValue], held: Range, insert: Insert) -> SSAValue:
        """The result without what indices outside did, from the operands as they were before."""
        if not self.masks_results:
            return result
        otherwise = operands[self.outside.number] if self.outside.kind is OutsideKind.KEPT else None
        inside = InsideOp(result, operands[self.index], self.dims, *held, otherwise)
        insert(inside)
        return inside.output


def positions_of(op: Operation, options: Sequence[Option], mesh: Mesh) -> Positions | None:
    """The positions of an op for its option per axis; None if no option needs any. Raises DistirError for indices that the
    rule does not connect with what is masked."""
    rule = rule_of(op)
    if rule is None:
        return None
    found = {f: axes for f, axes in _cut_positions(op, rule, options).items() if isinstance(rule.offsets[f], Outside)}
    if not found:
        return None
    if len(found) > 1:
        raise DistirError(f"{op.name} cannot be cut along several factors in which it looks up")
    ((factor, axes),) = found.items()
    outside, shapes = rule.offsets[factor], [shape_of(v) for v in op.operands]
    assert isinstance(outside, Outside)
    index = next(i for i, v in enumerate(op.operands) if _is_integer(v.type))
    dims: tuple[int, ...] = ()
    if outside.kind is not OutsideKind.IGNORED:
        carriers = zip(rule.inputs[index], shapes[index], strict=True)
        dims = tuple(_masked_dim(op, rule, outside, x.factor, n) for x, n in carriers)
    return Positions(index, outside, dims, _extent(op, rule, factor), axes, mesh)


def starts_of(op: Operation, options: Sequence[Option], mesh: Mesh, device: int) -> dict[str, int]:
    """Where a device's positions start, for each factor that is cut and shifts an integer of the op."""
    rule, starts = rule_of(op), dict[str, int]()
    if rule is not None and rule.offsets:
        for factor, axes in _cut_positions(op, rule, options).items():
            if isinstance(rule.offsets[factor], Shift):
                starts[factor] = _held(_extent(op, rule, factor), axes, mesh, device)[0]
    return starts


def _cut_positions(op: Operation, rule: Rule, options: Sequence[Option]) -> dict[str, tuple[int, ...]]:
    """The factors that are cut and need an offset, with the axes that cut them, outermost first."""
    found: dict[str, tuple[int, ...]] = {}
    for axis, option in enumerate(options):
        if isinstance(choice := option.choice, UseFactor) and choice.factor in rule.offsets:
            if len(choice.pieces) > 1:
                raise DistirError(f"{op.name} cannot be cut in pieces along a factor that needs an offset")
            found[choice.factor] = (*found.get(choice.factor, ()), axis)
    return found


def _extent(op: Operation, rule: Rule, factor: str) -> int:
    """How many positions there are."""
    operands = zip(op.operands, rule.inputs, strict=True)
    carried = [shape_of(v)[d] for v, dims in operands for d, dim in enumerate(dims) if dim.factor == factor]
    results = zip(op.results, rule.combines[factor], strict=True)
    return (*carried, *(shape_of(r)[c.dim] for r, c in results if isinstance(c, Gather)))[0]


def _held(extent: int, axes: Sequence[int], mesh: Mesh, device: int) -> tuple[int, int]:
    """The half-open range of positions that a device has."""
    coordinates, start, stop = mesh.coordinates(device), 0, extent
    for axis in axes:
        first, last = share(stop - start, coordinates[axis], mesh.sizes[axis])
        start, stop = start + first, start + last
    return start, stop


def _is_integer(type_: object) -> bool:
    return isinstance(type_, TensorType) and isinstance(e := type_.element_type, IntegerType) and e.width.data > 1


def _masked_dim(op: Operation, rule: Rule, outside: Outside, factor: str | None, extent: int) -> int:
    """The dim of what is masked that a dim of the indices is, by the factor that it carries."""
    if factor is not None:
        if outside.kind is OutsideKind.ZERO:
            found = [d for d, dim in enumerate(rule.inputs[outside.number]) if dim.factor == factor]
        else:
            combine = rule.combines[factor][0]
            found = [combine.dim] if isinstance(combine, Gather) else []
        if found:
            return found[0]
    if extent != 1:
        raise DistirError(f"{op.name}: a dim of its indices is none of what is masked, so it has no offset")
    return -1
