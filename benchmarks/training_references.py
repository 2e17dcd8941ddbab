"""Hand-written PyTorch beside which training steps are measured (`training_speed`). In go a model, its loss and a global batch; out comes this rank's step
of training with AdamW: eager, or on two ranks DistributedDataParallel, FSDP (`fully_shard`), tensor parallel (`parallelize_module`) or 1F1B of
`torch.distributed.pipelining`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

MICROBATCHES = 4
_BY_COST: dict[str, Any] = {"sharding": "ilp", "machine": "local-cpu"}
PLANS: dict[str, dict[str, Any]] = {
    "eager": {},
    "DDP": {"dp": 2, "overlap": True, **_BY_COST},
    "FSDP": {"dp": 2, "zero": 3, "overlap": True, **_BY_COST},
    "DTensor": {"tp": 2, **_BY_COST},
    "pipelining": {"pp": 2, "microbatches": MICROBATCHES, "schedule": "1f1b", **_BY_COST},
}
"""What `dtp-parallelize` is told for the same distribution."""

Loss = Callable[[Tensor, Tensor], Tensor]


def reference_step(
    kind: str, model: nn.Module, loss_of: Loss, batch: tuple[Tensor, ...], rank: int
) -> Callable[[], Any]:
    """A step of training on a global batch, inputs before the label."""
    if kind == "pipelining":
        return _pipeline(model, loss_of, batch, rank)
    trained: Any = model
    if kind == "DDP":
        trained = nn.parallel.DistributedDataParallel(model)
    elif kind == "FSDP":
        _fully_shard(model)
    elif kind == "DTensor":
        _parallelize(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    *inputs, label = [b.chunk(2)[rank] for b in batch] if kind in ("DDP", "FSDP") else batch

    def step() -> None:
        optimizer.zero_grad()
        loss_of(trained(*inputs), label).backward()
        optimizer.step()

    return step


def _layers(model: nn.Module) -> list[nn.Module]:
    """What FSDP gathers, and a pipeline cuts between: blocks, or the layers of a sequence."""
    return list(getattr(model, "blocks", None) or model.children())


def _fully_shard(model: nn.Module) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))
    for layer in _layers(model):
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def _parallelize(model: nn.Module) -> None:
    """Megatron's cut: columns, then rows. A fused QKV weight is cut as if its rows were in the order of heads, which is as fast."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh, columns, rows = init_device_mesh("cpu", (2,)), ColwiseParallel(), RowwiseParallel()
    if isinstance(model, nn.Sequential):
        parallelize_module(model, mesh, {"0": columns, "2": rows, "4": columns, "6": rows})
        return
    cut = {name: columns for name in ("q", "k", "v", "qkv", "gate", "up")} | {
        name: rows for name in ("o", "projection", "down")
    }
    for block in _layers(model):
        block.heads //= 2  # pyright: ignore
        parallelize_module(block, mesh, {name: style for name, style in cut.items() if hasattr(block, name)})


class _Stage(nn.Module):
    """Half of a decoder."""

    def __init__(self, model: Any, rank: int) -> None:
        super().__init__()
        blocks = _layers(model)
        half = len(blocks) // 2
        self.blocks = nn.ModuleList(blocks[half:] if rank else blocks[:half])
        names = ("norm", "head") if rank else ("tokens", "positions")
        for name in names:
            setattr(self, name, getattr(model, name, None))
        self.rank = rank

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
        if not self.rank:
            x = self.tokens(x) if self.positions is None else self.tokens(x) + self.positions.weight[:n]
        for block in self.blocks:
            x = block(x, hidden)
        return self.head(self.norm(x)) if self.rank else x


def _pipeline(model: nn.Module, loss_of: Loss, batch: tuple[Tensor, ...], rank: int) -> Callable[[], Any]:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    half = (len(list(model.children())) + 1) // 2
    if isinstance(model, nn.Sequential):
        own: nn.Module = model[half:] if rank else model[:half]
    else:
        own = _Stage(model, rank)
    stage = PipelineStage(own, rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=loss_of)
    optimizer = torch.optim.AdamW(own.parameters(), lr=1e-3)
    *inputs, label = batch

    def step() -> None:
        optimizer.zero_grad()
        schedule.step(*([] if rank else inputs), **({"target": label} if rank else {}))
        optimizer.step()

    dist.barrier()
    return step
