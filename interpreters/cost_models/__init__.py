"""Cost models. In goes an operation's work, or a message and its devices; out come seconds on a machine.

A model is a class with one method per *kind* of operation, constructed from a `Machine`; local operations see
one whose devices are all like theirs (`CostModel.on`). `analytic` is the default; a
plug-in registers its class under a name (`register_cost_model`), and every tool then accepts `--cost-model NAME`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from xdsl.ir import Operation

from distir.dialects.plugins import Registry, register_cost_model
from distir.interpreters.machines import Machine
from distir.interpreters.work import Work

__all__ = ["COST_MODELS", "CostModel", "cost_model_names", "make_cost_model", "register_cost_model"]


class CostModel(ABC):
    """Seconds for each kind of operation. Methods must be pure: results are remembered per operation and devices."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self._of_groups: dict[int, CostModel] = {}

    def on(self, device: int) -> CostModel:
        """The model for operations on one device: it is given a machine of which all devices are like that one."""
        if self.machine.is_uniform:
            return self
        group = self.machine.group_of(device)
        if group not in self._of_groups:
            self._of_groups[group] = type(self)(self.machine.seen_from(group))
        return self._of_groups[group]

    @property
    def is_by_levels(self) -> bool:
        """Whether the levels of a uniform machine (`Machine.pattern`) are all that a model asks of where devices are. Then replicas
        that lie alike do the same at the same time, and so do tensor ranks, and a search simulates one of them."""
        return False

    @property
    def has_kernels(self) -> bool:
        """Whether a function that is one kernel costs less than its operations one after another."""
        return True

    def operation_seconds(self, op: Operation, devices: Sequence[int]) -> float | None:
        """An operation on these machine devices, for a model whose formulas need more than its work, such as shapes. None,
        which is the default: the methods below, by its kind."""
        return None

    @abstractmethod
    def matmul_seconds(self, work: Work, dtype: str) -> float:
        """A contraction; `dtype` is the element type as the IR prints it (`f16`)."""

    def attention_seconds(self, work: Work, dtype: str) -> float:
        """Attention, or its gradient, as one kernel; unless a model says otherwise, as a contraction of these flops and bytes."""
        return self.matmul_seconds(Work(work.kind, work.flops, work.bytes), dtype)

    @abstractmethod
    def elementwise_seconds(self, work: Work, dtype: str) -> float:
        """A local operation that computes and is no contraction."""

    @abstractmethod
    def data_movement_seconds(self, work: Work) -> float:
        """A local copy."""

    @abstractmethod
    def collective_seconds(self, kind: str, bytes: int, devices: Sequence[int]) -> float:
        """A collective among these machine devices: `allreduce`, `allgather`, `reducescatter`, `alltoall`, `broadcast`,
        `scatter`, `gather` or `reduce`. `bytes` is the size of the whole tensor: of the larger side."""

    def layout_seconds(self, bytes: int) -> float:
        """A copy of so many bytes on each device, before or after a collective whose parts do not lie together in memory; none, unless a model
        says otherwise."""
        return 0.0

    @abstractmethod
    def send_seconds(self, bytes: int, source: int, target: int) -> float:
        """One message between two machine devices."""


COST_MODELS: Registry[type[CostModel]] = Registry(
    "cost model",
    {
        "analytic": "distir.interpreters.cost_models.analytic:AnalyticCostModel",
        "distir": "distir.interpreters.cost_models.distir:DistirCostModel",
    },
    subclass_of=CostModel,
)


def cost_model_names() -> list[str]:
    """The models that can be asked for by name."""
    return sorted(COST_MODELS)


def make_cost_model(name_or_class: str | type[CostModel], machine: Machine) -> CostModel:
    """The model for a machine. Raises DistirError if no model has that name."""
    model = COST_MODELS.find(name_or_class) if isinstance(name_or_class, str) else name_or_class
    return model(machine)
