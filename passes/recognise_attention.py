"""`recognise-attention`: attention that a program spells out as matrix products and a softmax becomes the operation that
`scaled_dot_product_attention` is imported as, and so does its gradient.

Where it stands: level 1 -> level 1, right after a model is imported."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern
from xdsl.transforms.dead_code_elimination import dce

from distir.dialects.attention import AttentionOp

RECOGNISED = "dist.recognised"
"""On a module in which anything was replaced."""


class RecogniseAttention(RewritePattern):
    """Matches the softmax."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        from distir.passes.attention.rewriting import replace, whole_of
        from distir.passes.attention.spelled import spelled_of

        if (found := spelled_of(op)) is not None and (whole := whole_of(found)) is not None:
            replace(whole, rewriter)


class RepeatedKeys(RewritePattern):
    """Matches the operation whose keys are repeated."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        from distir.passes.attention.repeats import Repeated

        if isinstance(op, AttentionOp) and (found := Repeated.of(op)) is not None:
            found.write(rewriter)


@dataclass(frozen=True)
class RecogniseAttentionPass(ModulePass):
    """Makes one operation of attention that is spelled out: a product, scaled and masked, a softmax over keys, and a product with values; and one of its
    gradient. Scores are then no value of the program. Keys and values that are repeated for groups of query heads no longer are: queries have a dim for
    the heads of a group. Operations are known by what they compute, in programs from ONNX, PyTorch and JAX.

    Requires: static shapes. Ensures: equal values, up to rounding (zeros in rows of which a mask hides everything by minus infinity, where there was no
    number). Dropout of weights is drawn by the operation, as it was. Where any part is needed elsewhere (weights that are returned, a mask
    with a gradient), nothing is changed."""

    name = "recognise-attention"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        dce(op)  # what nobody needs must not keep scores
        for pattern in (RecogniseAttention(), RepeatedKeys()):
            if PatternRewriteWalker(pattern, apply_recursively=False).rewrite_module(op):
                op.attributes[RECOGNISED] = UnitAttr()
        dce(op)
