"""Memory at program points as cost functions. In go a choice network and a point; out come tables of the bytes that
each value takes there, over the states in which it is produced and needed. A value whose table would be too large
(`WIDE`) is counted with less."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

from xdsl.dialects.func import CallOp
from xdsl.ir import BlockArgument, OpResult, SSAValue

from distir.interpreters.walk import uses_of, values_read
from distir.interpreters.work import shares_memory
from distir.passes.distribution.mesh import AxisStates
from distir.passes.sharding.choice_network import MOST_WRITTEN, ChoiceNetwork, CostFunction, JointDomain, View
from distir.passes.sharding.lifetimes import ActiveCall, Lifetimes, Position, is_returned_in_place, root
from distir.passes.sharding.memory import Point, has_own_memory, least_extra
from distir.passes.sharding.occurrences import Occurrences, occurrences_of
from distir.passes.sharding.timeline import SENT
from distir.passes.solver.elimination import Table
from distir.passes.solver.shared_values import Indicators, LiveUse, States, live_tables, table_over
from distir.passes.staging.order import Use
from distir.passes.structure import AnyCall, is_constant

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

WIDE = MOST_WRITTEN
"""Entries of the largest table that is written down."""


Key = tuple[int, int | None, tuple[View, ...]]
"""A cost function, what its value shares its memory with, and what operations in progress need."""


@dataclass(frozen=True)
class PointUse:
    """One use of a value, as seen from a program point."""

    view: int
    """What it needs: 0 the produced states, otherwise one of the cost function's needs."""
    is_earlier: bool
    """Whether the use's conversion is before the point."""
    is_begun: bool
    """The same, or at the point."""
    is_lasting: bool
    """Whether it is held at the point or later."""
    progress: int | None = None
    """Which view of the occupancy's is that of the operation for which alone it is still held: only if it needs the same states."""


@dataclass(frozen=True)
class Occupancy:
    """What values of one cost function hold at a point."""

    cost_function: int
    has_memory: bool
    """Whether the produced value lies in memory of its own."""
    is_born: bool
    """Whether it comes to be at the point."""
    holds: tuple[PointUse, ...]
    returned: int | None = None
    """The hold that returns it in the memory of an argument."""
    converted: int | None = None
    """The view whose conversion is the point."""
    is_last: bool = False
    """Whether nothing else needs what is converted."""
    sharing: int | None = None
    """The number of what it shares its memory with."""
    is_received: bool = False
    """Whether another stage sends it, in each state in which it is needed."""
    progress: tuple[View, ...] = ()
    """What operations that are running need, to which the value was passed."""

    @property
    def key(self) -> Key:
        """What its bytes are a table over."""
        return self.cost_function, self.sharing, self.progress


@dataclass(frozen=True)
class Sharing:
    """The memory of a call's result that is also another result's or an argument's, unless something was converted."""

    holder: View
    """The states in which the other is passed."""
    images: Mapping[AxisStates, frozenset[AxisStates]]
    """For each of them, those in which the result may be the same memory."""


@dataclass
class PointTables:
    """Memory at one point: what is occupied, how often; and bytes per choice of single variables."""

    occupied: Counter[Occupancy] = field(default_factory=Counter[Occupancy])
    single: dict[int, Array] = field(default_factory=dict[int, "Array"])


