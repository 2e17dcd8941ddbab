"""Plans that divide: models too small for that to be fast get the plan that they would have at real size."""

import pytest
import torch
from torch import nn
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.frontends.onnx import import_model
from distir.frontends.pytorch import import_step
from distir.interpreters.entry import arguments_of, entry_function
from distir.interpreters.equivalence import verify
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.ilp_shard import IlpShardPass
from examples.gpt2_onnx import build


def gpt2() -> ModuleOp:
    return import_model(build(n_layer=2, d_model=24, n_head=6, vocab=37, n_ctx=8), {"input1": (4, 1, 8)})


def elements(module: ModuleOp, device: int | None = None) -> int:
    """Of the parameters, on one device if one is given."""
    total = 0
    for port in arguments_of(entry_function(module)):
        on = port.type.encoding  # type: ignore[attr-defined]
        if port.role == "parameter" and (device is None or on.device == device):
            count = 1
            for extent in port.type.get_shape():  # type: ignore[attr-defined]
                count *= extent
            total += count
    return total


@pytest.mark.parametrize("mesh", ["dp=2,tp=2", "tp=3"])
def test_a_tiny_model_is_divided_where_that_is_asked(mesh: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its parameters are 1/T on each device, within what vectors and a vocabulary that nothing divides leave; a note has the time of the fastest."""
    source = gpt2()
    module, ranks = source.clone(), int(mesh[-1])
    IlpShardPass(mesh=mesh, restrict="dp=batch,tp=model" if "dp" in mesh else "tp=model", divide=True).apply(
        Context(), module
    )
    assert "a plan that divides less is faster" in capsys.readouterr().err
    ApplyShardingPass().apply(Context(), module)
    assert elements(module, 0) <= 1.15 / ranks * elements(source)
    assert verify(source, module, count=1).holds


def test_the_fastest_plan_of_a_tiny_model_cuts_nothing_so_it_is_divided(capsys: pytest.CaptureFixture[str]) -> None:
    source = gpt2()
    module = source.clone()
    IlpShardPass(mesh="tp=2", restrict="tp=model").apply(Context(), module)
    assert "cuts nothing, so every device would do everything: this one divides" in capsys.readouterr().err
    ApplyShardingPass().apply(Context(), module)
    assert elements(module, 0) <= 0.6 * elements(source)


def test_stages_divide_too() -> None:
    source = gpt2()
    module = source.clone()
    DtpParallelizePass(tp=2, pp=2, microbatches=2, sharding="ilp", divide=True).apply(Context(), module)
    assert max(elements(module, device) for device in range(4)) <= 0.45 * elements(source)
    assert verify(source, module, count=1).holds


def test_the_tensor_axis_that_leaves_parameters_whole_gives_way(capsys: pytest.CaptureFixture[str]) -> None:
    """A recurrence whose matrices no rule of its own cuts: they are stored in parts, and gathered where they are used."""
    import numpy as np
    import onnx
    from onnx import helper

    weights = [("w", (1, 32, 8)), ("r", (1, 32, 8))]
    values = [onnx.numpy_helper.from_array(np.ones(shape, np.float32) * 0.1, name) for name, shape in weights]
    graph = helper.make_graph(
        [helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=8)],
        "g",
        [helper.make_tensor_value_info("x", 1, (4, 6, 8))],
        [helper.make_tensor_value_info("y", 1, (4, 1, 6, 8))],
        values,
    )
    source = import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]))
    module = source.clone()
    DtpParallelizePass(tp=2, batch="x:1").apply(Context(), module)
    assert elements(module, 0) <= 0.6 * elements(source)
    assert verify(source, module, count=1).holds


class TwoLookups(nn.Module):
    """One table: looked up twice, and scores of words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.one, self.other = nn.Embedding(512, 128), nn.Linear(128, 128), nn.Linear(128, 128)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Scores [batch, y, word]."""
        both = self.one(self.words(x)).mean(1, keepdim=True) + self.other(self.words(y)).tanh()
        return both @ self.words.weight.t()


def test_a_table_that_is_cheaper_to_hold_whole_is_divided() -> None:
    words = torch.randint(0, 512, (4, 32))
    source = import_step(TwoLookups(), (words, words))
    module = source.clone()
    DtpParallelizePass(tp=2).apply(Context(), module)
    assert elements(module, 0) / elements(source) == pytest.approx(0.5, abs=0.01)
    assert verify(source, module, count=1).holds


def test_stages_are_even_in_parameters_where_that_is_asked() -> None:
    """An expensive product by a small matrix is followed by cheap ones by large matrices."""
    narrow, wide = nn.Linear(8, 8), [nn.Linear(8, 512), nn.ReLU(), nn.Linear(512, 8)]
    model = nn.Sequential(*[narrow] * 8, nn.AdaptiveAvgPool2d((1, 8)), *wide)
    source = import_step(model, (torch.randn(4, 4096, 8),))
    shares: list[float] = []
    for divide in (False, True):
        module = source.clone()
        DtpParallelizePass(dp=2, pp=2, microbatches=2, divide=divide).apply(Context(), module)
        assert verify(source, module, count=1).holds
        shares.append(max(elements(module, device) for device in range(4)) / elements(source))
    assert shares[0] > 0.9
    assert shares[1] < 0.6
