"""Which layers are computed again, and how: in go a training step and a policy's text; out comes the step that does so.

The forward part is the program up to the last operation of the forward part (`stages.forward_part`) that something else takes. Layers are
the functions that it calls; where more is kept outside of them, the operations between are cut into segments where few bytes cross."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, groupby

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Operation, OpResult, SSAValue

from distir.dialects.errors import DistirError
from distir.interpreters.costs import Costs
from distir.interpreters.model_names import model_name
from distir.interpreters.walk import values_read
from distir.interpreters.work import is_view, type_bytes
from distir.passes.distribution.inline import erase_unreached
from distir.passes.distribution.pipeline.stages import BEFORE, FORWARD, forward_part
from distir.passes.recomputation.rewriting import Layer, Repeating
from distir.passes.recomputation.segments import (
    Choice,
    Repetition,
    Segment,
    cheap_cuts,
    keep_all_but,
    keep_nothing,
    keep_what_is_dear,
)
from distir.passes.recomputation.staged import Groups
from distir.passes.structure import callee_of, functions, is_constant_expression, user_of

WORDS: Mapping[str, Choice] = {"full": keep_nothing, "selective": keep_what_is_dear}


class NothingOfThatName(DistirError):
    """A policy names what the forward part does not have."""


@dataclass(frozen=True)
class Policy:
    """A policy, read."""

    choice: Choice | None
    """None: nothing is repeated."""
    counts: Sequence[int] = ()
    """How many layers of each stage; of stages beyond the last number as many as that; none: all."""
    names: Sequence[str] = ()

    @staticmethod
    def read(text: str) -> Policy:
        """`none`, `full`, `selective`, `full:2`, `full:4/2/0`, or names with commas or plus signs between them. Raises DistirError for what is none of these."""
        word, colon, numbers = text.partition(":")
        if text == "none":
            return Policy(None)
        if word in WORDS:
            counts = numbers.split("/") if colon else []
            if not all(re.fullmatch(r"\d{1,9}", count) for count in counts):
                raise DistirError(f"policy: expected numbers of layers as in '{word}:4/2/0', got '{text}'")
            return Policy(WORDS[word], [int(count) for count in counts])
        names = [name.strip() for name in re.split("[,+]", text)]
        if not all(names):
            raise DistirError(
                f"policy: expected none, full, selective, or names of modules or operations, got '{text}'"
            )
        return Policy(keep_all_but(lambda op: any(is_called(op, name) for name in names)), (), names)

    def layers_of(self, stage: int) -> int | None:
        """How many layers of a stage are repeated; None: all."""
        return self.counts[min(stage, len(self.counts) - 1)] if self.counts else None


def is_called(op: Operation, name: str) -> bool:
    """Whether a name is the operation's (`aten.div.Scalar`, `div`), or that of a module or node that it is of (`blocks.3.attention`, `attention`)."""
    wanted = re.split(r"[./]", name)
    paths = [re.split(r"[./]", text) for text in (op.name, model_name(op))]
    return any(path[i : i + len(wanted)] == wanted for path in paths for i in range(len(path)))


