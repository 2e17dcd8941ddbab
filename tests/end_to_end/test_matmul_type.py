"""`distir search --matmul-type`: products with weights are charged at the rate of another type."""

import json
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from xdsl.dialects.builtin import ModuleOp

import distir
from distir.frontends.pytorch import import_step, training_step
from distir.tools.distir import main

WIDTH, ROWS = 8192, 16384


def step() -> ModuleOp:
    """Four layers of one width in bf16."""
    with torch.device("meta"):
        layers = [nn.Linear(WIDTH, WIDTH, bias=False, dtype=torch.bfloat16) for _ in range(4)]
        model = nn.Sequential(OrderedDict(layers=nn.Sequential(*layers)))
        batch = torch.empty(ROWS, WIDTH, dtype=torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return import_step(training_step(model, mse_loss, optimizer, example_args=(batch, batch)))


def test_products_with_weights_take_half_the_time() -> None:
    """In 8 bits; with two of four layers as they are, of whose eleven products these have five, nearly halfway between."""

    def seconds(**options: Any) -> float:
        plans = distir.search(step(), "dgx-h100", 2, microbatches=[1], dp=2, top=1, overlap=False, **options)
        return 1 / plans.best.throughput_per_second

    kept = "layers.0,layers.3"
    found = seconds(), seconds(matmul_type="f8E4M3FN", matmul_keep=kept), seconds(matmul_type="f8E4M3FN")
    whole, half, none = found
    assert none < 0.65 * whole
    assert half == pytest.approx(none + (whole - none) * 5 / 11, rel=0.03)


def test_a_machine_without_the_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "step.mlir"
    path.write_text(str(step()))
    search = ["search", str(path), "--machine", "dgx-a100", "--devices", "2", "--json", "--microbatches", "1"]
    assert main([*search, "--matmul-type", "f8E4M3FN"]) == 1
    assert "dgx-a100 has no rate for f8E4M3FN" in capsys.readouterr().err
    assert main([*search, "--matmul-type", "f8E4M3FN", "--set", "device.peak_flops_per_second.f8E4M3FN=6e14"]) == 0
    assert json.loads(capsys.readouterr().out)["plans"]
