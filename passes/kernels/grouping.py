"""Which operations of a block a backend runs as one kernel: blocks in, lists of operations out.

Operations are seen by what they depend on and by shapes, not by their names. One that computes or copies goes over a *domain*: the
elements of its largest value. Operations of one domain that depend on each other, or read the same large value, may be one kernel, if
nothing outside of it would have to run in its middle. A reduction goes over its operand, and what is computed of its results belongs to it;
a kernel reduces rows (the last dims) or columns (the first), not both. One that reduces columns goes over its domain in another order, so with it is only
what nothing else needs; one that reduces everything ends there. Views are free and lie where they are needed.

What is cheap to compute again (elementwise, of few values, such as a conversion or a fill) is computed in every kernel that reads it.
What repeats an earlier operation (recomputation in a backward pass) joins no kernel of what it repeats.

Contractions, attention, communication and calls are kernels of their own; a backend may let a contraction add to a sum as it ends."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from xdsl.dialects.builtin import StringAttr, TensorType
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from distir.dialects.dist.attributes import placement
from distir.dialects.plugins import Registry
from distir.interpreters.model_names import MODULE
from distir.interpreters.work import is_view
from distir.passes.kernels.domains import (
    Fusible,
    elements,
    fusible_of,
    is_contraction,
    is_elementwise,
    is_fill,
    is_local,
    shape_of,
)

MOST_OPERATIONS = 64
"""In one kernel (Inductor's `max_fusion_size`)."""
MOST_TENSORS = 110
"""That one kernel of an optimizer updates (PyTorch's `multi_tensor_apply` at one list; four lists take 36, of which it launches three)."""


LONGEST_SUM = 8192
"""Elements that one block of a device adds; of more, blocks' sums are added later, and nothing goes over the elements again."""
MOST_READS = 4
"""Of what is computed again where it is read (Inductor's `realize_reads_threshold`)."""


@dataclass(frozen=True)
class Backend:
    """What is put together."""

    after_reductions: bool
    """Whether a kernel goes over its domain again after a reduction in it."""
    siblings: bool
    """Whether operations are put together that only read the same values."""
    inlines: bool
    """Whether what is cheap is computed in every kernel that reads it."""
    adds_to_sums: bool
    """Whether a contraction adds its result to a sum."""
    modules: str | None = ""
    """The modules of the model whose operations are put together, those within one called `layers`, say; "": everything; None: updates alone."""

    def compiles(self, op: Operation) -> bool:
        """Whether the operation is put together with others; updates of parameters are anyway."""
        if not self.modules:
            return self.modules is not None
        path = op.attributes.get(MODULE)
        return isinstance(path, StringAttr) and f".{self.modules}." in f".{path.data}."


BACKENDS: Registry[Backend] = Registry(
    "kernel backend",
    {
        "foreach": Backend(after_reductions=False, siblings=False, inlines=False, adds_to_sums=False, modules=None),
        "inductor": Backend(after_reductions=True, siblings=True, inlines=True, adds_to_sums=False),
        "megatron": Backend(after_reductions=False, siblings=False, inlines=False, adds_to_sums=True),
    },
    instance_of=Backend,
)
"""Foreach: PyTorch's eager mode, whose optimizers update many parameters at once. Inductor: torch.compile's scheduler. Megatron: Megatron-LM's kernels and jit-compiled functions, each a chain of elementwise operations
that may end in a softmax or a norm, and matmuls that accumulate into gradients. All update many parameters at once."""


@dataclass(eq=False)
class Unit:
    """A kernel to be, or an operation that is in none."""

    number: int
    ops: list[Operation]
    domain: int = 0
    """Elements; 0: nothing joins it."""
    place: Attribute | None = None
    reduces: str = ""
    """`rows`, `columns`, `both`, or nothing."""
    is_last: bool = False
    """Whether it ends in a reduction after which nothing joins."""
    is_whole: bool = False
    """Whether it reduces everything: what joins is of one element."""
    repeats: bool = False
    """Whether it has only operations that are there before."""
    is_compiled: bool = True
    """Whether its operations are those of a module that the backend puts together."""
    is_update: bool = False
    """Whether it updates several parameters."""
    bit: int = 0
    """What stands for it in `before`; none if it joins nothing."""
    before: int = 0
    """The units with a bit that it depends on, however indirectly."""
    reads: set[SSAValue] = field(default_factory=set[SSAValue])


class Grouping:
    """Groups of one block."""

    def __init__(self, block: Block, backend: Backend):
        self.backend = backend
        self._units = self._bits = 0
        self.unit_of: dict[Operation, Unit] = {}
        self._readers: dict[SSAValue, list[Unit]] = {}
        self._fusible: dict[Operation, Fusible | None] = {}
        self._numbers: dict[object, int] = {}
        self._number_of: dict[SSAValue, int] = {}
        joining = self._joining(block)
        feeding = _feeding(block, joining)
        for op in block.ops if joining else ():
            if op.next_op is not None or op.results:
                self._add(op, op in joining, op in feeding)
        if backend.siblings:
            self._join_siblings()
        self._join_updates()

    def groups(self) -> list[Group]:
        """Of several operations each, in program order; views at the ends are outside."""
        order = {op: i for i, op in enumerate(self.unit_of)}
        copied = self._copied() if self.backend.inlines else {}
        found: list[Group] = []
        for unit in dict.fromkeys(self.unit_of.values()):
            if unit.ops[0] in copied or not (unit.is_compiled or unit.is_update):
                continue
            own = _without_outer_views(sorted(unit.ops, key=order.__getitem__))
            others: set[Operation] = set()
            pending = list(own) if unit.domain > 0 else []
            while pending:
                for operand in pending.pop().operands:
                    if operand.owner in copied and operand.owner not in others:
                        others |= copied[operand.owner]  # pyright: ignore
                        pending += copied[operand.owner]  # pyright: ignore
            if sum(not is_view(op) for op in (*own, *others)) > 1:
                found.append(Group(own, sorted(others, key=order.__getitem__)))
        return found

    def _copied(self) -> dict[Operation, set[Operation]]:
        """The operations that every kernel computes that reads them, each with those of its unit."""
        found: dict[Operation, set[Operation]] = {}
        for unit in reversed(list(dict.fromkeys(self.unit_of.values()))):
            ops = set(unit.ops)
            if not unit.is_compiled:
                continue
            uses = [use.operation for op in unit.ops for r in op.results for use in r.uses if use.operation not in ops]
            if unit.domain <= 0 or unit.reduces or not uses or not all(map(is_elementwise, unit.ops)):
                continue
            reads = [v for v in unit.reads if v.owner not in ops and elements(v.type) > 1 and not is_fill(unit.ops[0])]
            in_kernels = all(
                use in self.unit_of and self.unit_of[use].domain > 0 and self.unit_of[use].is_compiled for use in uses
            )
            if in_kernels and len(reads) <= MOST_READS:
                found.update(dict.fromkeys(unit.ops, ops))
        return found

    def _joining(self, block: Block) -> set[Operation]:
        """The operations that may be in a kernel together with another: they make what one that may be in it reads, or, where siblings are put together,
        read a value of the size of their domain that another reads too."""
        found: set[Operation] = set()
        readers: dict[SSAValue, list[Operation]] = {}
        for op in filter(self._joins, block.ops):
            for value in dict.fromkeys(op.operands):
                if isinstance(value.owner, Operation) and self._joins(value.owner):
                    found.update((op, value.owner))
                if self.backend.siblings:
                    readers.setdefault(value, []).append(op)
        for value, ops in readers.items():
            if len(ops) > 1 and elements(value.type) in {f.elements for op in ops if (f := self._fusible[op])}:
                found.update(ops)
        return found

    def _joins(self, op: Operation) -> bool:
        if op not in self._fusible:
            self._fusible[op] = fusible_of(op)
        return self._fusible[op] is not None or (self.backend.adds_to_sums and is_contraction(op))

    def _repeats(self, op: Operation) -> bool:
        """Whether an equal operation on equal operands is there before."""
        operands = tuple(self._number_of.setdefault(v, len(self._number_of)) for v in op.operands)
        key = (op.name, tuple(op.properties.values()), operands, tuple(op.result_types))
        repeats = key in self._numbers
        first = self._numbers.setdefault(key, -len(self._numbers) * 1000 - 1)
        for i, result in enumerate(op.results):
            self._number_of[result] = first - i
        return repeats and bool(op.operands)

    def _add(self, op: Operation, joins: bool, feeds: bool) -> None:
        makers = self._makers(op)
        repeats = self._repeats(op)
        if not joins and not (feeds and any(maker.bit | maker.before for maker in makers)):
            return  # lies between no two operations that one kernel may have
        fusible = self._fusible[op]
        if fusible is not None and not is_fill(op):
            for maker in reversed(makers):
                if repeats > maker.repeats or not self._takes(maker, fusible):
                    continue
                if self._join(op, maker, fusible):
                    self._merge_makers(self.unit_of[op], makers)
                    return
        unit = Unit(self._units, [op], repeats=repeats, is_compiled=self.backend.compiles(op))
        self._units += 1
        if joins:
            unit.bit = 1 << self._bits
            self._bits += 1
        if fusible is not None:
            unit.domain, unit.place = fusible.elements, fusible.place
            self._reduce(unit, op, fusible)
        elif self.backend.adds_to_sums and is_contraction(op):
            unit.domain, unit.place = -1, placement(op.results[0].type)
        self._enter(unit, op, makers)

    def _makers(self, op: Operation) -> list[Unit]:
        """The units that make the operands, oldest first."""
        owners = {self.unit_of[v.owner].number: self.unit_of[v.owner] for v in op.operands if v.owner in self.unit_of}  # pyright: ignore
        return [owners[number] for number in sorted(owners)]

    def _takes(self, unit: Unit, fusible: Fusible) -> bool:
        """Whether an operation like this may be in the kernel, as far as the two are concerned."""
        if unit.place != fusible.place:
            return False
        if unit.domain == -1:  # a contraction
            return fusible.adds
        if fusible.is_view:
            return unit.domain > 0
        if (
            not unit.domain
            or unit.is_last
            or (unit.is_whole and fusible.elements > 1)
            or len(unit.ops) >= MOST_OPERATIONS
        ):
            return False
        same = fusible.elements == unit.domain and (unit.reduces != "columns" or fusible.reduces == "columns")
        within = (
            unit.reduces in ("rows", "columns")
            and fusible.elements < unit.domain
            and not fusible.reduces
            and unit.domain % max(fusible.elements, 1) == 0
        )
        if not (same or within):
            return False
        return not fusible.reduces or not unit.reduces or (fusible.reduces == unit.reduces != "both")

    def _join(self, op: Operation, unit: Unit, fusible: Fusible) -> bool:
        """Puts the operation into the unit, unless something between has to run in its middle."""
        if self.backend.compiles(op) != unit.is_compiled:
            return False
        if any(maker.before & unit.bit for maker in self._makers(op) if maker is not unit):
            return False
        if unit.domain == -1 and not _is_alone(unit, op):
            return False
        if fusible.reduces == "columns" != unit.reduces and not _is_only_for(unit, op):
            return False
        unit.ops.append(op)
        self._reduce(unit, op, fusible)
        self._enter(unit, op, self._makers(op))
        return True

    def _reduce(self, unit: Unit, op: Operation, fusible: Fusible) -> None:
        if fusible.reduces:
            unit.reduces = fusible.reduces
            unit.is_last = not self.backend.after_reductions
            unit.is_whole = elements(op.results[0].type) == 1 and fusible.elements > LONGEST_SUM

    def _enter(self, unit: Unit, op: Operation, makers: Sequence[Unit]) -> None:
        self.unit_of[op] = unit
        for operand in op.operands:
            if operand.owner not in self.unit_of or self.unit_of[operand.owner] is not unit:  # pyright: ignore
                unit.reads.add(operand)
                self._readers.setdefault(operand, []).append(unit)
        self._depends(unit, makers)

    def _depends(self, unit: Unit, on: Sequence[Unit]) -> None:
        """Notes what a unit depends on, and what depends on it then does too."""
        new = 0
        for maker in on:
            if maker is not unit:
                new |= maker.before | maker.bit
        pending = [unit]
        while pending:
            later = pending.pop()
            if later.before | new != later.before:
                later.before |= new
                pending += self._users(later)

    def _users(self, unit: Unit) -> list[Unit]:
        found = (self.unit_of.get(use.operation) for op in unit.ops for r in op.results for use in r.uses)
        return [user for user in dict.fromkeys(found) if user is not None and user is not unit]

    def _merge_makers(self, unit: Unit, makers: Sequence[Unit]) -> None:
        for maker in makers:
            if maker is not unit:
                self._merge(maker, unit)

    def _merge(self, a: Unit, b: Unit) -> bool:
        """Makes one unit of two, if they go over one domain and nothing lies between."""
        if not self._fits(a, b) or self._is_between(a, b) or self._is_between(b, a):
            return False
        self._absorb(a, b)
        return True

    def _fits(self, a: Unit, b: Unit) -> bool:
        if a.domain <= 0 or a.domain != b.domain or a.place != b.place or len(a.ops) + len(b.ops) > MOST_OPERATIONS:
            return False
        first, second = sorted((a, b), key=lambda unit: unit.number)
        if a.is_last or b.is_last or second.repeats > first.repeats or a.is_compiled != b.is_compiled:
            return False
        if a.is_whole or b.is_whole or "columns" in (a.reduces, b.reduces):
            return a.reduces == b.reduces == "columns"
        return not a.reduces or not b.reduces or (a.reduces == b.reduces != "both")

    def _is_between(self, first: Unit, last: Unit) -> bool:
        """Whether another unit needs the first and is needed by the last."""
        makers = {self.unit_of.get(value.owner) for value in last.reads}  # pyright: ignore
        return any(maker is not None and maker.before & first.bit for maker in makers if maker is not last)

    def _absorb(self, a: Unit, b: Unit) -> None:
        """Unit b goes into a."""
        for op in b.ops:
            self.unit_of[op] = a
        a.ops += b.ops
        a.reads |= b.reads
        a.reduces = a.reduces or b.reduces
        a.before = (a.before | b.before) & ~(a.bit | b.bit)
        for value in b.reads:
            self._readers[value] = [a if each is b else each for each in self._readers[value]]
        for user in self._users(a):
            self._depends(user, [a])

    def _join_siblings(self) -> None:
        """Units that read the same value of the size of their domain."""
        for value in list(self._readers):
            first, *others = list(dict.fromkeys(self._readers[value]))
            for other in others:
                if first.domain <= 0:
                    first = other
                elif elements(value.type) == first.domain and other is not first:
                    self._merge(first, other)

    def _join_updates(self) -> None:
        """Units that do the same to values of other shapes and of which everything is returned (the optimizer's)."""
        alike: dict[object, list[Unit]] = {}
        for unit in dict.fromkeys(self.unit_of.values()):
            ends = (
                use.operation
                for op in unit.ops
                for r in op.results
                for use in r.uses
                if self.unit_of.get(use.operation) is not unit
            )
            if unit.domain > 0 and not unit.reduces and all(map(is_local, unit.ops)) and all(map(_returns, ends)):
                alike.setdefault((unit.place, *(_signature(op) for op in unit.ops)), []).append(unit)
        for units in alike.values():
            if len(units[0].ops) < 2:
                continue
            first: Unit | None = None
            count = 0
            for unit in units:
                unit.is_update = True
                if first is None or count >= MOST_TENSORS:
                    first, count = unit, 1
                else:
                    self._absorb(first, unit)
                    count += 1


@dataclass(frozen=True)
class Group:
    """One kernel."""

    ops: list[Operation]
    copied: list[Operation]
    """What it computes too, for itself."""


def _feeding(block: Block, joining: Collection[Operation]) -> set[Operation]:
    """The operations whose results those need, however indirectly."""
    found: set[Operation] = set()
    for op in reversed(list(block.ops)):
        users = (use.operation for result in op.results for use in result.uses)
        if any(user in found or user in joining for user in users):
            found.add(op)
    return found


def _is_alone(unit: Unit, op: Operation) -> bool:
    """Whether nothing but this operation uses what the unit has made so far."""
    last = unit.ops[-1]
    return last.results[0].has_one_use() and any(operand is last.results[0] for operand in op.operands)


def _is_only_for(unit: Unit, op: Operation) -> bool:
    """Whether nothing else uses what the unit makes."""
    inside = {*unit.ops, op}
    return all(use.operation in inside for each in unit.ops for r in each.results for use in r.uses)


def _returns(op: Operation) -> bool:
    return isinstance(op, ReturnOp)


def _signature(op: Operation) -> object:
    numbers = tuple(sorted((name, str(value)) for name, value in op.properties.items()))
    return op.name, numbers, tuple(element_of(v.type) for v in (*op.operands, *op.results))


def _without_outer_views(ops: Sequence[Operation]) -> list[Operation]:
    """Without the views that no later operation of the group reads: they are free outside."""
    kept: list[Operation] = []
    needed: set[SSAValue] = set()
    for op in reversed(ops):
        if not is_view(op) or any(result in needed for result in op.results):
            kept.append(op)
            needed.update(op.operands)
    return kept[::-1]


def element_of(type_: Attribute) -> object:
    return (
        (cast("TensorType[Any]", type_).element_type, len(shape_of(type_))) if isinstance(type_, TensorType) else type_
    )