@dataclass
class Recomputation:
    """A training step that gets its policy."""

    module: ModuleOp
    entry: FuncOp
    costs: Costs
    policy: Policy
    groups: Groups
    """Of the operations of a staged program."""

    def __post_init__(self) -> None:
        self.functions = functions(self.module)
        self._bodies: dict[str, int] = {}
        ops = [op for op in self.entry.body.block.ops if not is_constant_expression(op)]
        self.early, self.late = self._parts(ops[:-1])
        self._forward = set(self.early)

    def _parts(self, ops: Sequence[Operation]) -> tuple[Sequence[Operation], Sequence[Operation]]:
        """The operations of the forward part, in order, and those of the backward part and after."""
        if self.groups:
            ops = [op for op in ops if self.groups[op].phase != BEFORE]
            early = {op for op in ops if self.groups[op].phase == FORWARD}
        else:
            forward, turn = forward_part(self.entry, ops), 0
            for i, op in enumerate(ops):
                users = {user_of(r, u) for r in op.results for u in r.uses}.difference(forward)
                if op in forward and any(not isinstance(user, ReturnOp) for user in users):
                    turn = i + 1
            early = {*ops[:turn], *forward}
        return [op for op in ops if op in early], [op for op in ops if op not in early]

    def apply(self) -> None:
        """Repeats what the policy says. Raises DistirError for a name that nothing in the forward part has."""
        choice = self.policy.choice
        if choice is None or not self.late:
            return
        for name in self.policy.names:
            bodies = (self.functions[callee].walk() for callee in self._calls())
            if not any(is_called(op, name) for op in chain(self.early, *bodies)):
                raise NothingOfThatName(f"policy: nothing in the forward part is of a module or an operation '{name}'")
        layers = {name: calls for name, calls in self._calls().items() if self._repetition(name, calls, choice).made}
        segments = self._segments({call for calls in layers.values() for call in calls})
        repetitions = [r for s in segments if (r := s.closed(choice(s))).made]
        repeating = Repeating(groups=self.groups)
        chosen = self._first(
            [*(c for calls in layers.values() for c in calls), *(r.segment.ops[0] for r in repetitions)]
        )
        for repetition in repetitions:
            if repetition.segment.ops[0] in chosen:
                for op in repetition.ops:
                    repeating.repeat(op)
        replaced: list[Operation] = []
        for name, calls in layers.items():
            if own := [call for call in calls if call in chosen]:
                layer = Layer(self.module, self.functions[name], self._repetition(name, own, choice))
                for call in own:
                    layer.replace(call, repeating)
                replaced += own
        repeating.rewire(self.late)
        for op in replaced:
            self.entry.body.block.erase_op(op)
        for op in [op for repetition in repetitions for op in reversed(repetition.ops)]:
            if not any(True for r in op.results for _ in r.uses):
                self.entry.body.block.erase_op(op)
        erase_unreached(self.module, self.entry.sym_name.data)

    def _stage(self, op: Operation) -> int:
        return self.groups[op].stage if self.groups else 0

    def _calls(self) -> dict[str, list[CallOp]]:
        """The calls of the forward part, by function."""
        found: dict[str, list[CallOp]] = defaultdict(list)
        for op in self.early:
            if isinstance(op, CallOp):
                found[op.callee.string_value()].append(op)
        return found

    def _first(self, heads: Sequence[Operation]) -> set[Operation]:
        """Of layers, each given as an operation that it is or begins with, those that are repeated: so many of each stage, the first ones."""
        order = {op: i for i, op in enumerate(self.early)}
        of_stage: dict[int, list[Operation]] = defaultdict(list)
        for head in sorted(heads, key=order.__getitem__):
            of_stage[self._stage(head)].append(head)
        return {head for stage, found in of_stage.items() for head in found[: self.policy.layers_of(stage)]}

    def _repetition(self, name: str, calls: Sequence[CallOp], choice: Choice) -> Repetition:
        """What is repeated of a function that these calls run."""
        segment = self._layer(self.functions[name], calls)
        return segment.closed(choice(segment))

    def _layer(self, function: FuncOp, calls: Sequence[CallOp]) -> Segment:
        """A function of the forward part, as these calls take it."""
        block = function.body.block
        *ops, last = block.ops
        early, late = dict[SSAValue, int](), dict[SSAValue, None]()
        for call in calls:
            for result, value in zip(call.results, last.operands, strict=True):
                users = {user_of(result, use) for use in result.uses}
                early.update(dict.fromkeys([value] * (not users <= set(self.late)), 0))
                late.update(dict.fromkeys([value] * (not users.isdisjoint(self.late))))
        for i, argument in enumerate(block.args):
            given = {self._storage(call.operands[i]) for call in calls}
            early[argument] = -(-sum(map(self._bytes_of_given, given)) // len(calls))
        return Segment(ops, [v for v in late if v not in early], early, self._picoseconds)

    def _segments(self, layers: set[CallOp]) -> list[Segment]:
        """What is not in layers, of each stage: for names, all of it; otherwise, where more is kept of it than of layers, cut into segments."""
        stages = [list(ops) for _, ops in groupby(self.early, self._stage)]
        if self.policy.names:
            return [self._segment(ops) for ops in stages]
        kept = {v: type_bytes(v.type) for v in map(self._storage, self._taken_late) if v.owner in self._forward}
        inside = sum(bytes for v, bytes in kept.items() if v.owner in layers)
        if 2 * inside >= sum(kept.values()):
            return []
        parts = [(is_layer, list(run)) for ops in stages for is_layer, run in groupby(ops, layers.__contains__)]
        runs = [run for is_layer, run in parts if not is_layer]
        return [self._segment(ops) for run in runs for ops in self._cut(run, kept)]

    def _cut(self, run: Sequence[Operation], kept: Mapping[SSAValue, int]) -> Sequence[Sequence[Operation]]:
        """A run of operations of the forward part, cut where little crosses."""
        place = {op: i for i, op in enumerate(run)}
        made = {r: i for op, i in place.items() for r in op.results}
        last_use: dict[SSAValue, int] = {}
        for op in self.early:
            last_use.update(dict.fromkeys(map(self._storage, values_read(op)), place.get(op, len(run))))
        crossing = [0] * (len(run) + 1)
        for value, made_at in made.items():
            last = last_use.get(value, made_at)
            crossing[made_at] += type_bytes(value.type)
            crossing[last] -= type_bytes(value.type)
        own = [sum(kept.get(r, 0) for r in op.results) for op in run]
        return cheap_cuts(run, own, list(accumulate(crossing)))

    def _segment(self, ops: Sequence[Operation]) -> Segment:
        """Operations of the forward part in the entry."""
        own = set(ops)
        held = {v: self._bytes_of_given(self._storage(v)) for op in ops for v in values_read(op) if v.owner not in own}
        needed: list[SSAValue] = []
        for result in (r for op in ops for r in op.results):
            users = {user_of(result, use) for use in result.uses}
            if not users <= own.union(self.late):
                held[result] = 0
            elif not users.isdisjoint(self.late):
                needed.append(result)
        return Segment(ops, needed, held, self._picoseconds)

    @cached_property
    def _taken_late(self) -> Mapping[SSAValue, None]:
        """What the backward part takes."""
        return dict.fromkeys(v for op in self.late for v in values_read(op))

    @cached_property
    def _kept(self) -> set[SSAValue]:
        """The same, as what they are the memory of."""
        return {self._storage(v) for v in self._taken_late}

    def _storage(self, value: SSAValue) -> SSAValue:
        """The value of the entry in whose memory a value is."""
        while isinstance(value, OpResult) and is_view(value.op):
            value = value.op.operands[0]
        return value

    def _bytes_of_given(self, storage: SSAValue) -> int:
        """What it takes to keep something: nothing if it is there anyway."""
        is_there = storage.owner not in self._forward or storage in self._kept
        return 0 if is_there else type_bytes(storage.type)

    def _picoseconds(self, op: Operation) -> int:
        """What an operation takes on one device."""
        if (name := callee_of(op)) is None:
            return self.costs.of(op, (0,)).picoseconds
        if name not in self._bodies:
            body = self.functions[name].body.block
            self._bodies[name] = sum(self._picoseconds(o) for o in body.ops if o is not body.last_op)
        return self._bodies[name]
