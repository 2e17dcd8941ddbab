"""`ring-attention`: attention over a sequence that devices share passes keys and values around, where it gathered them.

Where it stands: level 3 over groups -> level 3 over groups, right after `apply-sharding{grouped=true}`."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern

from distir.dialects.errors import DistirError
from distir.interpreters.ranks import Group, group_of


@dataclass
class RingAttention(RewritePattern):
    """Matches the attention."""

    group: Group

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        from distir.passes.attention.ring import Ring

        if (ring := Ring.of(op, self.group)) is not None:
            ring.write(rewriter)


@dataclass(frozen=True)
class RingAttentionPass(ModulePass):
    """An attention whose keys and values are gathered along an axis becomes one for each part of them: each device computes with the part that it has while it
    passes it on to the next, and the results are combined by their logarithms of sums. In the gradient, sums by keys and values go around with the part
    that they are of. No device has all keys, and messages may run beside computation (`overlap-communication`).

    Requires: level 3 over groups. Ensures: equal values, up to rounding. What is gathered otherwise, such as in several pieces per device, stays so."""

    name = "ring-attention"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if (group := group_of(op)) is None:
            raise DistirError(
                "ring-attention takes a program over groups: apply-sharding{grouped=true} writes one, "
                "where all devices do the same (ilp-shard{shards=even})"
            )
        PatternRewriteWalker(RingAttention(group), apply_recursively=False).rewrite_module(op)
