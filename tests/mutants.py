"""Mutants of programs: a program of level 3 or of one rank goes in; copies come out that each have one small fault (an operation
dropped, a slice moved, a root changed) and still verify as IR. Whoever claims to know that a program is right is tried with them.

    for description, mutant in mutants(module, count=100, seed=0): ...

Not every mutant computes something else: two equal values may have been swapped. `kind_of(description)` is the mutation operator.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from typing import Any, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    FloatAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    TensorType,
    TupleType,
    i1,
)
from xdsl.dialects.func import CallOp as PlainCallOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from distir.dialects.dist import CallOp, PartAttr, SliceOp
from distir.dialects.dist.attributes import RationalAttr, placed, relocated
from distir.dialects.dist.communication import ManyToOneOp, OneToManyOp, SendOp
from distir.dialects.reductions import Reduction, ReductionAttr
from tests.mutation import Copy, Edit, Mutation
from tests.sibling_mutations import sibling_mutations
from tests.value_mutations import value_mutations
from tests.wider_mutations import wider_mutations

CANDIDATES = 3
"""Other values that an operand is tried with."""


def mutants(
    module: ModuleOp, count: int | None = None, seed: int = 0, kinds: Collection[str] = ()
) -> Iterator[tuple[str, ModuleOp]]:
    """Each mutant that verifies, with what was changed. With `count`, that many at most, drawn so that all operators (of these `kinds`) have
    their share."""
    rng = random.Random(seed)
    by_kind: dict[str, list[Mutation]] = {}
    for mutation in mutations(module, rng):
        if not kinds or mutation.kind in kinds:
            by_kind.setdefault(mutation.kind, []).append(mutation)
    for of_kind in by_kind.values():
        rng.shuffle(of_kind)
    left = float("inf") if count is None else count
    while by_kind and left > 0:
        for kind in list(by_kind):
            if left <= 0:
                return
            if (mutant := _next(module, by_kind[kind])) is None:
                del by_kind[kind]
                continue
            left -= 1
            yield mutant


def _next(module: ModuleOp, of_kind: list[Mutation]) -> tuple[str, ModuleOp] | None:
    """The next of these that verifies; it and those before it are used up."""
    while of_kind:
        mutation = of_kind.pop()
        if (mutant := mutation.applied(module)) is not None:
            return str(mutation), mutant
    return None


def kind_of(description: str) -> str:
    """The mutation operator of a mutant."""
    return description.partition(":")[0]


def mutations(module: ModuleOp, rng: random.Random) -> Iterator[Mutation]:
    """All mutations of a module, those too that will not verify."""
    functions = [op for op in module.ops if isinstance(op, FuncOp)]
    for function in functions:
        yield from _interface(function)
        visible: dict[Attribute, list[SSAValue]] = {}
        for argument in function.body.block.args:
            visible.setdefault(_plain(argument.type), []).append(argument)
        for op in function.body.block.ops:
            yield from _operands(op, visible, rng)
            yield from _attributes(op)
            if isinstance(op, CallOp | PlainCallOp):
                yield from _calls(op, functions)
            if not isinstance(op, ReturnOp):
                yield from _existence(op, visible)
            for result in op.results:
                visible.setdefault(_plain(result.type), []).append(result)
    yield from wider_mutations(module, rng)
    yield from value_mutations(module, rng)
    yield from sibling_mutations(module)


def _plain(type_: Attribute) -> Attribute:
    """The type on no device."""
    return placed(type_, None) if isinstance(type_, TensorType | TupleType) else type_


# --- what an operation reads ---


def _operands(op: Operation, visible: dict[Attribute, list[SSAValue]], rng: random.Random) -> Iterator[Mutation]:
    """Other sources, operands that change places, and participants that do."""
    for i, operand in enumerate(op.operands):
        others = [v for v in visible.get(_plain(operand.type), ()) if v is not operand]
        alike = [v for v in others if v.type == operand.type]
        moved = (
            [v for v in others if v.type != operand.type] if isinstance(op, SendOp | OneToManyOp | ManyToOneOp) else []
        )
        for kind, values in (("source", alike), ("source device", moved)):
            for other in rng.sample(values, min(CANDIDATES, len(values))):
                yield Mutation(kind, op, f"operand {i} is %{_name(other)}", _set_operand(op, i, other))
        for j in range(i + 1, len(op.operands)):
            if op.operands[j] is operand or _plain(op.operands[j].type) != _plain(operand.type):
                continue
            if op.operands[j].type == operand.type:
                yield Mutation("swapped operands", op, f"operands {i} and {j}", _swap_operands(op, i, j))
            elif len(op.results) == len(op.operands):
                yield Mutation("order of participants", op, f"{i} and {j}", _swap_participants(op, i, j))
            elif isinstance(op, ManyToOneOp):
                yield Mutation("order of participants", op, f"{i} and {j}", _swap_operands(op, i, j))
    for i, result in enumerate(op.results):
        for j in range(i + 1, len(op.results)):
            if op.results[j].type == result.type:
                yield Mutation("swapped results", op, f"results {i} and {j}", _swap_results(op, i, j))


def _name(value: SSAValue) -> str:
    owner = value.owner
    return value.name_hint or (f"arg{value.index}" if isinstance(owner, Block) else owner.name)  # type: ignore[attr-defined]


def _set_operand(op: Operation, index: int, value: SSAValue) -> Edit:
    def edit(copy: Copy) -> None:
        copy.ops[op].operands[index] = copy.values[value]

    return edit


def _swap_operands(op: Operation, i: int, j: int) -> Edit:
    def edit(copy: Copy) -> None:
        operands = copy.ops[op].operands
        operands[i], operands[j] = operands[j], operands[i]

    return edit


def _swap_results(op: Operation, i: int, j: int) -> Edit:
    def edit(copy: Copy) -> None:
        _exchange_uses(copy.ops[op].results[i], copy.ops[op].results[j])

    return edit


def _exchange_uses(a: SSAValue, b: SSAValue) -> None:
    uses = [(use, b) for use in a.uses] + [(use, a) for use in b.uses]
    for use, value in uses:
        use.operation.operands[use.index] = value


def _swap_participants(op: Operation, i: int, j: int) -> Edit:
    """A collective in which two devices have each other's place."""

    def edit(copy: Copy) -> None:
        mutant = copy.ops[op]
        mutant.operands[i], mutant.operands[j] = mutant.operands[j], mutant.operands[i]
        results = mutant.results
        types = [r.type for r in results]
        types[i], types[j] = types[j], types[i]
        made = _recreated(mutant, types)
        for k, result in enumerate(list(results)):
            result.replace_all_uses_with(made.results[{i: j, j: i}.get(k, k)])
        mutant.detach()
        mutant.erase()

    return edit


