"""The reference executor's `rank`. In go the programs of all ranks (level 4) with their arguments; out come each
program's results. They run together in one process: each is a walk that stops at its communication; when every
member of a group has stopped at the same one, the operation happens and all go on.

Ranks take turns in a fixed order. If none can go on, that is a deadlock, and it is reported instead of waited for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from xdsl.interpreter import Interpreter, InterpreterFunctions, PythonValues, impl, register_impls
from xdsl.ir import Operation

from distir.dialects import rank
from distir.dialects.errors import DistirError
from distir.interpreters import collectives
from distir.interpreters.reference_dist import extents
from distir.interpreters.walk import Program, Suspended


@dataclass
class Rendezvous(Suspended):
    """One rank's side of a communication."""

    op: Operation
    kind: Hashable
    """What all members must agree on beside the members."""
    members: tuple[int, ...]
    """Ranks, in participant order."""
    values: PythonValues
    """This rank's operands."""
    happen: Callable[[Sequence[Rendezvous]], Sequence[PythonValues]]
    """From all sides, in order of members, to each one's results."""

    def agrees(self, other: Rendezvous | None) -> bool:
        return other is not None and (self.kind, self.members) == (other.kind, other.members)

    def __str__(self) -> str:
        return f"{self.op.name} over ranks {list(self.members)}"


def run_together(programs: Sequence[Program]) -> list[PythonValues]:
    """The results of each program; DistirError if they do not all finish."""
    results: dict[int, PythonValues] = {}
    waiting: dict[int, Rendezvous] = {}
    ready: deque[tuple[int, PythonValues | None]] = deque((r, None) for r in range(len(programs)))
    while ready:
        number, values = ready.popleft()
        try:
            rendezvous = programs[number].send(values)
        except StopIteration as finished:
            results[number] = finished.value
            continue
        assert isinstance(rendezvous, Rendezvous)
        waiting[number] = rendezvous
        if all(rendezvous.agrees(waiting.get(member)) for member in rendezvous.members):
            sides = [waiting.pop(member) for member in rendezvous.members]
            ready.extend(zip(rendezvous.members, _happening(rendezvous, sides), strict=True))
    if waiting:
        raise DistirError(f"deadlock: {_explain(waiting, len(programs))}")
    return [results[r] for r in range(len(programs))]


def _happening(rendezvous: Rendezvous, sides: Sequence[Rendezvous]) -> Sequence[PythonValues]:
    """What each side gets. Raises DistirError, which names the communication, for sides that do not fit together."""
    try:
        return rendezvous.happen(sides)
    except Exception as error:  # shapes, parts or groups that do not agree
        raise DistirError(f"{rendezvous}: {error or type(error).__name__}") from error


def _explain(waiting: dict[int, Rendezvous], count: int) -> str:
    """One rank that waits, and what those that it waits for do instead."""
    number, rendezvous = min(waiting.items())
    others: list[str] = []
    for member in rendezvous.members:
        if not rendezvous.agrees(other := waiting.get(member)):
            doing = f"waits in {other}" if other else ("has finished" if member < count else "is not there")
            others.append(f"rank {member} {doing}")
    return f"rank {number} waits in {rendezvous}, but " + ", ".join(others)


def _first(rendezvous: Sequence[Rendezvous]) -> list[Any]:
    return [m.values[0] for m in rendezvous]


def _single(values: Sequence[Any]) -> list[PythonValues]:
    return [(value,) for value in values]


