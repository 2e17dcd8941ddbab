"""Where things are in a D/T/P program: degrees, device groups, places of values, and the calls that are alike.

Device of (stage p, replica d, tensor rank t) = (p * D + d) * T + t: Megatron's order, tp fastest."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.func import CallOp
from xdsl.ir import Attribute, SSAValue

from distir.dialects.sharding import State


@dataclass(frozen=True)
class Layout:
    """Degrees of a D/T/P program."""

    dp: int
    tp: int
    pp: int
    microbatches: int

    @property
    def devices(self) -> int:
        return self.dp * self.tp * self.pp

    def group(self, stage: int, replica: int) -> list[int]:
        """The devices of one replica of one stage."""
        first = (stage * self.dp + replica) * self.tp
        return list(range(first, first + self.tp))


@dataclass(frozen=True)
class Place:
    """Where and for which microbatch a value of the staged entry is held; None is once per step."""

    stage: int
    replica: int
    microbatch: int | None


@dataclass
class Template:
    """A stage call of one replica: its types and properties, its operands group by group and device by device, and which
    groups vary: what a group's value is, and in which state, or the call that packed it."""

    result_types: list[Attribute]
    properties: dict[str, Attribute]
    operands: list[list[SSAValue]]
    varying: list[tuple[int, SSAValue | CallOp, State]]


@dataclass
class Tensor:
    """What a value of the staged entry is along the tensor and the batch axis."""

    batch: State
    tensor: State
