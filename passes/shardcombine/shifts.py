"""Shifts: an operator counts positions from an integer of its own, such as the diagonal at which a triangle begins.
In go a probe and its cuts so far; out come cuts of further factors, each with the integer to shift.

Shards of its rows are the operator with another integer, which is higher or lower by the start of the shard. Which integer that is,
and which way it goes, is found by trying; that it is so at every value and not at one, by trying all from below the first
position to beyond the last, on floats, which kernels run fast."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from distir.dialects.sharding import Combine, Shift
from distir.passes.shardcombine.arithmetic import Exact
from distir.passes.shardcombine.cuts import Cut, Layout, Survivor, expected_shapes, local_point, portions
from distir.passes.shardcombine.domains import Array
from distir.passes.shardcombine.draws import SHARDS, Trial
from distir.passes.shardcombine.factors import Factor
from distir.passes.shardcombine.probe_op import ProbeOp, operand_name
from distir.passes.shardcombine.probing import Probe
from distir.passes.shardcombine.stated_numbers import LARGEST_NUMBER, grown

Owner = int | str


def shifted(probe: Probe, survivors: Sequence[Survivor]) -> list[Survivor]:
    """The factors that no survivor carries, but that can be cut if an integer is shifted."""
    slots, factors = probe.probe_op.slots, probe.small.factors
    scaled = {(slots[i].owner, slots[i].position) for factor in factors for i in factor.slots}
    carried = {i for survivor in survivors for i in survivor.cut.factor.slots}
    found: list[Survivor] = []
    for factor in factors:
        if carried.isdisjoint(factor.slots) and (cut := _plain_cut(probe, factor)) is not None:
            for owner, position in probe.probe_op.stated.keys() - scaled:
                if (survivor := Shifted(probe, cut, owner, position).survivor()) is not None:
                    found.append(survivor)
                    break
    return found


def _plain_cut(probe: Probe, factor: Factor) -> Cut | None:
    """The dims of a factor in one piece, in which it is alone: positions are counted there."""
    small, dims = probe.small, [i for i in factor.slots if not probe.probe_op.slots[i].is_size]
    alone = all(small.point[i] == factor.extent for i in factor.slots)
    if not alone or len({r for r, _ in factor.results}) < len(factor.results):
        return None
    if any((shape := small.shapes[r]) is None or shape[d] != factor.extent for r, d in factor.results):
        return None
    return Cut(factor, {i: Layout() for i in dims})


class Shifted:
    """One candidate: a factor and an integer that the op states."""

    def __init__(self, probe: Probe, cut: Cut, owner: Owner, position: int):
        self.probe, self.cut, self.owner, self.position = probe, cut, owner, position
        self.own = probe.probe_op.stated[owner, position]
        self._probe_ops: dict[int, ProbeOp] = {}

    @staticmethod
    def of(probe: Probe, cut: Cut, shift: Shift) -> Shifted | None:
        """The candidate that a shift names; None if the op states no such number."""
        op = probe.probe_op.op
        for owner, position in probe.probe_op.stated:
            name = owner if isinstance(owner, str) else operand_name(op, owner)
            if (name, position) == (shift.name, shift.position):
                return Shifted(probe, cut, owner, position)
        return None

    def holds(self, shift: Shift, combines: Sequence[Combine], trials: Sequence[Trial]) -> bool:
        """Whether these combines make the whole of two and three shards, at the op's own number, on these trials."""
        candidates = [[each] for each in combines]
        each_holds = (self._narrows(self.probe, self.cut, shift, trial, self.own, candidates) for trial in trials)
        return bool(trials) and all(each_holds)

    def survivor(self) -> Survivor | None:
        """The cut with its combines and its shift; None if it does not hold."""
        if not self._counts_positions():
            return None
        for falls in (False, True):
            name = self.owner if isinstance(self.owner, str) else operand_name(self.probe.probe_op.op, self.owner)
            shift = Shift(name, self.position, falls)
            if (combines := self._combines(shift)) is not None and self._reaches(shift, combines):
                return Survivor(self.cut, combines, offset=shift)
        return None

    def _at(self, number: int) -> ProbeOp:
        if number not in self._probe_ops:
            self._probe_ops[number] = self.probe.probe_op.stating(self.owner, self.position, number)
        return self._probe_ops[number]

    @property
    def _numbers(self) -> range:
        """From below the first position to beyond the last."""
        return range(-self.cut.factor.extent - 1, self.cut.factor.extent + 2)

    def _counts_positions(self) -> bool:
        """Whether types are the same at every number, and results are not. Numbers come one by one from the op's own on, and none
        after one that it rejects: an axis far outside of its dims may crash what infers types."""
        point, shapes, own = self.probe.small.point, self.probe.small.shapes, self.own
        if abs(own) > LARGEST_NUMBER or (trial := next(self.probe.float_trials(), None)) is None:
            return False
        low, *_, high = self._numbers
        different: set[bytes] = set()
        for number in (*range(own, high + 1), *range(own, low - 1, -1)):
            if self._at(number).infer(point) != shapes:
                return False
            if (results := self._run(number, point, trial.draw.arrays, trial)) is None:
                return False
            different.add(b"".join(b"" if r is None else r.tobytes() for r in results))
        return len(different) >= self.cut.factor.extent

    def _run(
        self, number: int, point: tuple[int, ...], arrays: dict[int, Array], trial: Trial
    ) -> list[Array | None] | None:
        try:
            results = self._at(number).evaluate(point, arrays)
            return [None if result is None else trial.arithmetic.readable(result) for result in results]
        except Exception:  # rejected, or not finite
            return None

    def _combines(self, shift: Shift) -> tuple[Combine, ...] | None:
        """How results combine, at every number: on floats, and at the op's own as the rest of the rule is found."""
        probe = self.probe
        if (candidates := probe.candidates(self.cut, ())) is None:
            return None
        for trial in probe.float_trials():
            for number in self._numbers:
                if not self._narrows(probe, self.cut, shift, trial, number, candidates):
                    return None
        for trial in probe.draws_tried() if isinstance(probe.arithmetic, Exact) else ():
            if not self._narrows(probe, self.cut, shift, trial, self.own, candidates):
                return None
        return tuple(each[0] for each in candidates)

    def _narrows(
        self, probe: Probe, cut: Cut, shift: Shift, trial: Trial, number: int, candidates: list[list[Combine]]
    ) -> bool:
        """Keeps the candidates that make the whole at this number of what two and three shards give; False if none is left."""
        whole = self._run(number, probe.small.point, trial.draw.arrays, trial)
        if whole is None:
            return False
        for shards in (n for n in SHARDS if n <= cut.factor.extent):
            parts = portions(cut.factor.extent, shards)
            results: list[list[Array | None]] = []
            for shard, part in enumerate(parts):
                local, moved = local_point(probe.small, cut.factor, part), number + shift.by(sum(parts[:shard]))
                if list(self._at(moved).infer(local) or ()) != expected_shapes(probe.small, cut.factor, part):
                    return False
                result = self._run(moved, local, probe.shard(trial.draw, cut, parts, shard), trial)
                if result is None:
                    return False
                results.append(result)
            weights = [Fraction(part, cut.factor.extent) for part in parts]
            drawn = Trial(trial.draw.giving(whole), shards, trial.arithmetic)
            candidates[:] = probe.holding(drawn, results, candidates, parts, weights)
            if not all(candidates):
                return False
        return True

    def _reaches(self, shift: Shift, combines: tuple[Combine, ...]) -> bool:
        """Whether it holds too with dims beyond the op's own number, and, where numbers in a callable's code are not stated, as long as
        they were found."""
        probe_op = self.probe.probe_op
        beyond = min(
            LARGEST_NUMBER, max(abs(self.own), *(() if probe_op.domains.states_numbers else probe_op.point), 0)
        )
        for longer, larger in grown(self.probe, beyond):
            cut = Cut(longer, self.cut.layouts) if longer.slots == self.cut.factor.slots else self.cut
            numbers = {self.own, *(longer.extent * eighths // 8 for eighths in range(-8, 9))}
            trial, candidates = next(larger.float_trials(), None), [[each] for each in combines]
            if trial is None or not all(self._narrows(larger, cut, shift, trial, n, candidates) for n in numbers):
                return False
        return True
