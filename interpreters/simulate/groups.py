"""Groups whose devices do the same (`#dist.on<0:8>`), for the simulator. In go the mesh and the axes along which
devices are told apart; out come the devices that represent the others, and the participants of each operation.

Devices whose clocks and memory are always equal are one class; one device of it is simulated. Along an axis all are
one class, or the first is one and the others are another (`dist.first_only`), or each is its own. A collective along
an axis is over devices of all classes of the axis. So by induction over the program the devices of a class stay
equal, as long as their operations cost the same."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from distir.dialects.dist import FirstOnlyOp
from distir.dialects.errors import DistirError
from distir.interpreters.ranks import Group


class DevicesDiffer(DistirError):
    """Devices of a group do the same, but not at the same cost: each along these axes is to be simulated."""

    def __init__(self, message: str, axes: Sequence[str]):
        super().__init__(message)
        self.axes = frozenset(axes)


@dataclass(frozen=True, eq=False)
class RankSymmetry:
    """Who does the same as some participants: local devices of a function. Compared by identity."""

    others: tuple[tuple[int, ...], ...]
    axes: tuple[str, ...]
    """Those of the mesh."""


class Line(NamedTuple):
    """Devices of a group that take part in one thing, as numbers within the group."""

    members: tuple[int, ...]
    representatives: tuple[int, ...]
    """Which of the representatives are among them."""
    others: tuple[tuple[int, ...], ...]
    """The members of the lines that it stands for."""


@dataclass(eq=False)
class Representatives:
    """Which devices of a group are simulated. Compared by identity."""

    group: Group
    kept: Mapping[str, tuple[int, ...]]
    """Along each axis, the coordinates of those that are simulated; the last one stands for those after it."""
    _lines: dict[str | None, list[Line]] = field(default_factory=dict[str | None, list[Line]])
    _symmetries: dict[tuple[object, ...], RankSymmetry | None] = field(
        default_factory=dict[tuple[object, ...], "RankSymmetry | None"]
    )

    @staticmethod
    def of(module: ModuleOp, group: Group, each: Collection[str]) -> dict[str, tuple[int, ...]]:
        """The coordinates that a program needs: along `each` of these axes, all."""
        functions = [op for op in module.body.block.ops if isinstance(op, FuncOp)]
        split = {op.over.data for f in functions for op in f.body.block.ops if isinstance(op, FirstOnlyOp)}
        sizes = group.sizes.items()
        return {axis: tuple(range(size if axis in each else min(size, 1 + (axis in split)))) for axis, size in sizes}

    @property
    def count(self) -> int:
        return prod(map(len, self.kept.values()))

    @property
    def numbers(self) -> list[int]:
        """The numbers of the representatives within the group."""
        return [line.members[0] for line in self.lines(None)]

    def has_each(self, axes: Collection[str]) -> bool:
        """Whether each device along these axes is simulated."""
        return all(len(self.kept[axis]) == self.group.sizes[axis] for axis in axes)

    def stand_in(self) -> list[int]:
        """For each device of the group, the number of its representative within the group."""
        found = {n: line.members[0] for line in self.lines(None) for (n,) in (line.members, *line.others)}
        return [found[number] for number in range(self.group.count)]

    def coordinates(self, representative: int) -> dict[str, int]:
        """Of one of the representatives."""
        at = next(at for i, at in enumerate(product(*self.kept.values())) if i == representative)
        return dict(zip(self.kept, at, strict=True))

    def coordinate(self, representative: int, axis: str) -> int:
        """The same, along an axis."""
        return self.coordinates(representative)[axis]

    def lines(self, axis: str | None) -> list[Line]:
        """The lines along an axis, or each device by itself, in the order of representatives."""
        if axis not in self._lines:
            self._lines[axis] = self._lines_along(axis)
        return self._lines[axis]

    def _lines_along(self, axis: str | None) -> list[Line]:
        sizes = self.group.sizes
        places = {tuple(at.values()): i for i, at in enumerate(self.group.coordinates())}
        order = {at: i for i, at in enumerate(product(*self.kept.values()))}

        def members(at: tuple[int, ...]) -> tuple[int, ...]:
            ranges = [range(size) if name == axis else (n,) for (name, size), n in zip(sizes.items(), at, strict=True)]
            return tuple([places[each] for each in product(*ranges)])

        found: list[Line] = []
        for at in product(*[kept if name != axis else (0,) for name, kept in self.kept.items()]):
            represented = product(
                *[kept if name == axis else (n,) for (name, kept), n in zip(self.kept.items(), at, strict=True)]
            )
            classes = [(0,) if name == axis else self._class(name, n) for name, n in zip(self.kept, at, strict=True)]
            others = [members(each) for each in product(*classes) if each != at]
            found.append(Line(members(at), tuple([order[each] for each in represented]), tuple(others)))
        return found

    def _class(self, axis: str, coordinate: int) -> tuple[int, ...]:
        """The coordinates that one stands for."""
        is_last = coordinate == self.kept[axis][-1]
        return tuple(range(coordinate, self.group.sizes[axis])) if is_last else (coordinate,)

    def symmetry(self, axis: str | None, number: int, starts: tuple[int, ...]) -> RankSymmetry | None:
        """Who does the same as a line in the groups that start at these devices; None if nobody does."""
        key = (axis, number, starts)
        if key not in self._symmetries:
            others = self.lines(axis)[number].others
            placed = tuple([tuple([start + n for start in starts for n in each]) for each in others])
            self._symmetries[key] = RankSymmetry(placed, tuple(self.kept)) if placed else None
        return self._symmetries[key]
