"""Grouped-query attention. In goes an attention whose keys and values are repeated for the query heads of a group;
out comes one without the repetition, whose queries have a dim for the heads of a group. Its gradients by keys and
values are the sums over a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import prod
from typing import Any, NamedTuple

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from distir.dialects.attention import AttentionOp, BackwardOp, is_grouped
from distir.interpreters.formulas import formula_of
from distir.interpreters.model_names import NAMES
from distir.interpreters.moves import element, move_of, shape
from distir.passes.attention.layouts import Dim, Named, Part, after, copies, is_same, named, regroup, traced
from distir.passes.attention.spelled import FREE

GROUP, ROWS, KEYS = "group", "rows", "keys"
OF_KEYS = [(KEYS, FREE)] * 2
"""Of keys and values."""
Names = list[list[Any]]
"""Of each dim, the names that it is made of."""


class Sum(NamedTuple):
    """What is done with a gradient until it is summed over groups."""

    casts: list[Operation]
    ops: list[Operation]
    """All, the sum last."""
    dims: Names
    """Of what the sum gives."""


@dataclass
class Repeated:
    """An attention with names for the dims that its operands share."""

    op: AttentionOp
    dims: list[Dim] = field(default_factory=list[Dim])
    groups: list[Part] = field(default_factory=list[Part])
    """Those along which all keys are one, and all values."""
    dialect: str = ""
    """Of what repeats them."""

    @classmethod
    def of(cls, op: AttentionOp) -> Repeated | None:
        """None where nothing is repeated."""
        if op.draw:  # at a position for each head
            return None
        found = cls(op)
        key, value = (traced(_before_casts(v)[0]) for v in (op.key, op.value))
        for i, both in enumerate(zip(key[1][:-2], value[1][:-2], strict=True)):
            sizes = [[part.size for part in dim] for dim in both]
            cut = sizes[0] if sizes[0] == sizes[1] else [shape(op.key)[i]]
            own = tuple(chain.from_iterable(regroup([Part(i, 1, prod(cut))], cut) or ()))
            found.dims.append(own)
            if sizes[0] == sizes[1]:
                found.groups += [n for n, k, v in zip(own, *both, strict=True) if k.is_repeated and v.is_repeated]
        if not found.groups:
            return None
        found.dialect = key[2][0].dialect_name()
        return found

    def write(self, rewriter: PatternRewriter) -> None:
        """Puts the other operation in the place of this one, if it can be written so."""
        made: list[Operation] = []
        if (replaced := self._write(made)) is None:
            for op in reversed(made):
                op.erase()
            return
        rewriter.insert(made)
        for old, new, inner in replaced:
            new.name_hint = old.name_hint
            old.replace_all_uses_with(new)
            for op in reversed(inner):
                rewriter.erase(op)
        rewriter.erase(self.op)

    def _write(self, made: list[Operation]) -> list[tuple[SSAValue, SSAValue, list[Operation]]] | None:
        """Makes operations, and says which values they replace, and what makes these alone."""
        op = self.op
        operands: list[SSAValue] = []
        for value, last in zip(op.operands, self._operand_roles, strict=True):
            plain, casts = _before_casts(value)
            if (own := self._named(plain, self._before(last))) is None:
                return None
            if last == (KEYS, FREE):
                own = own.without(self.groups)
            placed = own.without_repeats().arranged(self._now(last), self.dialect) if last == (ROWS, KEYS) else None
            placed = placed or own.arranged(self._now(last), self.dialect)
            if placed is None:
                return None
            made += placed[0]
            operands.append(_cast(placed[1], casts, made))
        roles = self._result_roles
        new = type(op).create(
            operands=operands,
            result_types=[self._type(value, last) for value, last in zip(op.results, roles, strict=True)],
            properties=dict(op.properties),
            attributes={name: each for name, each in op.attributes.items() if name in NAMES},
            location=op.location,
        )
        made.append(new)
        replaced: list[tuple[SSAValue, SSAValue, list[Operation]]] = []
        for old, value, last in zip(op.results, new.results, roles, strict=True):
            total = self._sum(old) if last == (KEYS, FREE) else Sum([], [], self._before(last))
            if old.first_use is None:
                continue
            if total is None:
                return None
            own = self._named(_cast(value, total.casts, made), self._now(last), False)
            if own is None or (placed := own.arranged(total.dims, self.dialect)) is None:
                return None
            made += placed[0]
            end = total.ops[-1].results[0] if total.ops else old
            if placed[1].type != end.type:
                return None
            replaced.append((end, placed[1], total.ops))
        return replaced

    @property
    def _is_grouped(self) -> bool:
        return is_grouped(len(shape(self.op.query)), len(shape(self.op.key)))

    @property
    def _operand_roles(self) -> list[tuple[str, ...]]:
        """The names of each operand's dims after those that are shared. By position: a value may be queries and keys."""
        of_mask = [(ROWS, KEYS)] if self.op.mask is not None else []
        return [*map(self._role_by_row, self.op.before_keys), *OF_KEYS, *of_mask]

    @property
    def _result_roles(self) -> list[tuple[str, ...]]:
        of_keys = OF_KEYS if isinstance(self.op, BackwardOp) else []
        by_row = self.op.results[: len(self.op.results) - len(of_keys)]
        return [*map(self._role_by_row, by_row), *of_keys]

    def _role_by_row(self, value: SSAValue) -> tuple[str, ...]:
        """Of what has a row, or a number, for each query."""
        return (ROWS, FREE)[: len(shape(value)) - len(shape(self.op.query)) + 2]

    def _before(self, last: tuple[str, ...]) -> Names:
        """The names of a value's dims."""
        group = [[GROUP]] if self._is_grouped and last[0] == ROWS else []
        return [*([*dim] for dim in self.dims), *group, *([name] for name in last)]

    def _now(self, last: tuple[str, ...]) -> Names:
        """As they are to be: a dim that was all repeated is gone."""
        kept = [[part for part in dim if part not in self.groups] for dim in self.dims]
        shared = [names for names, dim in zip(kept, self.dims, strict=True) if names or not dim]
        group = [[*self.groups, *([GROUP] if self._is_grouped else [])]] if last[0] == ROWS else []
        return [*shared, *group, *([name] for name in last)]

    def _size(self, name: Any, value: SSAValue) -> int:
        if isinstance(name, Part):
            return name.size
        query = shape(self.op.query)
        return {GROUP: query[-3], ROWS: query[-2], KEYS: shape(self.op.key)[-2], FREE: shape(value)[-1]}[name]

    def _named(self, value: SSAValue, names: Names, trace: bool = True) -> Named | None:
        return named(value, [[(name, self._size(name, value)) for name in dim] for dim in names], trace)

    def _type(self, value: SSAValue, last: tuple[str, ...]) -> TensorType[Any]:
        """Of what is to be in the place of a result."""
        sizes = [prod(self._size(name, value) for name in names) for names in self._now(last)]
        return TensorType(element(value), sizes)

    def _sum(self, gradient: SSAValue) -> Sum | None:
        """None where anything else is done with a gradient."""
        ends, left = {Part(i, 1, n): name for i, n, name in self._ends(gradient)}, set(self.groups)
        found, dims = Sum([], [], []), [*self.dims, *((part,) if part.size > 1 else () for part in ends)]
        while left:
            op = gradient.get_user_of_unique_use()
            if op is None:
                return None
            if (move := move_of(op)) is not None:
                dims = after(dims, op, move)
                if dims is None:
                    return None
            elif is_same(op):
                if copies(op) is None:
                    found.casts.append(op)
            elif (
                (formula := formula_of(op)) is not None
                and formula.kind == "sum"
                and left.issuperset(dims[formula.axis])
            ):
                left -= set(dims[formula.axis])
                is_kept = len(shape(op.results[0])) == len(dims)
                dims = [*dims[: formula.axis], *([()] if is_kept else []), *dims[formula.axis + 1 :]]
            else:
                return None
            found.ops.append(op)
            (gradient,) = op.results
        return found._replace(dims=[[ends.get(part, part) for part in dim] for dim in dims])

    def _ends(self, gradient: SSAValue) -> list[tuple[int, int, str]]:
        """The last two dims."""
        sizes = shape(gradient)
        return [(len(sizes) - 2, sizes[-2], KEYS), (len(sizes) - 1, sizes[-1], FREE)]


def _before_casts(value: SSAValue) -> tuple[SSAValue, list[Operation]]:
    """What a value was in another element type, and the operations that convert it."""
    casts: list[Operation] = []
    while isinstance(op := value.owner, Operation) and move_of(op) is None and is_same(op) and copies(op) is None:
        casts.insert(0, op)
        value = op.operands[0]
    return value, casts


def _cast(value: SSAValue, casts: Sequence[Operation], made: list[Operation]) -> SSAValue:
    """A value converted as others are."""
    for cast in casts:
        type_ = TensorType(element(cast.results[0]), shape(value))
        made.append(type(cast).create(operands=[value], result_types=[type_], properties=dict(cast.properties)))
        value = made[-1].results[0]
    return value
