"""The `rank` dialect: one rank's view of communication (level 4). Values are plain tensors of this rank; peers, roots
and groups are machine ranks; a group lists its members in participant order and contains this rank.

Lifecycle: `project-to-rank` creates these ops from `dist` communication, in program order, so that the set of rank
programs cannot deadlock. Backends run them. An op on a stream other than the main one carries `rank.stream`.
`operations` are messages and symmetric collectives, `rooted` those with a root.
"""

from xdsl.ir import Dialect

from distir.dialects.rank.operations import (
    STREAM,
    AllGatherOp,
    AllReduceOp,
    AllToAllOp,
    ExchangeOp,
    GroupOp,
    RankOp,
    RecvOp,
    ReduceScatterOp,
    SendOp,
    WaitOp,
)
from distir.dialects.rank.rooted import BroadcastOp, GatherOp, ReduceOp, RootedOp, ScatterOp, ToRootOp

Rank = Dialect(
    "rank",
    [
        AllGatherOp,
        AllReduceOp,
        AllToAllOp,
        BroadcastOp,
        ExchangeOp,
        GatherOp,
        RecvOp,
        ReduceOp,
        ReduceScatterOp,
        ScatterOp,
        SendOp,
        WaitOp,
    ],
)

__all__ = [
    "STREAM",
    "AllGatherOp",
    "AllReduceOp",
    "AllToAllOp",
    "BroadcastOp",
    "ExchangeOp",
    "GatherOp",
    "GroupOp",
    "Rank",
    "RankOp",
    "RecvOp",
    "ReduceOp",
    "ReduceScatterOp",
    "RootedOp",
    "ScatterOp",
    "SendOp",
    "ToRootOp",
    "WaitOp",
]