def _recreated(op: Operation, types: Sequence[Attribute]) -> Operation:
    """The operation again, before itself, with results of these types."""
    made = type(op).create(
        operands=list(op.operands), result_types=types, properties=dict(op.properties), attributes=dict(op.attributes)
    )
    block = op.parent
    assert block is not None
    block.insert_op_before(made, op)
    return made


# --- operations that are there or not ---


def _existence(op: Operation, visible: dict[Attribute, list[SSAValue]]) -> Iterator[Mutation]:
    """Dropped (its results are values that were there before), done twice, and exchanged with the next one."""
    replacements: list[SSAValue] = []
    for result in op.results:
        own = [v for v in op.operands if v.type == result.type]
        alike = own or [v for v in visible.get(_plain(result.type), ()) if v.type == result.type]
        if alike:
            replacements.append(own[0] if own else alike[-1])
    if len(replacements) == len(op.results):
        says = ", ".join(f"%{_name(v)}" for v in replacements) or "nothing"
        yield Mutation("drop", op, f"{says} instead", _drop(op, replacements))
    if op.results and [_plain(v.type) for v in op.operands[: len(op.results)]] == [_plain(r.type) for r in op.results]:
        yield Mutation("duplicate", op, "done to its own results", _again(op))
    for i, operand in enumerate(op.operands):
        if (made := _with_operand_twice(op, i)) is not None:
            yield Mutation("duplicate", op, f"operand {i}, %{_name(operand)}, twice", made)
            yield Mutation("drop operand", op, f"operand {i}, %{_name(operand)}", _without_operand(op, i))
    if (following := op.next_op) is not None and not isinstance(following, ReturnOp):
        yield Mutation("reorder", op, f"after {following.name}", _exchange(op, following))


def _drop(op: Operation, replacements: Sequence[SSAValue]) -> Edit:
    def edit(copy: Copy) -> None:
        mutant = copy.ops[op]
        for result, value in zip(mutant.results, replacements, strict=True):
            result.replace_all_uses_with(copy.values[value])
        mutant.detach()
        mutant.erase()

    return edit


def _again(op: Operation) -> Edit:
    def edit(copy: Copy) -> None:
        first = copy.ops[op]
        second = first.clone()
        block = first.parent
        assert block is not None
        block.insert_op_after(second, first)
        for old, new in zip(first.results, second.results, strict=True):
            old.replace_all_uses_with(new)
        for i, result in enumerate(first.results):
            second.operands[i] = result

    return edit