class MemoryTables:
    """Tables of one choice network."""

    def __init__(self, network: ChoiceNetwork):
        self.network, self.problem = network, network.problem
        self._lifetimes = Lifetimes(network.problem)
        self._occurrences = occurrences_of(network.problem)
        self._views: dict[SSAValue, dict[Use, int]] = {}
        self._domains: dict[Key, JointDomain] = {}
        self._kept: Sequence[Array] | None = None
        self._sharings: list[Sharing] = []
        self._sharing_of: dict[tuple[str, int, str, int], int] = {}
        self._arrays: dict[Occupancy, Array] = {}
        self._uses: dict[SSAValue, list[tuple[int, Position, Position, bool]]] = {}

    def domain(self, cost_function: int, sharing: int | None = None, progress: tuple[View, ...] = ()) -> JointDomain:
        key = cost_function, sharing, progress
        if key not in self._domains:
            holder = None if sharing is None else self._sharings[sharing].holder
            found = self.network.domain(self.network.cost_functions[cost_function], holder, progress)
            self._domains[key] = found if self._kept is None else found.narrowed(self._kept)
        return self._domains[key]

    def narrow(self, kept: Sequence[Array]) -> None:
        """From now on only these choices of each variable are of interest: tables get smaller."""
        self._kept = list(kept)
        self._domains.clear()
        self._arrays.clear()

    def at(self, point: Point) -> PointTables:
        """Memory at a point."""
        found = PointTables()
        first, *frames = self._lifetimes.frames(point)
        if self._occurrences is None:
            self._add_frame(found, first)
        else:
            self._add_stage(found, first, point.stage, self._occurrences)
        for frame in frames:
            self._add_frame(found, frame)
        self._add_transient(found, point)
        return found

    # --- what is held ---

    def _add_frame(self, found: PointTables, frame: ActiveCall) -> None:
        is_entry = frame.function is self.problem.entry
        for argument in frame.function.body.block.args:
            self._add_value(found, argument, frame, (), is_entry)
        for op in frame.function.body.block.ops:
            birth = self._lifetimes.birth(op)
            if birth > frame.position:
                continue
            for result in op.results:
                self._add_value(found, result, frame, birth, not shares_memory(op))

    def _add_value(
        self, found: PointTables, value: SSAValue, frame: ActiveCall, birth: Position, has_memory: bool
    ) -> None:
        position, is_argument = frame.position, birth == ()
        holds: list[PointUse] = []
        returned = None
        progress: list[View] = []
        for view, start, end, is_returned, use in self._uses_of(value, frame):
            rest: set[Use] | None = None
            if (
                end >= position > start
                and isinstance(use[0], AnyCall)
                and position[:1] == end[:1]
                and len(position) > 1
            ):
                rest = self._lifetimes.remaining(*use, position[1:])
            hold = self._hold(value, view, (start, end), position, rest, progress)
            if is_returned and hold.is_lasting and returned is None:
                returned = len(holds)
            if hold.is_begun or hold.is_lasting:
                holds.append(hold)
        is_born = position == birth or (is_argument and has_memory)
        if is_born or any(hold.is_lasting for hold in holds):
            cost_function = self.network.cost_function_of[value]
            sharing = self._shared_by(value) if has_memory else None
            there = Occupancy(
                cost_function, has_memory, is_born, tuple(holds), returned, sharing=sharing, progress=tuple(progress)
            )
            found.occupied[there] += 1

    def _hold(
        self,
        value: SSAValue,
        view: int,
        held: tuple[Position, Position],
        position: Position,
        rest: set[Use] | None,
        progress: list[View],
    ) -> PointUse:
        """A use as seen from a position, from and until when it holds what it needs; `rest` is for what alone it still does."""
        start, end = held
        number: int | None = None
        if rest is not None and len(rest) == 1:
            ((op, operand),) = rest
            needed = next(
                each.view for each in self.network.uses[values_read(op)[operand]] if (op, operand) in each.operations
            )
            cost_function = self.network.cost_functions[self.network.cost_function_of[value]]
            if needed != (cost_function.produced, *cost_function.needed)[view]:
                if needed not in progress:
                    progress.append(needed)
                number = progress.index(needed)
        is_lasting = end >= position and rest != set()
        return PointUse(view, start < position, start <= position, is_lasting, number)

    def _add_stage(self, found: PointTables, frame: ActiveCall, stage: int, occurrences: Occurrences) -> None:
        """What the entry and the loop over microbatches hold on a stage."""
        position = frame.position
        for there in occurrences.by_stage[stage]:
            value, is_stored = there.value, there.birth == () and there.has_memory
            is_born = position == there.birth or is_stored
            if there.birth > position or (not is_born and occurrences.end(there) < position):
                continue
            views = self._views_of(value)
            holds: list[PointUse] = []
            progress: list[View] = []
            returned = None
            for at in sorted(there.uses, key=lambda at: at.start):
                end = occurrences.end_of_use(at)
                rest = occurrences.remaining(at, position) if end >= position else None
                hold = self._hold(value, views[at.use], (at.start, end), position, rest, progress)
                if (
                    hold.is_lasting
                    and returned is None
                    and is_returned_in_place(frame.function, value, [at.use], frame.shared)
                ):
                    returned = len(holds)
                if hold.is_begun or hold.is_lasting:
                    holds.append(hold)
            if is_born or any(hold.is_lasting for hold in holds):
                sharing = self._shared_by(value, occurrences.holder(there)) if there.has_memory else None
                occupancy = Occupancy(
                    self.network.cost_function_of[value],
                    there.has_memory,
                    is_born,
                    tuple(dict.fromkeys(holds)) if returned is None else tuple(holds),
                    returned,
                    sharing=sharing,
                    is_received=there.is_received,
                    progress=tuple(progress),
                )
                found.occupied[occupancy] += 1

    def _views_of(self, value: SSAValue) -> Mapping[Use, int]:
        """For each use of a value, which of its cost function's views it needs."""
        if value not in self._views:
            produced = self.network.produced[value]
            needed = self.network.cost_functions[self.network.cost_function_of[value]].needed
            self._views[value] = {
                use: 0 if each.view == produced else 1 + needed.index(each.view)
                for each in self.network.uses[value]
                for use in each.operations
            }
        return self._views[value]

    def _shared_by(self, value: SSAValue, holder: SSAValue | None = None) -> int | None:
        """What a value shares its memory with."""
        if not isinstance(value, OpResult) or not isinstance(value.op, CallOp):
            return None
        holder = self._lifetimes.holder(value) if holder is None else holder
        if holder is None or holder is value:
            return None
        callee = self.problem.callee(value.op)
        is_argument = isinstance(holder, BlockArgument)
        assert isinstance(holder, (BlockArgument, OpResult))
        key = (callee.sym_name.data, value.index, "argument" if is_argument else "result", holder.index)
        if key not in self._sharing_of:
            last = callee.body.block.last_op
            assert last is not None
            images = self._images(last.operands[value.index])
            if not is_argument:
                others = self._images(last.operands[holder.index])
                images = {
                    there: frozenset(
                        s for source, reached in others.items() if there in reached for s in images[source]
                    )
                    for there in dict.fromkeys(s for reached in others.values() for s in reached)
                }
            self._sharing_of[key] = len(self._sharings)
            self._sharings.append(Sharing(self.network.produced[holder], images))
        return self._sharing_of[key]

    def _images(self, value: SSAValue) -> Mapping[AxisStates, frozenset[AxisStates]]:
        """For the states in which the root of a value is produced, those of the value as a view of it."""
        if value is root(value):
            return {s: frozenset([s]) for s in self.network.produced[value].states}
        assert isinstance(value, OpResult)
        inner = self._images(value.op.operands[0])
        options = self.problem.options[value.op]
        return {s: frozenset(o.results[0] for o in options if o.operands[0] in reached) for s, reached in inner.items()}

    def _uses_of(self, value: SSAValue, frame: ActiveCall) -> list[tuple[int, Position, Position, bool, Use]]:
        """Per use the view, from when and until when it holds, and whether it returns the value in an argument's memory."""
        produced = self.network.produced[value]
        needed = self.network.cost_functions[self.network.cost_function_of[value]].needed
        found: list[tuple[int, Position, Position, bool, Use]] = []
        for use in self.network.uses[value]:
            view = 0 if use.view == produced else 1 + needed.index(use.view)
            in_place = is_returned_in_place(frame.function, value, use.operations, frame.shared)
            for op, operand in use.operations:
                start, end = self._lifetimes.start(op, operand), self._lifetimes.live_until(op, operand)
                found.append((view, start, end, in_place, (op, operand)))
        return sorted(found, key=lambda use: use[1])

    def _add_transient(self, found: PointTables, point: Point) -> None:
        """What the conversion or the scaling at the point itself takes for a moment."""
        import numpy as np

        op = point.operation
        if self._occurrences is not None and not point.path and point.position[-1:] == SENT:
            return
        if point.operand is None:
            variable = self.network.variables.get(op)
            if variable is not None and not is_constant(op):
                sizes = [least_extra(self.problem, op, option) for option in self.problem.options[op]]
                found.single[variable] = np.array(sizes, dtype=np.float64)
            return
        value = values_read(op)[point.operand]
        produced, number = self.network.produced[value], self.network.cost_function_of[value]
        for use in self.network.uses[value]:
            if use.view != produced and (op, point.operand) in use.operations:
                view = 1 + self.network.cost_functions[number].needed.index(use.view)
                is_last = has_own_memory(value) and len(uses_of(value)) == 1
                found.occupied[Occupancy(number, False, False, (), converted=view, is_last=is_last)] += 1

    # --- bytes ---

    def bytes(self, occupancy: Occupancy) -> Array | None:
        """Bytes for all combinations of a cost function's choices; None if there are too many."""
        domain = self.domain(*occupancy.key)
        if prod(domain.shape) > WIDE:
            return None
        if occupancy not in self._arrays:
            rank = len(domain.scope)
            grid = [domain.along(view, rank) for view in range(len(domain.placed))]
            self._arrays[occupancy] = self._bytes_of(occupancy, domain, grid, domain.shape)
        return self._arrays[occupancy]

    def by_state(self, occupancy: Occupancy, indicators: Indicators) -> list[Table]:
        """The same of a value with too many uses, as a sum of tables over the choices that are left and indicators of states."""
        import numpy as np

        domain = self.domain(*occupancy.key)
        cost_function = self.network.cost_functions[occupancy.cost_function]

        def states(view: int) -> States:
            axis, numbers = domain.placed[view]
            classes, v = domain.classes[axis], domain.scope[axis]
            return States(v, numbers[classes if self._kept is None else classes[self._kept[v]]])

        if occupancy.converted is not None:
            views = [states(0), states(occupancy.converted)]
            return [table_over(views, self._transients(cost_function, domain, occupancy))]
        uses = [LiveUse(states(h.view), h.is_earlier, h.is_begun, h.is_lasting) for h in occupancy.holds]
        returned = None if occupancy.returned is None else uses[occupancy.returned].states
        is_shared = occupancy.sharing is not None
        own = states(0)
        if occupancy.is_received:
            own = States(own.variable, np.full_like(own.numbers, -1))
        return live_tables(
            indicators,
            own,
            self._sizes(cost_function, domain),
            uses,
            occupancy.has_memory,
            occupancy.is_born,
            returned,
            states(len(domain.placed) - 1 - len(occupancy.progress)) if is_shared else None,
            self._is_same(occupancy, domain) if is_shared else None,
        )

    def bytes_of(self, occupancy: Occupancy, combinations: Sequence[Array]) -> Array:
        """Bytes for some combinations: of each variable of the domain's scope, its class in each."""
        domain = self.domain(*occupancy.key)
        states = [numbers[combinations[axis]] for axis, numbers in domain.placed]
        return self._bytes_of(occupancy, domain, states, combinations[0].shape)

    def _bytes_of(
        self, occupancy: Occupancy, domain: JointDomain, states: Sequence[Array], shape: tuple[int, ...]
    ) -> Array:
        """Bytes for combinations in arrays of this shape: `states` are, per view, its states' numbers."""
        cost_function = self.network.cost_functions[occupancy.cost_function]
        if occupancy.converted is None:
            return self._held(cost_function, domain, occupancy, states, shape)
        return self._moving(cost_function, domain, occupancy, states, shape)

    def _sizes(self, cost_function: CostFunction, domain: JointDomain) -> Array:
        import numpy as np

        prices = self.problem.prices
        return np.array([prices.bytes(cost_function.type, s) for s in domain.states], dtype=np.float64)

    def _held(
        self,
        cost_function: CostFunction,
        domain: JointDomain,
        occupancy: Occupancy,
        states: Sequence[Array],
        shape: tuple[int, ...],
    ) -> Array:
        import numpy as np

        sizes = self._sizes(cost_function, domain)
        source = states[0]
        needs = [states[hold.view] for hold in occupancy.holds]
        first = len(states) - len(occupancy.progress)
        goes_on = [
            True if hold.progress is None else states[first + hold.progress] == need
            for hold, need in zip(occupancy.holds, needs, strict=True)
        ]
        here = np.full_like(source, -1) if occupancy.is_received else source
        begun = [i for i, hold in enumerate(occupancy.holds) if hold.is_begun]
        lasting = [i for i, hold in enumerate(occupancy.holds) if hold.is_lasting]
        total = np.zeros(shape)
        original = np.zeros(shape, dtype=bool)
        if occupancy.has_memory:
            original |= occupancy.is_born
            for i in lasting:
                kept = (needs[i] == source) & goes_on[i]
                if not occupancy.holds[i].is_earlier:
                    made = [needs[j] == needs[i] for j in begun if occupancy.holds[j].is_earlier]
                    kept = kept | ~_any(made, shape)
                original |= kept
            if occupancy.sharing is not None:
                original &= ~self._is_same(occupancy, domain)[states[first - 1], source]
            total += np.where(original, sizes[source], 0.0)
        copied: list[Array] = []
        for n, i in enumerate(begun):
            again = _any([needs[j] == needs[i] for j in begun[:n]], shape)
            lasts = _any([(needs[j] == needs[i]) & goes_on[j] for j in lasting], shape)
            copied.append((needs[i] != here) & lasts)
            total += np.where(copied[-1] & ~again, sizes[needs[i]], 0.0)
        if occupancy.returned is not None:
            there = needs[occupancy.returned]
            held = _any([c & (needs[i] == there) for i, c in zip(begun, copied, strict=True)], shape)
            total -= np.where(held | (original & (there == source)), sizes[there], 0.0)
        return total

    def elsewhere(self, occupancy: Occupancy) -> tuple[View, Callable[[AxisStates, AxisStates], bool]] | None:
        """What a value may share its memory with, and whether it does, by the states of both; None if with nothing."""
        if occupancy.sharing is None:
            return None
        sharing = self._sharings[occupancy.sharing]
        return sharing.holder, lambda there, states: states in sharing.images.get(there, ())

    def _is_same(self, occupancy: Occupancy, domain: JointDomain) -> Array:
        """By the states of what a value shares its memory with, and its own, whether they are the same memory."""
        import numpy as np

        found = self.elsewhere(occupancy)
        assert found is not None
        holder, is_same = found
        return np.array([[is_same(t, s) for s in domain.states] for t in dict.fromkeys(holder.states)])

    def _moving(
        self,
        cost_function: CostFunction,
        domain: JointDomain,
        occupancy: Occupancy,
        states: Sequence[Array],
        shape: tuple[int, ...],
    ) -> Array:
        import numpy as np

        assert occupancy.converted is not None
        transient = self._transients(cost_function, domain, occupancy)
        return np.broadcast_to(transient[states[0], states[occupancy.converted]], shape)

    def _transients(self, cost_function: CostFunction, domain: JointDomain, occupancy: Occupancy) -> Array:
        """By the states from and to which a value is converted."""
        import numpy as np

        assert occupancy.converted is not None
        prices = self.problem.prices
        transient = np.zeros((len(domain.states), len(domain.states)))
        source, target = (domain.placed[view][1] for view in (0, occupancy.converted))
        for s in dict.fromkeys(source.tolist()):
            for t in dict.fromkeys(target.tolist()):
                conversion = prices.conversion(cost_function.type, domain.states[s], domain.states[t])
                if conversion is not None:
                    transient[s, t] = conversion.last_bytes if occupancy.is_last else conversion.transient_bytes
        return transient

    def least(self, occupancy: Occupancy) -> Mapping[int, Array]:
        """Of a cost function with too many combinations, bytes per choice of single variables that are held in any case."""
        cost_function, domain = (
            self.network.cost_functions[occupancy.cost_function],
            self.domain(*occupancy.key),
        )
        sizes = self._sizes(cost_function, domain)
        found: dict[int, Array] = {}
        views: Sequence[int] = ()
        plain = occupancy.has_memory and occupancy.returned is None and occupancy.sharing is None
        if plain and occupancy.converted is None:
            held = [h.view for h in occupancy.holds if h.is_begun and h.is_lasting and h.progress is None]
            views = [0] if occupancy.is_born else held[:1]
        for view in views:
            axis, numbers = domain.placed[view]
            found[domain.scope[axis]] = sizes[numbers][domain.classes[axis]]
        return found


def _any(conditions: Sequence[Array], shape: Sequence[int]) -> Array:
    import numpy as np

    found = np.zeros(shape, dtype=bool)
    for condition in conditions:
        found |= condition
    return found
