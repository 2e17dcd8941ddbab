"""Checks a whole module. In goes a module; out comes an error on the first bad op, where no op can check itself: SSA
dominance (xDSL leaves it out), callees, recursion, call types, one device and stream for all values of a compute op,
and the result types of operators. `distir-opt` checks all but the last on every module, and again after passes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from math import prod
from typing import NoReturn

from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IndexType, IntegerAttr, ModuleOp, TensorType, TupleType
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.traits import IsolatedFromAbove
from xdsl.utils.exceptions import VerifyException

from distir.dialects.dist import CallOp, FirstOnlyOp, MicrobatchesOp, MoveOp, OnAttr, PartAttr, SendOp
from distir.dialects.dist.attributes import placed, placement, placements
from distir.dialects.dist.calls import caller_types, function_devices, is_grouped, is_kernel, is_placed
from distir.dialects.dist.communication import CollectiveOp, CommunicationOp
from distir.dialects.dist.groups import check_by_rank
from distir.dialects.errors import is_extra
from distir.dialects.sharding import MeshOp
from distir.interpreters.operator_dialects import MEANINGS

AnyCall = CallOp | func.CallOp | MicrobatchesOp


def check_module(module: ModuleOp) -> None:
    """Raises VerifyException, as a diagnostic on the offending op, if the module does not hold together, or if an operator has results of other types
    than its meaning infers.

    Linear in the size of the module. Every op must already verify by itself."""
    check_structure(module)
    check_operators(module)


def check_operators(module: ModuleOp) -> None:
    """The types of operators. Those of a dialect whose library is not installed are taken as they are, and so are operators without a meaning."""
    by_dialect: dict[str, list[Operation]] = {}
    for op in module.walk():
        if (name := op.dialect_name()) in MEANINGS and not isinstance(op, CommunicationOp):
            by_dialect.setdefault(name, []).append(op)
    for operators in by_dialect.values():
        from distir.interpreters.type_check import check_types

        try:
            check_types(operators)
        except ModuleNotFoundError as error:
            if not is_extra(error):
                raise


def check_structure(module: ModuleOp) -> None:
    """The same but for the types of operators, which their libraries infer: it imports none of them."""
    ModuleCheck.of(module).check()


def fail(op: Operation, message: str) -> NoReturn:
    """A diagnostic on this op."""
    op.emit_error(message, VerifyException(message))


def callee_of(call: AnyCall) -> str:
    """The name that a call, or a loop over microbatches, calls."""
    return call.callee.string_value()


@dataclass
class ModuleCheck:
    """One check of one module; what it learns about a function it learns once."""

    module: ModuleOp
    functions: dict[str, func.FuncOp]
    calls: dict[str, list[AnyCall]] = field(default_factory=dict[str, list[AnyCall]])
    """The calls in each function, found while walking it."""
    devices: dict[str, int] = field(default_factory=dict[str, int])
    placed: dict[str, bool] = field(default_factory=dict[str, bool])

    @classmethod
    def of(cls, module: ModuleOp) -> ModuleCheck:
        return cls(module, {f.sym_name.data: f for f in module.ops if isinstance(f, func.FuncOp)})

    def check(self) -> None:
        for name, function in self.functions.items():
            self.calls[name] = []
            self._check_region(name, function.body, set())
        for calls in self.calls.values():
            for call in calls:
                self._check_callee(call)
        self._check_recursion()
        for function in self.functions.values():
            self._check_machine(function)
            self._check_parts(function)
            self._check_group(function)
        for calls in self.calls.values():
            for call in calls:
                self._check_call_types(call)

    # --- ops, in order ------------------------------------------------------------------------------------------------

    def _check_region(self, function: str, region: Region, seen: set[SSAValue]) -> None:
        """Ops of a region see the values before them, outside it too; outside, its own values are not seen."""
        for block in region.blocks:
            seen.update(block.args)
            for op in block.ops:
                _check_dominance(op, seen, block)
                _check_one_place(op)
                if isinstance(op, AnyCall):
                    self.calls[function].append(op)
                if isinstance(op, func.ReturnOp):
                    _check_return(op, self.functions[function])
                for nested in op.regions:
                    self._check_region(function, nested, set() if op.has_trait(IsolatedFromAbove) else seen)
                seen.update(op.results)
        for block in region.blocks:
            seen.difference_update(block.args, *(op.results for op in block.ops))

    # --- calls --------------------------------------------------------------------------------------------------------

    def _check_callee(self, call: AnyCall) -> None:
        if (name := callee_of(call)) not in self.functions:
            fail(call, f"no function @{name} in the module")

    def _check_recursion(self) -> None:
        """Depth first, without Python recursion: a call to a function that is still open closes a cycle."""
        done: set[str] = set()
        for root in self.functions:
            if root in done:
                continue
            path = {root: iter(self.calls[root])}
            while path:
                caller, calls = next(reversed(path.items()))
                call = next(calls, None)
                if call is None:
                    del path[caller]
                    done.add(caller)
                    continue
                name = callee_of(call)
                if name in path:
                    names = list(path)
                    cycle = [*names[names.index(name) :], name]
                    fail(call, "recursive call: " + " -> ".join(f"@{f}" for f in cycle))
                if name not in done:
                    path[name] = iter(self.calls[name])

    def _check_call_types(self, call: AnyCall) -> None:
        name = callee_of(call)
        inputs = self.functions[name].function_type.inputs.data
        outputs = self.functions[name].function_type.outputs.data
        runs_in_place = isinstance(call, CallOp) and is_kernel(self.functions[name])
        """It runs where its values are, on each device of a group."""
        if isinstance(call, CallOp) and not runs_in_place:
            if len(call.devices) != (n := self._devices_of(name)):
                fail(call, f"@{name}: expected {n} device{'s' * (n != 1)}, got {len(call.devices)}")
            inputs = caller_types(inputs, self._is_placed(name), call.devices)
            outputs = caller_types(outputs, self._is_placed(name), call.devices)
        if isinstance(call, MicrobatchesOp):
            counters = [t for t in inputs[len(call.operands) :] if isinstance(t, IndexType)]
            expected = 1 if is_grouped(self.functions[name]) else self._devices_of(name)
            if len(counters) != expected:
                fail(call, f"@{name}: expected {expected} index arguments at the end, got {len(counters)}")
            inputs = inputs[: len(inputs) - len(counters)]
        operands, results = [v.type for v in call.operands], call.result_types
        if runs_in_place:
            inputs, outputs, operands, results = (
                [placed(t, None) for t in types] for types in (inputs, outputs, operands, results)
            )
            if len(places := {*placements([*(v.type for v in call.operands), *call.result_types])}) > 1:
                fail(call, f"@{name}: expected a kernel's values in one place, got {', '.join(map(str, places))}")
        _check_types(call, f"@{name}: operand", inputs, operands)
        _check_types(call, f"@{name}: result", outputs, results)

    def _devices_of(self, name: str) -> int:
        function = self.functions[name]
        if name not in self.devices:
            if len(function.body.blocks) > 1:
                fail(function, f"@{name}: expected one block, since devices are named, got {len(function.body.blocks)}")
            self.devices[name] = function_devices(function)
        return self.devices[name]

    def _is_placed(self, name: str) -> bool:
        if name not in self.placed:
            self.placed[name] = is_placed(self.functions[name])
        return self.placed[name]

    # --- groups whose devices do the same -----------------------------------------------------------------------------

    def _check_group(self, function: func.FuncOp) -> None:
        """All that a function over groups has and does is over groups of as many devices as the mesh has, which lie side by side, and
        every device of a group does the same, but for what `dist.by_rank` says."""
        if not is_grouped(function):
            return
        name, meshes = function.sym_name.data, [op for op in self.module.ops if isinstance(op, MeshOp)]
        if len(meshes) != 1:
            fail(
                function, f"@{name} is over a group of devices: expected one dist.mesh in the module, got {len(meshes)}"
            )
        sizes, count = meshes[0].axis_sizes, prod(meshes[0].axis_sizes.values())
        for what, types in (
            ("argument", function.function_type.inputs.data),
            ("result", function.function_type.outputs.data),
        ):
            for i, type_ in enumerate(types):
                self._check_in_group(function, type_, count, f"@{name}: {what} {i}")
        for op in function.walk():
            for i, type_ in enumerate(op.result_types):
                self._check_in_group(op, type_, count, f"result {i}")
            if isinstance(op, CommunicationOp) and not isinstance(op, CollectiveOp | SendOp):
                fail(
                    op,
                    f"{op.name} is not symmetric: devices of a group take part in collectives over an axis and in sends",
                )
            if isinstance(op, CallOp):
                if not self._is_placed(callee_of(op)) and not is_kernel(self.functions[callee_of(op)]):
                    fail(op, f"@{callee_of(op)} is on no device: expected a function over a group")
                lines = zip(op.devices[::count], op.devices[count - 1 :: count], strict=False)
                if len(op.devices) % count or any(b - a != count - 1 or a % count for a, b in lines):
                    fail(
                        op,
                        f"expected a call on groups of {count} devices that lie side by side, got {list(op.devices)}",
                    )
            axis = op.axis if isinstance(op, CollectiveOp) else op.over.data if isinstance(op, FirstOnlyOp) else None
            if axis is not None and axis not in sizes:
                fail(op, f'the mesh has no axis "{axis}"')
            try:
                if isinstance(op, CollectiveOp) and axis is not None:
                    op.check_axis(sizes[axis])
                check_by_rank(op, sizes)
            except VerifyException as error:
                fail(op, str(error))

    def _check_in_group(self, op: Operation, type_: Attribute, count: int, what: str) -> None:
        for on in placements([type_]):
            if on.count != count or on.device % count:
                fail(op, f"{what}: expected a value on a group of {count} devices, those of the mesh, got {on}")

    # --- the machine and the entry's parts ----------------------------------------------------------------------------

    def _check_machine(self, function: func.FuncOp) -> None:
        """No function has more devices than the machine, where the module says how many there are."""
        count = self.module.attributes.get("dist.devices")
        if not isinstance(count, IntegerAttr) or len(function.body.blocks) != 1:
            return
        name = function.sym_name.data
        if (n := self._devices_of(name)) > count.value.data:
            fail(function, f"@{name}: expected at most {count.value.data} devices (dist.devices), got {n}")

    def _check_parts(self, function: func.FuncOp) -> None:
        type_ = function.function_type
        for what, types, attributes in (
            ("argument", type_.inputs.data, function.arg_attrs),
            ("result", type_.outputs.data, function.res_attrs),
        ):
            for i, (t, part) in enumerate(zip(types, _parts(attributes), strict=False)):
                if part is not None and isinstance(t, TensorType) and t.get_shape() != part.local_shape:
                    got, expected = list(t.get_shape()), list(part.local_shape)
                    fail(function, f"{what} {i}: expected shape {expected}, that of its part, got {got}")


def _parts(attributes: ArrayAttr[DictionaryAttr] | None) -> Iterable[PartAttr | None]:
    for dictionary in attributes or ():
        part = dictionary.data.get("dist.part")
        yield part if isinstance(part, PartAttr) else None


def _check_dominance(op: Operation, seen: set[SSAValue], block: Block) -> None:
    """Straight-line code: a value is defined before its use. Between blocks of one region nothing is claimed."""
    for i, value in enumerate(op.operands):
        if value not in seen and not _in_sibling_block(value, block):
            name = f"%{value.name_hint}" if value.name_hint else f"of type {value.type}"
            fail(op, f"operand {i} ({name}) is used before its definition")


def _in_sibling_block(value: SSAValue, block: Block) -> bool:
    owner = value.owner if isinstance(value.owner, Block) else value.owner.parent
    return owner is not block and owner is not None and owner.parent is block.parent


def _check_one_place(op: Operation) -> None:
    """All values of a compute op share a device and stream. A tensor that is not placed is on every device: it may be
    an operand (a constant), but not the result of an op over placed operands."""
    if isinstance(op, CommunicationOp | MoveOp | AnyCall | func.ReturnOp):
        return
    first: OnAttr | None = None
    where = ""
    for what, values in (("operand", op.operands), ("result", op.results)):
        for i, value in enumerate(values):
            on = placement(value.type)
            if on is None:
                if first is not None and what == "result" and isinstance(value.type, TensorType | TupleType):
                    fail(op, f"expected all values on {first}, where {where} is, got result {i} not placed")
            elif first is None:
                first, where = on, f"{what} {i}"
            elif on != first:
                fail(op, f"expected all values on {first}, where {where} is, got {what} {i} on {on}")


def _check_return(op: func.ReturnOp, function: func.FuncOp) -> None:
    _check_types(op, "operand", function.function_type.outputs.data, [v.type for v in op.operands])


def _check_types(op: Operation, what: str, expected: Sequence[Attribute], got: Sequence[Attribute]) -> None:
    if len(expected) != len(got):
        fail(op, f"{what}s: expected {len(expected)}, got {len(got)}")
    for i, (want, have) in enumerate(zip_longest(expected, got)):
        if want != have:
            fail(op, f"{what} {i}: expected {want}, got {have}")