def _with_operand_twice(op: Operation, index: int) -> Edit | None:
    if op.name != "dist.accumulate":
        return None

    def edit(copy: Copy) -> None:
        mutant = copy.ops[op]
        mutant.operands = [*mutant.operands, mutant.operands[index]]

    return edit


def _without_operand(op: Operation, index: int) -> Edit:
    def edit(copy: Copy) -> None:
        mutant = copy.ops[op]
        mutant.operands = [v for i, v in enumerate(mutant.operands) if i != index]

    return edit


def _exchange(op: Operation, following: Operation) -> Edit:
    def edit(copy: Copy) -> None:
        first, second = copy.ops[op], copy.ops[following]
        block = first.parent
        assert block is not None
        first.detach()
        block.insert_op_after(first, second)

    return edit


# --- what an operation says ---


def _attributes(op: Operation) -> Iterator[Mutation]:
    """Slices moved, roots, reductions, dims and numbers changed, lists in another order."""
    if isinstance(op, CallOp | PlainCallOp):
        return
    for name, attribute in [*op.properties.items(), *op.attributes.items()]:
        if name.startswith(("dist.", "sdy.")) or name in ("operandSegmentSizes", "resultSegmentSizes"):
            continue  # rules and strategies: nothing that is computed
        for says, changed in _changed(attribute):
            yield Mutation(_kind(name, attribute), op, f"{name} = {says}", _set_attribute(op, name, changed))
    if isinstance(op, SliceOp):
        for dim, (start, stop) in enumerate(op.ranges):
            extent = cast(TensorType[Any], op.input.type).get_shape()[dim]
            shifts = {1, -1, stop - start, start - stop}
            for shift in sorted(s for s in shifts if s and start + s >= 0 and stop + s <= extent):
                yield Mutation("slice", op, f"dim {dim} from {start + shift}", _shift_slice(op, dim, shift))


def _kind(name: str, attribute: Attribute) -> str:
    if isinstance(attribute, ReductionAttr):
        return "reduction"
    return {"to": "root", "root": "root", "peer": "root", "group": "group"}.get(name, "attribute")


def _changed(attribute: Attribute) -> Iterator[tuple[str, Attribute]]:
    """Other attributes of the same kind, and how they read."""
    if isinstance(attribute, ReductionAttr):
        for reduction in Reduction:
            if reduction != attribute.data:
                yield str(reduction), ReductionAttr(reduction)
    elif isinstance(attribute, RationalAttr):
        above, below = attribute.data
        for fraction in ((above + 1, below), (above, below + 1)):
            yield f"{fraction[0]}/{fraction[1]}", RationalAttr(fraction)
    elif isinstance(attribute, IntegerAttr):
        number = cast(IntegerAttr[Any], attribute).value.data
        for other in (0 if number else 1,) if attribute.type == i1 else (number + 1, number - 1):
            yield str(other), IntegerAttr(other, attribute.type)
    elif isinstance(attribute, FloatAttr):
        number = cast(FloatAttr[Any], attribute).value.data
        for other in (number * 1.5 + 0.5, -number):
            if other != number:
                yield str(other), FloatAttr(other, attribute.type)
    elif isinstance(attribute, DenseArrayBase):
        yield from _changed_list(attribute)
    elif isinstance(attribute, ArrayAttr):
        elements = list(cast(ArrayAttr[Attribute], attribute).data)
        for i, element in enumerate(elements):
            for says, other in _changed(element):
                yield f"[{i}: {says}]", ArrayAttr([*elements[:i], other, *elements[i + 1 :]])


def _changed_list(attribute: DenseArrayBase[Any]) -> Iterator[tuple[str, Attribute]]:
    values = list(cast(Sequence[Any], attribute.get_values()))
    tried: list[list[Any]] = []
    for i in range(len(values)):
        for step in (1, -1):
            tried.append([v + step * (k == i) for k, v in enumerate(values)])
        for j in range(i + 1, len(values)):
            swapped = list(values)
            swapped[i], swapped[j] = values[j], values[i]
            tried.append(swapped)
    for other in tried:
        if other != values:
            yield str(other), DenseArrayBase.from_list(cast(Any, attribute.elt_type), other)


def _set_attribute(op: Operation, name: str, changed: Attribute) -> Edit:
    def edit(copy: Copy) -> None:
        mutant = copy.ops[op]
        (mutant.properties if name in mutant.properties else mutant.attributes)[name] = changed

    return edit


def _shift_slice(op: SliceOp, dim: int, shift: int) -> Edit:
    def edit(copy: Copy) -> None:
        mutant = cast(SliceOp, copy.ops[op])
        ranges = [(a + shift * (d == dim), b + shift * (d == dim)) for d, (a, b) in enumerate(op.ranges)]
        made = SliceOp(mutant.input, ranges)
        mutant.properties |= made.properties
        made.erase()

    return edit


