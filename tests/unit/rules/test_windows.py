"""Shards that overlap: what is found of windows, and that convolutions and pooling cut with a halo compute what they do whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.parser import Parser

import distir
from distir.dialects.aten import Aten
from distir.dialects.dist import Dist
from distir.dialects.onnx import Onnx
from distir.dialects.sharding import MeshOp, StrategyAttr, UseFactor
from distir.interpreters.entry import arguments_of, entry_function
from distir.interpreters.module_check import check_module
from distir.interpreters.reference import run, run_ranks
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.distribution.options import chosen_option, rule_of
from distir.passes.project_to_rank import project
from distir.passes.shardcombine_annotate import ShardcombineAnnotatePass


def parse(text: str) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, func.Func, Dist, Onnx, Aten):
        context.load_dialect(dialect)
    return Parser(context, text).parse_module()


def rule(function: object, *arrays: np.ndarray) -> str:
    return str(distir.discover(function, arrays)).removeprefix("#dist.rule<").removesuffix(", found = exact>")  # type: ignore[arg-type]


def test_windows_of_any_callable():
    """By hand: each result row reads a row and the next; every second row and the next two; a row and both neighbours."""
    x = np.ones((20, 3))
    assert (
        rule(lambda x: x[1:] - x[:-1], x)
        == "[S2(halo = [0, 1]), S1] -> {S1: gather(1), S2: gather(0)}, partial = [sum: 0 -> 0]"
    )
    assert "S2(halo = [0, 2], stride = 2)" in rule(lambda x: x[:-2:2] + x[1:-1:2] * x[2::2], x)
    smoothed = rule(lambda x: x + np.concatenate([x[1:], x[-1:]]) * np.concatenate([x[:1], x[:-1]]), x)
    assert smoothed == "[S2(halo = 1), S1] -> {S1: gather(1), S2: gather(0, halo = -1)}"


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.cumsum(x, 0),
        lambda x: np.roll(x, 1, 0),
        lambda x: x[::-1],
        lambda x: np.tril(x),
        lambda x: x[1:] - x.mean(0),
        lambda x: x + np.concatenate([np.zeros((15, 3), x.dtype), x])[: len(x)],  # a reach that no number states
        lambda x: x + np.concatenate([np.zeros((15, x.shape[1]), x.dtype), x])[: len(x)],
    ],
    ids=["cumsum", "roll", "flip", "triangle", "mean", "echo", "echo of any width"],
)
def test_no_windows(function: object):
    """Rows that depend on all rows, on the row at the other end, on their position, or on one far away."""
    found = rule(function, np.ones((20, 3)))
    assert "halo" not in found
    assert "gather(0" not in found


OPERATORS = (
    *("Conv", "MaxPool", "AveragePool", "ConvTranspose"),
    *("input gradient", "weight gradient", "average gradient", "maximum gradient"),
)


@st.composite
def programs(draw: st.DrawFn, kinds: tuple[str, ...] = OPERATORS) -> str:
    """One windowed operator on rows of its own extent: kernel, stride, dilation and padding on either side as drawn."""
    kind = draw(st.sampled_from(kinds))
    kernel, stride, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    dilation = 1 if kind == "average gradient" else dilation
    reach = dilation * (kernel - 1) + 1
    left, right = (draw(st.integers(0, min(2, kernel - 1))) for _ in range(2))
    if "gradient" in kind:
        left = right = min(left, kernel // 2)
    extent = draw(st.integers(7, 14))
    rows = (extent + left + right - reach) // stride + 1
    assume(rows >= 3)
    x, y, w = f"tensor<2x3x{extent}xf32>", f"tensor<2x3x{rows}xf32>", f"tensor<3x3x{kernel}xf32>"
    if kind == "ConvTranspose":
        x, y = f"tensor<2x3x{rows}xf32>", f"tensor<2x3x{stride * (rows - 1) + reach - left - right}xf32>"
    numbers = {"dilations": [dilation], "kernel_shape": [kernel], "pads": [left, right], "strides": [stride]}
    onnx = ", ".join(f"{k} = [{', '.join(f'{n} : si64' for n in v)}]" for k, v in numbers.items())
    listed = {"stride": stride, "padding": left, "dilation": dilation}
    aten = ", ".join(f"{k} = array<i64: {n}>" for k, n in listed.items())
    beyond = (extent + 2 * left - reach) % stride
    none = '%n = "onnx.NoValue"() <{value}> : () -> none\n'
    taken: dict[str, str] = {"x": x, "w": w}
    match kind:
        case "Conv" | "ConvTranspose":
            body = f'{none}%y = "onnx.{kind}"(%x, %w, %n) <{{{onnx}}}> : ({x}, {w}, none) -> {y}'
        case "MaxPool":
            taken, body = {"x": x}, f'%y, %i = "onnx.MaxPool"(%x) <{{{onnx}}}> : ({x}) -> ({y}, none)'
        case "AveragePool":
            taken, body = {"x": x}, f'%y = "onnx.AveragePool"(%x) <{{{onnx}}}> : ({x}) -> {y}'
        case "input gradient":
            aten += f", transposed = true, output_padding = array<i64: {beyond}>, groups = 1 : i64"
            taken, body = {"x": y, "w": w}, f'%y = "aten.convolution"(%x, %w) <{{{aten}}}> : ({y}, {w}) -> {x}'
            y = x
        case "weight gradient":
            aten += ", transposed = false, output_padding = array<i64: 0>, groups = 1 : i64, bias_sizes = array<i64: 0>"
            aten += ", output_mask = [false, true, false]"
            taken = {"x": y, "z": x, "w": w}
            body = f'%a, %y, %b = "aten.convolution_backward"(%x, %z, %w) <{{{aten}}}> : ({y}, {x}, {w}) -> (none, {w}, none)'
            y = w
        case _:
            x, y = (type_.replace("xf32", "x5xf32") for type_ in (x, y))
            sizes = {"kernel_size": [kernel, 1], "stride": [stride, 1], "padding": [left, 0]}
            aten = ", ".join(f"{k} = array<i64: {a}, {b}>" for k, (a, b) in sizes.items())
            operator, more = "avg_pool2d_backward", "ceil_mode = false, count_include_pad = true"
            if kind == "maximum gradient":
                operator, more = "max_pool2d_backward", f"dilation = array<i64: {dilation}, 1>"
            taken = {"x": y, "z": x}
            body = f'%y = "aten.{operator}"(%x, %z) <{{{aten}, {more}}}> : ({y}, {x}) -> {x}'
            y = x
    ports = (f'%{name}: {type_} {{dist.name = "{name}", dist.role = "input"}}' for name, type_ in taken.items())
    result = f'{y} {{dist.name = "y", dist.role = "output"}}'
    return f"func.func @main({', '.join(ports)}) -> ({result}) {{\n{body}\nfunc.return %y : {y}\n}}"


def cut_rows(text: str, devices: int) -> ModuleOp | None:
    """The program with its rows cut over the devices; None if its rule does not say how."""
    module = parse(text)
    ShardcombineAnnotatePass().apply(Context(), module)
    function = entry_function(module)
    (op,) = (o for o in function.body.block.ops if "dist.rule" in o.attributes)
    found = rule_of(op)
    assert found is not None
    factor = found.inputs[0][2].factor
    if factor is None or chosen_option(op, UseFactor(factor), devices, uneven=True) is None:
        return None
    op.attributes["dist.strategy"] = StrategyAttr.of("mesh", {"a": UseFactor(factor)})
    module.body.block.insert_op_before(MeshOp("mesh", {"a": devices}), function)
    ApplyShardingPass().apply(Context(), module)
    module.verify()
    check_module(module)
    return module


def test_rows_of_any_window_can_be_cut():
    cut: list[bool] = []

    @settings(max_examples=6, deadline=None, phases=[Phase.explicit, Phase.generate])
    @given(programs(), st.integers(2, 3))
    def examples(text: str, devices: int) -> None:
        rng = np.random.default_rng(0)
        whole = parse(text)
        ports = arguments_of(entry_function(whole))
        inputs = {
            port.name: rng.integers(-2, 3, port.type.get_shape()).astype(float) for port in ports
        }  # of equal maxima
        expected = run(whole, inputs, dtype=np.float64)["y"]
        module = cut_rows(text, devices)
        cut.append(module is not None)
        if module is None:
            return
        ranks = [project(module, rank) for rank in range(devices)]
        for got in (run(module, inputs, dtype=np.float64), run_ranks(ranks, inputs, dtype=np.float64)):
            np.testing.assert_allclose(got["y"], expected, rtol=0, atol=1e-12)

    examples()
    assert sum(cut) > len(cut) * 3 // 4, cut


@pytest.mark.parametrize("channels", [2, 3, 5])
@pytest.mark.parametrize("kernel", [3, 5])
def test_channels_as_many_as_a_kernel_has_rows(channels: int, kernel: int) -> None:
    """The first convolution on an image of three colours."""
    x, w = f"tensor<2x{channels}x40xf32>", f"tensor<7x{channels}x{kernel}xf32>"
    y = f"tensor<2x7x{41 - kernel}xf32>"
    module = parse(
        f"""func.func @main(%x: {x}, %w: {w}) -> {y} {{
          %none = "onnx.NoValue"() <{{value}}> : () -> none
          %y = "onnx.Conv"(%x, %w, %none) <{{kernel_shape = [{kernel} : si64]}}> : ({x}, {w}, none) -> {y}
          func.return %y : {y}
        }}"""
    )
    ShardcombineAnnotatePass().apply(Context(), module)
    (found,) = [str(rule_of(op)) for op in entry_function(module).body.block.ops if op.name == "onnx.Conv"]
    assert f"halo = [0, {kernel - 1}]" in found
