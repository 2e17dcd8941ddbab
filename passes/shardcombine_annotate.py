"""`shardcombine-annotate`: sequential -> annotated. Every operator op gets the rule by which it runs on shards,
discovered by running it (see `distir.passes.shardcombine`)."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import builtin, func
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.traits import IsTerminator


@dataclass(frozen=True)
class ShardcombineAnnotatePass(ModulePass):
    """Adds `dist.rule` to every operator op of every function.

    Requires static tensor types, those that operators infer. Rules are discovered once per class of op and kept in the user's cache directory
    (`DISTIR_CACHE_DIR`, else the system's, such as `~/.cache/distir`)."""

    name = "shardcombine-annotate"

    def apply(self, ctx: Context, op: builtin.ModuleOp) -> None:
        from distir.dialects.sharding import RuleAttr
        from distir.interpreters.module_check import check_operators
        from distir.passes.shardcombine.cache import RuleCache
        from distir.passes.shardcombine.discovery import Discovery
        from distir.passes.shardcombine.domains import InterpreterDomains

        check_operators(op)
        discovery = Discovery(InterpreterDomains(), RuleCache.on_disk())
        functions = [f for f in op.ops if isinstance(f, func.FuncOp) and not f.is_declaration]
        operators = [each for function in functions for each in function.body.block.ops if is_operator(each)]
        for each, rule in zip(operators, discovery.rules(operators), strict=True):
            each.attributes["dist.rule"] = RuleAttr(rule)
        discovery.cache.save()


def is_operator(op: Operation) -> bool:
    """Whether the op computes tensors from tensors: no constant, call, communication or terminator."""
    if op.dialect_name() in ("dist", "func", "builtin") or op.has_trait(IsTerminator) or not op.operands:
        return False
    return any(isinstance(value.type, TensorType) for value in op.operands) and any(
        isinstance(type_, TensorType) for type_ in op.result_types
    )
