"""What the scans of a JAX function take and give row by row, noted while it is traced. In go a module and such notes; out come
the notes again, so that passes find arrays that have all layers. They are beside the program, in memory only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, OpResult, SSAValue

Build = Callable[[Callable[..., Any], Sequence[SSAValue], Operation], SSAValue]
"""Writes what a JAX function does with these values before an operation, and gives its result."""

_NOTES = "_rows_of_scans"


@dataclass
class Rows:
    """What the scans of one function take and give row by row."""

    build: Build
    """Writes what a JAX function does."""
    stacked: dict[SSAValue, tuple[list[SSAValue], list[Operation]]] = field(
        default_factory=dict[SSAValue, "tuple[list[SSAValue], list[Operation]]"]
    )
    """By array, the rows of which it is made, and the operations that make it."""
    taken: dict[SSAValue, list[tuple[int, SSAValue, list[Operation]]]] = field(
        default_factory=dict[SSAValue, "list[tuple[int, SSAValue, list[Operation]]]"]
    )
    """By array, the rows that were taken from it: their numbers, and the operations that take them."""
    scans: list[tuple[Sequence[SSAValue], Sequence[SSAValue]]] = field(
        default_factory=list[tuple[Sequence[SSAValue], Sequence[SSAValue]]]
    )
    """What each scan takes whole in every step, and row by row."""
    _noted: list[tuple[Operation, Sequence[SSAValue], Sequence[SSAValue]]] = field(
        default_factory=list[tuple[Operation, Sequence[SSAValue], Sequence[SSAValue]]]
    )
    """The operations that make arrays and take rows, with their operands and results as they were."""

    def rows_of(self, value: SSAValue) -> Sequence[SSAValue]:
        """Those of which an array is made; none for others."""
        return self.stacked[value][0] if value in self.stacked else ()

    def erase_unused(self) -> None:
        """Erases what makes arrays, and takes rows, that nothing uses."""
        made = (op for _, ops in self.stacked.values() for op in reversed(ops))
        taken = (op for each in self.taken.values() for _, _, ops in each for op in reversed(ops))
        for op in (*made, *taken):
            if op.parent is not None and not any(result.uses for result in op.results):
                op.parent.erase_op(op)
        self.stacked = {value: (rows, ops) for value, (rows, ops) in self.stacked.items() if _are_there(ops)}
        self.taken = {value: [each for each in taken if _are_there(each[2])] for value, taken in self.taken.items()}

    def note(self) -> None:
        """Remembers how these operations are, as notes of what is changed later are worth nothing."""
        of_taken = (ops for taken in self.taken.values() for _, _, ops in taken)
        of_both = (*(ops for _, ops in self.stacked.values()), *of_taken)
        self._noted = [(op, tuple(op.operands), tuple(op.results)) for ops in of_both for op in ops]

    def of_copy(self, values: Mapping[SSAValue, SSAValue]) -> Rows | None:
        """The same of a copy of the function, which has these values; None if it was changed where there are notes of it."""
        for op, operands, results in self._noted:
            if operands != tuple(op.operands) or results != tuple(op.results):
                return None
            if any(value not in values for value in (*operands, *results)):
                return None

        def copies(ops: Sequence[Operation]) -> list[Operation]:
            return [cast(OpResult, values[op.results[0]]).op for op in ops]

        stacked = {values[v]: ([values[row] for row in rows], copies(ops)) for v, (rows, ops) in self.stacked.items()}
        taken = {values[v]: [(i, values[r], copies(o)) for i, r, o in t] for v, t in self.taken.items() if t}
        scans: list[tuple[Sequence[SSAValue], Sequence[SSAValue]]] = [
            ([values[v] for v in whole if v in values], [values[v] for v in by_row if v in values])
            for whole, by_row in self.scans
        ]
        return Rows(self.build, stacked, taken, scans)


def _are_there(ops: Sequence[Operation]) -> bool:
    return all(op.parent is not None for op in ops)


def attach_rows(module: ModuleOp, rows: Rows) -> None:
    """Notes what the scans of @main take and give."""
    rows.note()
    setattr(module, _NOTES, rows)


def rows_of(module: ModuleOp) -> Rows | None:
    """What was noted of the scans of @main; None if nothing was."""
    return getattr(module, _NOTES, None)
