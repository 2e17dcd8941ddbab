"""Whether a program can be executed here. In goes a program; out come the bytes that its arrays need and that this
machine has, or a DistirError where they do not fit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from distir.dialects.errors import DistirError
from distir.tools.commands.report import bytes_text

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.dialects.func import FuncOp
    from xdsl.ir import Attribute


def check_memory(module: ModuleOp, where: str, float_bytes: int | None = None) -> None:
    """Raises DistirError if the arrays that the program holds at a time, on all devices, do not fit in this machine's
    memory. With `float_bytes`, floating values take that many bytes each."""
    needed, available = execution_bytes(module, float_bytes), available_bytes()
    if available is not None and needed > available:
        raise DistirError(
            f"{where} needs about {bytes_text(needed)} of memory to execute, {bytes_text(available)} are available "
            "here: take a smaller configuration (fewer layers, a smaller batch)"
        )


def execution_bytes(module: ModuleOp, float_bytes: int | None = None, entry: str = "main") -> int:
    """The arguments of the entry, and the most that its values take at a time; each is freed after its last use."""
    from distir.interpreters.entry import entry_function
    from distir.interpreters.ranks import explicit

    module = explicit(module)
    function = entry_function(module, entry)
    arguments = sum(_value_bytes(type_, float_bytes) for type_ in function.function_type.inputs.data)
    return arguments + _peak_bytes(module, function, float_bytes, {})


def _peak_bytes(module: ModuleOp, function: FuncOp, float_bytes: int | None, known: dict[str, int]) -> int:
    """What the values of a function take at most, those of the functions that it calls included, arguments not."""
    from xdsl.dialects import func

    from distir.dialects.dist import CallOp
    from distir.interpreters.entry import entry_function

    name = function.sym_name.data
    if name in known:
        return known[name]
    last_use = {operand: op for op in function.body.block.ops for operand in op.operands}
    live = peak = 0
    for op in function.body.block.ops:
        inside = 0
        if isinstance(op, CallOp | func.CallOp):
            callee = op.callee_name if isinstance(op, CallOp) else op.callee.string_value()
            inside = _peak_bytes(module, entry_function(module, callee), float_bytes, known)
        results = sum(_value_bytes(result.type, float_bytes) for result in op.results)
        peak = max(peak, live + max(inside, results))
        live += results
        for operand in set(op.operands):
            if last_use[operand] is op and operand.owner is not function.body.block:
                live -= _value_bytes(operand.type, float_bytes)
    known[name] = peak
    return peak


def _value_bytes(type_: Attribute, float_bytes: int | None) -> int:
    from xdsl.dialects.builtin import AnyFloat, TensorType, TupleType

    from distir.interpreters.work import tensor_elements, type_bytes

    if isinstance(type_, TupleType):
        return sum(_value_bytes(element, float_bytes) for element in type_.types.data)
    if float_bytes is not None and isinstance(type_, TensorType):
        tensor = cast(TensorType[Any], type_)
        if isinstance(tensor.element_type, AnyFloat):
            return tensor_elements(tensor) * float_bytes
    return type_bytes(type_)


def available_bytes() -> int | None:
    """Memory that can still be had: the system's, or what is left of this process's control group; None if unknown."""
    found: list[int] = []
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            found.append(int(line.split()[1]) * 1024)
    limit, used = _read("/sys/fs/cgroup/memory.max").strip(), _read("/sys/fs/cgroup/memory.current").strip()
    if limit.isdecimal() and used.isdecimal():
        found.append(int(limit) - int(used))
    if not found and "SC_AVPHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(found, default=None)


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except OSError:
        return ""