# --- calls ---


def _calls(op: CallOp | PlainCallOp, functions: Sequence[FuncOp]) -> Iterator[Mutation]:
    """Another function of the same type, and devices that change places."""
    name = op.callee.string_value()
    own = next(f for f in functions if f.sym_name.data == name)
    for other in functions:
        if other is not own and other.function_type == own.function_type:
            changed = SymbolRefAttr(other.sym_name.data)
            yield Mutation("callee", op, f"@{other.sym_name.data}", _set_attribute(op, "callee", changed))
    if isinstance(op, CallOp):
        for i in range(len(op.devices)):
            for j in range(i + 1, len(op.devices)):
                yield Mutation("call's devices", op, f"places {i} and {j}", _swap_devices(op, own, i, j))


def _swap_devices(op: CallOp, callee: FuncOp, i: int, j: int) -> Edit:
    """Two devices have each other's place in the callee: what they give and get is the other's."""

    def edit(copy: Copy) -> None:
        devices = list(op.devices)
        devices[i], devices[j] = devices[j], devices[i]
        mutant = cast(CallOp, copy.ops[op])
        inputs = [relocated(t, devices) for t in callee.function_type.inputs.data]
        outputs = [relocated(t, devices) for t in callee.function_type.outputs.data]
        operands = _matched(list(mutant.operands), inputs)
        made = CallOp(mutant.callee_name, operands, devices, outputs)
        block = mutant.parent
        assert block is not None
        block.insert_op_before(made, mutant)
        new = _matched(list(made.results), [r.type for r in mutant.results])
        for old, value in zip(mutant.results, new, strict=True):
            old.replace_all_uses_with(value)
        mutant.detach()
        mutant.erase()

    return edit


def _matched(values: list[Any], types: Sequence[Attribute]) -> list[Any]:
    """The values in an order in which they have these types. ValueError if there is none."""
    left, found = list(values), list[Any]()
    for type_ in types:
        value = next((v for v in left if v.type == type_), None)
        if value is None:
            raise ValueError(f"no value of type {type_}")
        left.remove(value)
        found.append(value)
    return found


# --- the interface ---


def _interface(function: FuncOp) -> Iterator[Mutation]:
    """Another part, another reduction of addends, another name, on arguments and results of the entry."""
    for what, attributes in (("arg_attrs", function.arg_attrs), ("res_attrs", function.res_attrs)):
        ports = [dict(port.data) for port in attributes] if attributes is not None else []
        for i, port in enumerate(ports):
            part, name = port.get("dist.part"), port.get("dist.name")
            if isinstance(part, PartAttr):
                for changed in _other_parts(part):
                    yield Mutation(
                        "part", function, f"{what} {i}: {changed}", _set_port(function, what, i, "dist.part", changed)
                    )
            for j, other in enumerate(ports):
                same = other.get("dist.name") != name and _types(function, what)[i] == _types(function, what)[j]
                if same and isinstance(name, StringAttr) and other.get("dist.part") == part:
                    edit = _set_port(function, what, i, "dist.name", other["dist.name"])
                    yield Mutation("name", function, f"{what} {i}: {other['dist.name']}", edit)


def _types(function: FuncOp, what: str) -> Sequence[Attribute]:
    type_ = function.function_type
    return type_.inputs.data if what == "arg_attrs" else type_.outputs.data


def _other_parts(part: PartAttr) -> Iterator[PartAttr]:
    """Parts of the same local shape: elsewhere in a dim, and addends or not."""
    for d, ranges in enumerate(part.dims):
        if not ranges:
            continue
        low, high, extent = ranges[0][0], ranges[-1][1], part.global_shape[d]
        for shift in sorted({1, -1, high - low, low - high, extent - high, -low} - {0}):
            if low + shift >= 0 and high + shift <= extent:
                moved = [(a + shift, b + shift) for a, b in ranges]
                yield PartAttr([*part.dims[:d], moved, *part.dims[d + 1 :]], part.global_shape, part.reduction)
    for reduction in (None, *Reduction):
        if reduction != part.reduction:
            yield PartAttr(part.dims, part.global_shape, reduction)


def _set_port(function: FuncOp, what: str, index: int, key: str, value: Attribute) -> Edit:
    def edit(copy: Copy) -> None:
        mutant = cast(FuncOp, copy.ops[function])
        ports = [dict(port.data) for port in cast(Any, getattr(mutant, what))]
        ports[index][key] = value
        setattr(mutant, what, ArrayAttr([DictionaryAttr(port) for port in ports]))

    return edit
