"""Passes of patterns that make the operations: `example-fuse` takes a norm and the product that uses it, `example-ring` sends that form a ring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from xdsl.context import Context
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, ModuleOp, TensorType
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern, op_type_rewrite_pattern

from distir.dialects.dist import SendOp
from distir.dialects.dist.attributes import placement
from distir_example.dialect import NormMatmulOp, RingExchangeOp


class FuseNorm(RewritePattern):
    """`onnx.MatMul` of a value that is normalised over its last dim for it alone."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if op.name != "onnx.MatMul" or not isinstance(norm := op.operands[0].owner, Operation):
            return
        weight = cast("TensorType[Any]", op.operands[1].type)
        if norm.name != "onnx.RMSNormalization" or len(weight.get_shape()) != 2 or not norm.results[0].has_one_use():
            return
        axis, epsilon = norm.properties.get("axis"), norm.properties.get("epsilon")
        if isinstance(axis, IntegerAttr) and axis.value.data != -1:
            return
        value = epsilon.value.data if isinstance(epsilon, FloatAttr) else 1e-5  # ONNX's default
        fused = NormMatmulOp(norm.operands[0], norm.operands[1], op.operands[1], value)
        fused.location = op.location
        fused.attributes |= {name: value for name, value in op.attributes.items() if name != "dist.rule"}
        rewriter.replace(op, fused)
        rewriter.erase(norm)


@dataclass(frozen=True)
class ExampleFusePass(ModulePass):
    """Fuses a norm and the matrix product after it into one operation.

    Requires: level 1 with static shapes. Ensures: no such pair is left; the program computes the same."""

    name = "example-fuse"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        PatternRewriteWalker(FuseNorm()).rewrite_module(op)


class RingOfSends(RewritePattern):
    """Sends that follow each other, each from where the one before it goes, the last to where the first comes from."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: SendOp, rewriter: PatternRewriter) -> None:
        ring = [op]
        while isinstance(following := ring[-1].next_op, SendOp) and _source(following) == ring[-1].to.value.data:
            ring.append(following)
        made = {send.output for send in ring}
        fits = all(send.output.type == ring[(i + 1) % len(ring)].input.type for i, send in enumerate(ring))
        if len(ring) < 2 or not fits or any(send.input in made for send in ring):
            return
        exchange = RingExchangeOp([send.input for send in ring])
        rewriter.insert(exchange)
        for i, send in enumerate(ring):
            rewriter.replace(send, [], [exchange.results[(i + 1) % len(ring)]])


def _source(send: SendOp) -> int | None:
    on = placement(send.input.type)
    return None if on is None else on.device


@dataclass(frozen=True)
class ExampleRingPass(ModulePass):
    """Makes one ring exchange of sends around a ring, which then take the time of one.

    Requires and ensures: level 3."""

    name = "example-ring"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        PatternRewriteWalker(RingOfSends()).rewrite_module(op)
