"""Turns an annotated program of the `jax` dialect back into JAX. In goes the module; out comes a JAX function, with
the strategies as sharding constraints.

    step = sharded_function(module)                    # level 2: rules, strategies, a mesh
    outputs = jax.jit(step)({"params.w": w, "x": x})   # XLA's partitioner distributes it as the strategy says

Every value that the strategy keeps sharded or whole gets a constraint (`jax.lax.with_sharding_constraint`). Partial
sums are left to XLA, since a constraint cannot name them; so are dims cut in several pieces or unevenly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue

from distir.dialects.errors import DistirError
from distir.dialects.jax.jaxprs import bind
from distir.dialects.jax.library import library
from distir.dialects.sharding import MeshOp, Partial, Replicate, Sharded, State, StrategyAttr
from distir.interpreters.entry import entry_function
from distir.passes.distribution.lower import STRATEGY
from distir.passes.distribution.options import chosen_option
from distir.passes.structure import argument_attributes, functions, result_attributes, shape_of, text

Arrays = Mapping[str, Any]


def sharded_function(
    module: ModuleOp, devices: Sequence[Any] | None = None, entry: str = "main"
) -> Callable[[Arrays], dict[str, Any]]:
    """The entry as a function of arrays by `dist.name` to arrays by `dist.name`, to be traced or jitted.

    `devices` are as many JAX devices as the mesh has (by default the first ones). Raises DistirError for a module
    without one mesh, for too few devices, and for operations of another dialect."""
    jax = library()
    meshes = [op for op in module.body.block.ops if isinstance(op, MeshOp)]
    if len(meshes) != 1:
        raise DistirError(f"a sharded function needs one dist.mesh in the module, got {len(meshes)}")
    sizes = meshes[0].axis_sizes
    available, count = list(devices if devices is not None else jax.devices()), int(np.prod([*sizes.values()]))
    if len(available) < count:
        raise DistirError(f"the mesh has {count} devices, JAX has {len(available)}")
    mesh = jax.sharding.Mesh(np.array(available[:count]).reshape(tuple(sizes.values())), tuple(sizes))
    constraints = _Constraints(module, sizes, mesh)
    function = entry_function(module, entry)
    names = [text(attributes, "dist.name", "") for attributes in argument_attributes(function)]
    outputs = [text(attributes, "dist.name", "") for attributes in result_attributes(function)]

    def run(inputs: Arrays) -> dict[str, Any]:
        for name in names:
            if name not in inputs:
                raise DistirError(f"input {name} is missing")
        results = constraints.run(function, [inputs[name] for name in names])
        return dict(zip(outputs, results, strict=True))

    return run


class _Constraints:
    """Runs functions of the module, constraining what operations take and give."""

    def __init__(self, module: ModuleOp, sizes: Mapping[str, int], mesh: Any) -> None:
        self._sizes, self._mesh, self._functions = sizes, mesh, functions(module)

    def run(self, function: FuncOp, arguments: Sequence[Any]) -> list[Any]:
        values: dict[SSAValue, Any] = dict(zip(function.body.block.args, arguments, strict=True))
        for op in function.body.block.ops:
            operands = [values[value] for value in op.operands]
            if isinstance(op, ReturnOp):
                return operands
            if isinstance(op, CallOp):
                results = self.run(self._functions[op.callee.string_value()], operands)
            else:
                results = self._operation(op, operands)
            values.update(zip(op.results, results, strict=True))
        raise DistirError(f"@{function.sym_name.data} does not return")

    def _operation(self, op: Operation, operands: Sequence[Any]) -> list[Any]:
        attribute = op.attributes.get(STRATEGY)
        if attribute is None:
            return bind(op, operands)
        choices = cast(StrategyAttr, attribute).choices
        options = [chosen_option(op, choices.get(axis, Replicate()), size) for axis, size in self._sizes.items()]
        if any(option is None for option in options):
            raise DistirError(f"{op.name}: {attribute} does not fit the rule or the shapes")
        chosen = [option for option in options if option is not None]
        placed = [
            self._constrained(value, operand, [option.operands[i] for option in chosen])
            for i, (operand, value) in enumerate(zip(operands, op.operands, strict=True))
        ]
        return [
            self._constrained(value, result, [option.results[i] for option in chosen])
            for i, (result, value) in enumerate(zip(bind(op, placed), op.results, strict=True))
        ]

    def _constrained(self, value: SSAValue, array: Any, states: Sequence[State]) -> Any:
        if any(isinstance(state, Partial) for state in states):
            return array
        jax, shape = library(), shape_of(value)
        axes: list[list[str]] = [[] for _ in shape]
        for axis, state in zip(self._sizes, states, strict=True):
            if isinstance(state, Sharded):
                if len(state.pieces) > 1:
                    return array
                axes[state.dim].append(axis)
        if any(extent % int(np.prod([self._sizes[a] for a in cut])) for extent, cut in zip(shape, axes, strict=True)):
            return array
        spec = jax.sharding.PartitionSpec(*(tuple(cut) or None for cut in axes))
        return jax.lax.with_sharding_constraint(array, jax.sharding.NamedSharding(self._mesh, spec))
