"""Kernels of a transformer block's forward and backward part are about as many as torch.compile makes."""

import pytest

from benchmarks.kernel_counts import cases, compiled_kernels, own_kernels


@pytest.mark.long
@pytest.mark.parametrize("number", [0, 1])
def test_within_15_percent_of_torch_compile(number: int) -> None:
    case = cases()[number]
    assert len(own_kernels(case)) / len(compiled_kernels(case)) == pytest.approx(1, abs=0.15)
