"""`simulate`: the entry's time on a machine and the memory that each device needs, as attributes of the function.

Requires a module that holds together, at level 1 to 3, with static shapes and operators of the types that they infer. Ensures `dist.simulated_picoseconds` and
`dist.peak_memory_bytes` (one per device) on the entry; changes nothing else.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, ModuleOp, i64
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass


@dataclass(frozen=True)
class SimulatePass(ModulePass):
    """`simulate{machine=dgx-2 cost_model=analytic entry=main}`; a machine is a name or the path of a `.toml` file."""

    name = "simulate"

    machine: str = "local-cpu"
    """A machine of `distir machines`, or a .toml file: whose costs count."""
    cost_model: str = "analytic"
    """How costs are found: analytic, distir, or a plug-in's."""
    entry: str = "main"
    """The function that the program begins with."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from distir.interpreters.module_check import check_operators
        from distir.interpreters.simulate import summarize

        check_operators(op)
        summary = summarize(op, self.machine, self.cost_model, self.entry)
        (entry,) = (f for f in op.ops if isinstance(f, FuncOp) and f.sym_name.data == self.entry)
        peaks = [summary.peak_memory_bytes[device] for device in range(summary.devices)]
        entry.attributes["dist.simulated_picoseconds"] = IntegerAttr(summary.makespan_picoseconds, i64)
        entry.attributes["dist.peak_memory_bytes"] = DenseArrayBase.from_list(i64, peaks)
