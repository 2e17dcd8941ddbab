"""The interface of an entry function. In goes the function; out come the name, the part of the global array and the
device of each argument and result. The same at every level: levels 1 and 2 have whole arrays on no device, level 4
one rank's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from distir.dialects.dist import OnAttr, PartAttr
from distir.dialects.dist.attributes import placement
from distir.dialects.dist.calls import function_devices
from distir.dialects.errors import DistirError

NAME, ROLE, PART, DEVICES, RANK = "dist.name", "dist.role", "dist.part", "dist.devices", "rank.rank"


@dataclass(frozen=True)
class Port:
    """One argument or result of an entry function."""

    name: str
    type: Attribute
    part: PartAttr | None
    """None is the whole array."""
    role: str | None
    on: OnAttr | None


def entry_function(module: ModuleOp, entry: str = "main") -> FuncOp:
    """The function of this name; DistirError names those that there are."""
    functions = {f.sym_name.data: f for f in module.ops if isinstance(f, FuncOp)}
    if entry not in functions:
        names = ", ".join(f"@{name}" for name in list(functions)[:8]) or "none"
        raise DistirError(f"no function @{entry} in the module; its functions: {names}")
    return functions[entry]


def arguments_of(function: FuncOp) -> list[Port]:
    """The arguments, in order; one without `dist.name` is called as in the text (`%x`), else `arg0`, `arg1`, ..."""
    hints = [argument.name_hint or f"arg{i}" for i, argument in enumerate(function.body.block.args)]
    return _ports(function.function_type.inputs.data, function.arg_attrs, hints)


def results_of(function: FuncOp) -> list[Port]:
    """The results, in order; one without `dist.name` is called `result0`, `result1`, ..."""
    outputs = function.function_type.outputs.data
    return _ports(outputs, function.res_attrs, [f"result{i}" for i in range(len(outputs))])


def machine_devices(module: ModuleOp, entry: FuncOp) -> int:
    """How many devices the program runs on: the module's `dist.devices`, else what the entry names."""
    count = module.attributes.get(DEVICES)
    return count.value.data if isinstance(count, IntegerAttr) else function_devices(entry)


def rank_of(module: ModuleOp) -> int | None:
    """Which rank's program this is; None if it is not at level 4."""
    rank = module.attributes.get(RANK)
    return rank.value.data if isinstance(rank, IntegerAttr) else None


def attributes_of(attributes: ArrayAttr[DictionaryAttr] | None, count: int) -> list[dict[str, Attribute]]:
    """The attributes of each argument or result, as dictionaries of their own."""
    return [{} for _ in range(count)] if attributes is None else [dict(a.data) for a in attributes]


def _ports(
    types: Sequence[Attribute], attributes: ArrayAttr[DictionaryAttr] | None, names: Sequence[str]
) -> list[Port]:
    ports: list[Port] = []
    for type_, given, fallback in zip(types, attributes_of(attributes, len(types)), names, strict=True):
        name, part, role = given.get(NAME), given.get(PART), given.get(ROLE)
        ports.append(
            Port(
                name.data if isinstance(name, StringAttr) else fallback,
                type_,
                part if isinstance(part, PartAttr) else None,
                role.data if isinstance(role, StringAttr) else None,
                placement(type_),
            )
        )
    return ports
