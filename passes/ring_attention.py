"""`ring-attention`: attention over a sequence that devices share passes keys and values around, where it gathered them.

Where it stands: level 3 over groups -> level 3 over groups, right after `apply-sharding{grouped=true}`."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern

from distir.dialects.errors import DistirError
from distir.interpreters.ranks import Group, group_of

BALANCES = ("auto", "yes", "no")


@dataclass
class RingAttention(RewritePattern):
    """Matches the attention."""

    group: Group
    zigzag: bool
    """Whether devices have two pieces of the sequence, where a diagonal hides something."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        from distir.passes.attention.ring import Ring

        if (ring := Ring.of(op, self.group)) is not None:
            ((self.zigzag and ring.zigzag) or ring).write(rewriter)


@dataclass(frozen=True)
class RingAttentionPass(ModulePass):
    """An attention whose keys and values are gathered along an axis becomes one for each part of them: each device computes with the part that it has while it
    passes it on to the next, and the results are combined by their logarithms of sums. In the gradient, sums by keys and values go around with the part
    that they are of. No device has all keys, and messages may run beside computation (`overlap-communication`).

    Where a diagonal hides keys, the last device would see most of them and the first hardly any. With `balance`, device i of n has the pieces i and
    2 n - 1 - i of 2 n instead, for the attention alone: queries, keys and results are exchanged for that. `auto` does so in functions that are faster by
    it, as `machine` has it.

    Requires: level 3 over groups. Ensures: equal values, up to rounding. What is gathered otherwise, such as in several pieces per device, stays so."""

    name = "ring-attention"
    balance: str = "auto"
    """yes, no, or auto: where it is faster."""
    machine: str = "dgx-a100"
    """A machine of `distir machines`, or a .toml file: whose costs count."""
    cost_model: str = "analytic"
    """As for `simulate`."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.balance not in BALANCES:
            raise DistirError(f"balance: expected one of {', '.join(BALANCES)}, got '{self.balance}'")
        if (group := group_of(op)) is None:
            raise DistirError(
                "ring-attention takes a program over groups: apply-sharding{grouped=true} writes one, "
                "where all devices do the same (ilp-shard{shards=even})"
            )
        for function in [each for each in op.body.block.ops if isinstance(each, FuncOp)]:
            zigzag = self.balance == "yes" or (self.balance == "auto" and self._is_faster(function, group))
            _write(function, group, zigzag)

    def _is_faster(self, function: FuncOp, group: Group) -> bool:
        """Whether two pieces are, in one function."""
        from distir.interpreters.simulate.summaries import open_program
        from distir.passes.attention.ring import Ring

        rings = [ring for each in function.walk() if (ring := Ring.of(each, group)) is not None]
        if not any(ring.zigzag for ring in rings):
            return False
        seconds: list[float] = []
        for zigzag in (False, True):
            module, name = function.parent_op().clone(), function.sym_name.data  # pyright: ignore
            assert isinstance(module, ModuleOp)
            (copy,) = [
                each for each in module.body.block.ops if isinstance(each, FuncOp) and each.sym_name.data == name
            ]
            _write(copy, group, zigzag)
            program = open_program(module, self.machine, self.cost_model, name)
            seconds.append(program.summary().makespan_seconds)
        return seconds[1] < seconds[0]


def _write(function: FuncOp, group: Group, zigzag: bool) -> None:
    walker = PatternRewriteWalker(RingAttention(group, zigzag), apply_recursively=False)
    walker.rewrite_region(function.body)
