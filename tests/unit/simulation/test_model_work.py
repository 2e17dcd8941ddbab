"""What users read first of a plan: the model's flops, tokens, and what memory is for."""

import json
from pathlib import Path

import onnx
import pytest
from xdsl.context import Context

from distir.frontends.pytorch import import_step
from distir.interpreters.entry import entry_function
from distir.interpreters.machines import load_machine
from distir.interpreters.model_work import Tokens, model_work
from distir.interpreters.simulate.analysis import Analysis
from distir.interpreters.simulate.kinds import by_kind
from distir.passes.distribution.batch.batch_axis import parse_batch
from distir.passes.dtp_parallelize import DtpParallelizePass, prepare
from distir.tools.distir import main
from examples import gpt2_onnx, gpt3_pytorch, mlp_pytorch
from tests.long_cases import also_long

H100_F32 = 6.7e13
"""FLOP/s, of dgx-h100.toml."""


@pytest.mark.parametrize("prepared", also_long([False, True], [True]))
def test_flops_are_those_of_narayanan_without_recomputation(prepared: bool) -> None:
    """Narayanan et al., 2021, appendix: 96 B s l h^2 (1 + s / 6h + V / 16lh) with recomputation, of which a forward pass of
    24 B s l h^2 (1 + s / 6h) is what is computed anew: 72 B s l h^2 (1 + s / 6h + V / 12lh). The example checkpoints every block."""
    batch, layers, s, h, v = 4, 1, 2048, 12288, 51200
    module = import_step(gpt3_pytorch.step(layers, batch))
    if prepared:
        prepare(Context(), module)
    work = model_work(module, parse_batch("", entry_function(module)))
    assert work.tokens == Tokens(s, "tokens")
    expected = 72 * batch * s * layers * h * h * (1 + s / (6 * h) + v / (12 * layers * h))
    assert work.flops == {"bf16": round(expected)}


def test_gpt2_has_the_figures_that_users_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """GPT-2's 4 tokens per sample are a dim of `input1`. Its forward pass multiplies, per token and layer, by 12 d^2 weights, and by 2 s d for attention."""
    layers, d, tokens, batch = 2, 16, 4, 8
    onnx.save(gpt2_onnx.build(n_layer=layers, d_model=d, n_head=2, vocab=23, n_ctx=8), tmp_path / "gpt2.onnx")
    model = str(tmp_path / "gpt2.onnx")
    options = ["--shape", "input1=8,1,4", "--machine", "dgx-h100", "--devices", "2", "--microbatches", "2"]
    assert main(["search", model, *options, "--json"]) == 0
    flops = 2 * batch * tokens * layers * (12 * d * d + 2 * tokens * d)
    for plan in json.loads(capsys.readouterr().out)["plans"]:
        seconds = plan["latency_seconds"]
        assert plan["tokens_per_second"] == pytest.approx(batch * tokens / seconds)
        assert plan["model_flops_per_device_second"] == pytest.approx(flops / seconds / 2)
        assert plan["mfu"] == pytest.approx(flops / seconds / 2 / H100_F32)
        kinds = ("weights_bytes", "gradients_bytes", "optimizer_state_bytes", "activations_bytes")
        assert sum(plan[kind] for kind in kinds) == plan["peak_memory_bytes"]
        assert plan["weights_bytes"] >= 4 * 12 * layers * d * d / (plan["tp"] * plan["pp"])
        assert plan["gradients_bytes"] == plan["optimizer_state_bytes"] == 0
    assert main(["search", model, *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[6:] == ["tokens/s", "latency", "memory", "MFU", "comm", "bubble"]
    assert max(map(len, lines)) <= 80
    assert "4 tokens per sample, by the dims of 'input1'" in lines


@pytest.mark.parametrize("sharding", ["auto", "ilp"])
def test_memory_by_kind_is_what_each_is_for(sharding: str) -> None:
    """An MLP of 8-16-16-4 in f32 with AdamW: a device of one has all 484 weights and biases, and two moments and a counter for each of
    6 tensors. In the loop of a pipeline gradients are summed: those of the microbatches before, and the one that is being added."""
    module = import_step(mlp_pytorch.step())
    options = {"sharding": sharding, "grouped": sharding == "ilp"}
    DtpParallelizePass(pp=2, microbatches=4, **options).apply(Context(), module)  # pyright: ignore[reportArgumentType]
    analysis = Analysis(module, load_machine("dgx-a100"))
    found = [by_kind(analysis.peak(device).live_tensors) for device in range(2)]
    assert sum(kinds["weights"] for kinds in found) == 4 * 484
    assert sum(kinds["optimizer_state"] for kinds in found) == 2 * 4 * 484 + 6 * 8
    assert all(kinds["gradients"] >= kinds["weights"] for kinds in found)
    assert [sum(kinds.values()) for kinds in found] == list(analysis.summary.peak_memory_bytes.values())
