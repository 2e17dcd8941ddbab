"""Programs have values, not memory: however operands lie there, results are the same."""

import warnings
from collections.abc import Sequence
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from xdsl.context import Context

from distir.backends.torch.portable import distir_runtime
from distir.dialects.errors import DistirError
from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.aten.calls import Compute, binding_of, overload
from distir.interpreters.aten.reference import call_on_any_layout, tensor_of
from distir.interpreters.equivalence import verify
from distir.passes.dtp_parallelize import DtpParallelizePass
from tests.unit.aten_instances import operation, recorded


def turned(x: Tensor) -> Tensor:
    """The same values, the first dim innermost."""
    return x.transpose(0, -1).contiguous().transpose(0, -1) if x.dim() > 1 else padded(x)


def padded(x: Tensor) -> Tensor:
    """The same values with a gap behind each row."""
    whole = x.new_zeros((*x.shape[:-1], x.shape[-1] + 3)) if x.dim() else x
    return whole[..., : x.shape[-1]].copy_(x) if x.dim() else x


def is_same(a: Sequence[Tensor | None], b: Sequence[Tensor | None]) -> bool:
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    return all(x.shape == y.shape and is_close(x, y) for x, y in pairs)


def is_close(x: Tensor, y: Tensor) -> bool:
    wide = [each.to(torch.complex128) for each in (x, y)]
    return torch.allclose(wide[0], wide[1], rtol=1e-3, atol=1e-3, equal_nan=True)


def seeded(compute: Compute, operands: Sequence[Tensor]) -> Sequence[Tensor | None]:
    torch.manual_seed(0)
    return compute(operands)


@pytest.mark.long
def test_kernels_that_read_operands_as_contiguous_are_known() -> None:
    """Each operator on samples of torch's own, as ranks call it and as `verify` does."""
    wrong: set[str] = set()
    checked = 0
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        for call in recorded(3, 6):
            try:
                op, arrays = operation(call)
                tensors = [tensor_of(array).contiguous() for array in arrays]
                binding = binding_of(op)
                expected = seeded(binding.compute(), tensors)
            except (DistirError, RuntimeError, NotImplementedError, ValueError):
                continue  # of a sample without its memory, or for other devices
            if any(x is not None and x.layout != torch.strided for x in expected):
                continue
            if not is_same(expected, seeded(binding.compute(), tensors)):
                continue  # some results have memory in them that nobody wrote
            checked += 1
            on_ranks = binding.compute(distir_runtime.any_layout(overload(binding.schema)))
            by_verify = partial(call_on_any_layout, op, binding.compute())
            for lay in (turned, padded):
                given = [lay(x) for x in tensors]
                if not all(is_same(expected, seeded(f, given)) for f in (on_ranks, by_verify)):
                    wrong.add(op.name)
    assert checked > 1000
    assert not wrong


class Norms(nn.Module):
    """Norms of groups and of instances between transposed dims."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.groups = nn.Conv2d(4, 8, 3, padding=1), nn.GroupNorm(4, 8)
        self.linear, self.instances = nn.Linear(8, 8), nn.InstanceNorm2d(8, affine=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.groups(self.into(x)).permute(0, 2, 3, 1)
        return self.instances(self.linear(y).permute(0, 3, 1, 2)).transpose(2, 3)


def test_norms_between_transposed_dims_are_cut() -> None:
    torch.manual_seed(0)
    model = Norms()
    step = training_step(model, nn.functional.mse_loss, torch.optim.SGD(model.parameters(), 0.1))
    sequential = import_step(step, (torch.randn(4, 4, 6, 6), torch.randn(4, 8, 6, 6)))
    module = sequential.clone()
    DtpParallelizePass(tp=2).apply(Context(), module)
    assert verify(sequential, module, count=1).holds