@dataclass
@register_impls
class RankFunctions(InterpreterFunctions):
    """Communication of one rank."""

    own: int
    """This rank."""
    arrays: Any = collectives
    """What communication does to values: a module, or an object with its functions."""

    def _group(
        self,
        op: rank.GroupOp,
        args: PythonValues,
        kind: tuple[Hashable, ...],
        happen: Callable[[Sequence[Rendezvous]], Sequence[PythonValues]],
    ) -> PythonValues:
        return (Rendezvous(op, (op.name, *kind), op.ranks, args, happen),)

    def _by_element(
        self,
        op: rank.GroupOp,
        args: PythonValues,
        kind: tuple[Hashable, ...],
        happen: Callable[[Sequence[Rendezvous], int, Sequence[Any]], Sequence[Any]],
    ) -> PythonValues:
        """A collective of one value of each member; of tuples, element by element."""

        def of_all(sides: Sequence[Rendezvous]) -> list[PythonValues]:
            return _single(self.arrays.by_element(lambda place, x: happen(sides, place, x), _first(sides)))

        return self._group(op, args, kind, of_all)

    @impl(rank.SendOp)
    def send(self, interpreter: Interpreter, op: rank.SendOp, args: PythonValues) -> PythonValues:
        return (Rendezvous(op, "send", (self.own, op.peer.value.data), args, lambda sides: [(), sides[0].values]),)

    @impl(rank.RecvOp)
    def recv(self, interpreter: Interpreter, op: rank.RecvOp, args: PythonValues) -> PythonValues:
        return (Rendezvous(op, "send", (op.peer.value.data, self.own), args, lambda sides: [(), sides[0].values]),)

    @impl(rank.WaitOp)
    def wait(self, interpreter: Interpreter, op: rank.WaitOp, args: PythonValues) -> PythonValues:
        return args

    @impl(rank.AllReduceOp)
    def allreduce(self, interpreter: Interpreter, op: rank.AllReduceOp, args: PythonValues) -> PythonValues:
        reduction = op.reduction.data
        return self._by_element(op, args, (reduction,), lambda _, __, x: self.arrays.allreduce(reduction, x))

    @impl(rank.AllGatherOp)
    def allgather(self, interpreter: Interpreter, op: rank.AllGatherOp, args: PythonValues) -> PythonValues:
        dim = op.dim.value.data
        return self._by_element(op, args, (dim,), lambda _, __, x: self.arrays.allgather(dim, x))

    @impl(rank.ReduceScatterOp)
    def reducescatter(self, interpreter: Interpreter, op: rank.ReduceScatterOp, args: PythonValues) -> PythonValues:
        reduction, dim = op.reduction.data, op.dim.value.data

        def happen(sides: Sequence[Rendezvous], place: int, values: Sequence[Any]) -> Sequence[Any]:
            parts = extents([side.op.results[0].type for side in sides], dim, place)
            return self.arrays.reducescatter(reduction, dim, values, parts)

        return self._by_element(op, args, (reduction, dim), happen)

    @impl(rank.AllToAllOp)
    def alltoall(self, interpreter: Interpreter, op: rank.AllToAllOp, args: PythonValues) -> PythonValues:
        split, concat = op.split.value.data, op.concat.value.data

        def happen(sides: Sequence[Rendezvous]) -> list[PythonValues]:
            parts = extents([side.op.results[0].type for side in sides], split)
            return _single(self.arrays.alltoall(split, concat, _first(sides), parts))

        return self._group(op, args, (split, concat), happen)

    @impl(rank.ExchangeOp)
    def exchange(self, interpreter: Interpreter, op: rank.ExchangeOp, args: PythonValues) -> PythonValues:
        dim = op.dim.value.data

        def happen(sides: Sequence[Rendezvous]) -> list[PythonValues]:
            starts = [cast(rank.ExchangeOp, side.op).start.value.data for side in sides]
            lengths = extents([side.op.results[0].type for side in sides], dim)
            windows = [(start, start + length) for start, length in zip(starts, lengths, strict=True)]
            return _single(self.arrays.exchange(dim, _first(sides), windows))

        return self._group(op, args, (dim,), happen)

    @impl(rank.BroadcastOp)
    def broadcast(self, interpreter: Interpreter, op: rank.BroadcastOp, args: PythonValues) -> PythonValues:
        root = op.root.value.data

        def happen(sides: Sequence[Rendezvous]) -> list[PythonValues]:
            (value,) = next(side.values for side, member in zip(sides, op.ranks, strict=True) if member == root)
            return [(value,) if side.op.results else () for side in sides]

        return self._group(op, args, (root,), happen)

    @impl(rank.ScatterOp)
    def scatter(self, interpreter: Interpreter, op: rank.ScatterOp, args: PythonValues) -> PythonValues:
        root, dim, receivers = op.root.value.data, op.dim.value.data, tuple(map(int, op.receivers.get_values()))

        def happen(sides: Sequence[Rendezvous]) -> list[PythonValues]:
            side_of = dict(zip(op.ranks, sides, strict=True))
            types = [side_of[r].op.results[0].type for r in receivers]
            parts = self.arrays.scatter(dim, side_of[root].values[0], extents(types, dim))
            received = dict(zip(receivers, parts, strict=True))
            return [(received[member],) if member in received else () for member in op.ranks]

        return self._group(op, args, (root, dim, receivers), happen)

    @impl(rank.GatherOp)
    def gather(self, interpreter: Interpreter, op: rank.GatherOp, args: PythonValues) -> PythonValues:
        dim = op.dim.value.data
        return self._to_root(op, args, (dim,), lambda values: self.arrays.concatenate(values, dim))

    @impl(rank.ReduceOp)
    def reduce(self, interpreter: Interpreter, op: rank.ReduceOp, args: PythonValues) -> PythonValues:
        reduction = op.reduction.data
        return self._to_root(op, args, (reduction,), lambda values: self.arrays.reduce(reduction, values))

    def _to_root(
        self,
        op: rank.GatherOp | rank.ReduceOp,
        args: PythonValues,
        kind: tuple[Hashable, ...],
        combine: Callable[[Sequence[Any]], Any],
    ) -> PythonValues:
        root, contributors = op.root.value.data, tuple(map(int, op.contributors.get_values()))

        def happen(sides: Sequence[Rendezvous]) -> list[PythonValues]:
            side_of = dict(zip(op.ranks, sides, strict=True))
            value = combine([side_of[r].values[0] for r in contributors])
            return [(value,) if member == root else () for member in op.ranks]

        return self._group(op, args, (root, contributors, *kind), happen)
