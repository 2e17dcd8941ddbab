"""The `dist` dialect: explicit programs for all devices. `attributes` say where values live, `communication` and
`local` are the operations, `calls` places functions; meshes, rules and strategies are in `distir.dialects.sharding`."""

from xdsl.ir import Dialect

from distir.dialects.dist.attributes import OnAttr, PartAttr, RationalAttr
from distir.dialects.dist.calls import CallOp
from distir.dialects.dist.communication import (
    AllGatherOp,
    AllReduceOp,
    AllToAllOp,
    BroadcastOp,
    GatherOp,
    ReduceOp,
    ReduceScatterOp,
    ScatterOp,
    SendOp,
)
from distir.dialects.dist.groups import ByRankAttr
from distir.dialects.dist.local import (
    AccumulateOp,
    CastOp,
    ConcatOp,
    FirstOnlyOp,
    InsertOp,
    MoveOp,
    PackOp,
    ScaleOp,
    SliceOp,
    UnpackOp,
    ZerosOp,
)
from distir.dialects.dist.microbatches import BatchRowsOp, MicrobatchesOp, PutRowsOp, TakeRowsOp
from distir.dialects.dist.positions import InsideOp, LocalIndexOp
from distir.dialects.dist.windows import ExchangeOp
from distir.dialects.reductions import ReductionAttr
from distir.dialects.sharding import AxesAttr, MeshOp, RuleAttr, ShardingAttr, StrategyAttr

Dist = Dialect(
    "dist",
    [
        AccumulateOp,
        AllGatherOp,
        AllReduceOp,
        AllToAllOp,
        BatchRowsOp,
        BroadcastOp,
        CallOp,
        CastOp,
        ConcatOp,
        ExchangeOp,
        FirstOnlyOp,
        GatherOp,
        InsertOp,
        InsideOp,
        LocalIndexOp,
        MeshOp,
        MicrobatchesOp,
        MoveOp,
        PackOp,
        PutRowsOp,
        ReduceOp,
        ReduceScatterOp,
        ScaleOp,
        ScatterOp,
        SendOp,
        SliceOp,
        TakeRowsOp,
        UnpackOp,
        ZerosOp,
    ],
    [
        AxesAttr,
        ByRankAttr,
        OnAttr,
        PartAttr,
        RationalAttr,
        ReductionAttr,
        RuleAttr,
        ShardingAttr,
        StrategyAttr,
    ],
)
