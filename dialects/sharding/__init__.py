"""Sharding as attributes (level 2): the mesh, the rule that ShardCombine found for an op, the strategy chosen for it,
and the sharding of a value. They print as part of the `dist` dialect."""

from distir.dialects.sharding.mesh import AxesAttr, MeshOp
from distir.dialects.sharding.rule_text import RuleAttr
from distir.dialects.sharding.rules import (
    NO_HALO,
    Combine,
    Gather,
    Halo,
    Identity,
    InputDim,
    Offset,
    Outside,
    OutsideKind,
    PartialRule,
    Reduce,
    Rule,
    Shift,
)
from distir.dialects.sharding.states import REPLICATED, Partial, Replicated, Sharded, State, Windowed
from distir.dialects.sharding.strategies import (
    Choice,
    Replicate,
    ShardingAttr,
    StrategyAttr,
    UseFactor,
    UsePartial,
)

__all__ = [
    "NO_HALO",
    "REPLICATED",
    "AxesAttr",
    "Choice",
    "Combine",
    "Gather",
    "Halo",
    "Identity",
    "InputDim",
    "MeshOp",
    "Offset",
    "Outside",
    "OutsideKind",
    "Partial",
    "PartialRule",
    "Reduce",
    "Replicate",
    "Replicated",
    "Rule",
    "RuleAttr",
    "Sharded",
    "ShardingAttr",
    "Shift",
    "State",
    "StrategyAttr",
    "UseFactor",
    "UsePartial",
    "Windowed",
]
