"""Calls: functions are templates over local devices, and calls place them. In go values on the caller's devices; out
come the function's results on them.

Lifecycle: `outline-repeats` creates `func.call` at level 1; placement (`apply-sharding`, `dtp-parallelize`) turns them
into `dist.call`; projection turns each into a `func.call` of the callee's projection for every device it runs on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from xdsl.dialects.builtin import I64, DenseArrayBase, SymbolRefAttr, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    prop_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from distir.dialects.dist.attributes import on_device, placed, placements, relocated
from distir.dialects.dist.communication import ScheduleEffect


KERNEL = "dist.kernel"
"""On a function: a device executes it as one kernel. It is not placed, calls nothing, and what it computes on the way is no memory."""


def is_kernel(function: FuncOp) -> bool:
    """Whether a device executes the function as one kernel."""
    return KERNEL in function.attributes


@irdl_op_definition
class CallOp(IRDLOperation):
    """Runs a function on devices of the caller: `%a = dist.call @f(%x) on [4, 5] : (T) -> U`.

    The callee's device i is the caller's `on[i]`; stream names stay. A callee without placements is a one-device
    function. Types must be the callee's after renaming, which `check-module` verifies (it needs the module)."""

    name = "dist.call"
    callee = prop_def(SymbolRefAttr)
    arguments = var_operand_def()
    on = prop_def(DenseArrayBase[I64])
    outputs = var_result_def()
    traits = traits_def(ScheduleEffect())

    def __init__(
        self, callee: str, arguments: Sequence[SSAValue], devices: Sequence[int], result_types: Sequence[Attribute]
    ):
        super().__init__(
            operands=[arguments],
            result_types=[result_types],
            properties=dict(self.stating(callee, tuple(devices))),
        )

    @staticmethod
    @lru_cache(maxsize=1 << 12)
    def stating(callee: str, devices: tuple[int, ...]) -> Mapping[str, Attribute]:
        """The properties of a call of this function on these devices."""
        return {"callee": SymbolRefAttr(callee), "on": DenseArrayBase.from_list(i64, list(devices))}

    @property
    def devices(self) -> tuple[int, ...]:
        """The caller's device for each of the callee's."""
        return tuple(int(d) for d in self.on.get_values())

    @property
    def callee_name(self) -> str:
        return self.callee.string_value()

    def verify_(self) -> None:
        if not self.devices:
            raise VerifyException("expected at least one device, got 0")
        if len(set(self.devices)) != len(self.devices):
            raise VerifyException(f"expected distinct devices, got {list(self.devices)}")
        for on in placements(v.type for v in (*self.operands, *self.results)):
            if not set(on.devices) <= set(self.devices):
                devices = list(self.devices)
                raise VerifyException(f"a value on device {on.device} is outside the call's devices {devices}")

    @classmethod
    def parse(cls, parser: Parser) -> CallOp:
        callee = parser.parse_symbol_name()
        operands = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_unresolved_operand)
        parser.parse_keyword("on")
        runs = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_run(parser))
        devices = [device for run in runs for device in run]
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        position = parser.pos
        types = parser.parse_function_type()
        return cls.create(
            operands=parser.resolve_operands(operands, types.inputs.data, position),
            result_types=types.outputs.data,
            properties=cls.stating(callee, tuple(devices)),
            attributes=attributes,
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.callee_name)
        with printer.in_parens():
            printer.print_list(self.operands, printer.print_ssa_value)
        printer.print_string(" on ")
        with printer.in_square_brackets():
            printer.print_list(_runs(self.devices), printer.print_string)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_operation_type(self)


LISTED = 8
"""Longer runs of devices are printed as a range, `[0:16]`."""


def _parse_run(parser: Parser) -> range:
    """A device, or a half-open range of devices."""
    first = parser.parse_integer()
    return range(first, parser.parse_integer() if parser.parse_optional_punctuation(":") else first + 1)


def _runs(devices: Sequence[int]) -> list[str]:
    """Devices as they are printed."""
    runs: list[list[int]] = []
    for device in devices:
        if runs and runs[-1][-1] + 1 == device:
            runs[-1].append(device)
        else:
            runs.append([device])
    parts = [[f"{run[0]}:{run[-1] + 1}"] if len(run) > LISTED else [str(d) for d in run] for run in runs]
    return [text for part in parts for text in part]


def is_grouped(function: FuncOp) -> bool:
    """Whether a function is over a group whose devices do the same (`#dist.on<0:8>`)."""
    types = [*function.function_type.inputs.data, *function.function_type.outputs.data]
    types += [t for block in function.body.blocks for op in block.ops for t in op.result_types]
    return any(on.count > 1 for on in placements(_distinct(types)))


def function_devices(function: FuncOp) -> int:
    """How many local devices a function has: one more than the highest it names; 1 if it names none."""
    types = [*function.function_type.inputs.data, *function.function_type.outputs.data]
    lists: dict[bytes, Sequence[int]] = {}
    if function.body.blocks:
        for op in function.body.block.ops:
            types += [result.type for result in op.results]
            if isinstance(op, CallOp):
                lists.setdefault(op.on.data.data, op.devices)
    devices = [on.devices[-1] for on in placements(_distinct(types))]
    return 1 + max([0, *devices, *(device for each in lists.values() for device in each)])


def _distinct(types: Sequence[Attribute]) -> Iterable[Attribute]:
    """Each once: values of one type mostly have the same object."""
    return {id(type_): type_ for type_ in types}.values()


def is_placed(function: FuncOp) -> bool:
    """Whether any argument, result or operation of the function names a device."""
    types = [*function.function_type.inputs.data, *function.function_type.outputs.data]
    if placements(_distinct(types)):
        return True
    return bool(function.body.blocks) and any(placements(op.result_types) for op in function.body.block.ops)


def caller_types(types: Sequence[Attribute], callee_placed: bool, devices: Sequence[int]) -> list[Attribute]:
    """The callee's types as the caller sees them: relocated, or all on the one device of an unplaced callee."""
    if callee_placed:
        return [relocated(t, devices) for t in types]
    return [placed(t, on_device(devices[0])) for t in types]
