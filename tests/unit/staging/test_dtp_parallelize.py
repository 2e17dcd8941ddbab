"""What the D/T/P transform chooses: Megatron's communication, one function per distinct body, devices in Megatron's order;
and what it refuses."""

import re
from collections import Counter
from time import process_time

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp

from distir.dialects.errors import DistirError
from distir.interpreters.entry import arguments_of, entry_function
from distir.interpreters.simulate import simulate
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.structure import functions
from tests.small_models import gpt2, mlp
from tests.unit.sharding_problems import parsed

MACHINE = "dgx-a100"
LAYERS = 4


def collectives(module: ModuleOp) -> Counter[str]:
    """Executed communication by name; one over several devices counts once."""
    found: Counter[str] = Counter()
    simulation = simulate(module, MACHINE)
    for name in functions(module):
        found.update(simulation.collectives_in(name))
    return found


def collectives_in_layers(module: ModuleOp) -> Counter[str]:
    simulation = simulate(module, MACHINE)
    found: Counter[str] = Counter()
    for name in functions(module):
        if name.startswith("layer"):
            found.update(simulation.collectives_in(name))
    return found


# --- Megatron's pattern ---


@pytest.mark.parametrize(("tp", "batch"), [(2, 8), (3, 9)])
def test_a_transformer_layer_has_two_allreduces(tp: int, batch: int):
    """One after attention's projection, one after the MLP's (Shoeybi et al., 2019); the table of words is cut by
    width, and its rows are gathered."""
    module = gpt2(LAYERS, batch).distributed(tp=tp)
    assert collectives_in_layers(module) == {"dist.allreduce": 2 * LAYERS}
    assert collectives(module) == {"dist.allreduce": 2 * LAYERS, "dist.allgather": 1}


def test_every_microbatch_and_replica_has_its_own():
    """2 a layer x 4 layers x 2 microbatches x 2 replicas = 32; between the stages, each rank sends its copy: 2 x 2 x 2 = 8. Words are looked up
    in cut tables: 2 x 2 gathers."""
    module = gpt2(LAYERS).distributed(dp=2, tp=2, pp=2, microbatches=2)
    assert collectives_in_layers(module) == {"dist.allreduce": 32}
    assert collectives(module) == {"dist.allreduce": 32, "dist.send": 8, "dist.allgather": 4}


def test_weights_of_a_transformer_are_cut_as_megatron_cuts_them():
    """QKV by heads (columns, in three pieces), the projection by rows, then columns and rows; biases of column-cut layers
    with them; all else whole. Cut by 2, of width 24."""
    module = gpt2(LAYERS).distributed(tp=2)
    parts = {p.name: str(p.part) for p in arguments_of(entry_function(module)) if p.on is not None and p.on.device == 1}
    layer = {name[4:]: part for name, part in parts.items() if name.startswith("h.2.")}
    assert {name: re.findall(r"<(.*)>", part)[0] for name, part in layer.items() if "ln_" not in name} == {
        "attn.c_attn.weight": "[0:24, 12:24 + 36:48 + 60:72] of [24, 72]",
        "attn.c_attn.bias": "[12:24 + 36:48 + 60:72] of [72]",
        "attn.c_proj.weight": "[12:24, 0:24] of [24, 24]",
        "attn.c_proj.bias": "[0:24] of [24]",
        "mlp.c_fc.weight": "[0:24, 48:96] of [24, 96]",
        "mlp.c_fc.bias": "[48:96] of [96]",
        "mlp.c_proj.weight": "[48:96, 0:24] of [96, 24]",
        "mlp.c_proj.bias": "[0:24] of [24]",
    }


# --- data parallelism ---


@pytest.mark.parametrize("microbatches", [1, 4])
def test_one_gradient_allreduce_per_parameter(microbatches: int):
    """Gradients are accumulated before they are reduced, so microbatches do not matter: 4 weights."""
    module = mlp(batch=8).distributed(dp=2, microbatches=microbatches)
    assert collectives(module) == {"dist.allreduce": 4}


def test_gradients_are_added_as_they_are_made() -> None:
    """Of 8 weights of 64 x 64 floats each stage has 4, the sums of their gradients, and, while one gradient is added, this and the
    sum that it makes: 10 matrices. Activations of a microbatch, of 2 rows, are 1/32 of one each."""
    module = mlp((64,) * 9).distributed(pp=2, microbatches=4)
    matrix = 64 * 64 * 4
    peaks = simulate(module, MACHINE).peak_memory_bytes
    assert all(10 * matrix <= peak < 11 * matrix for peak in peaks.values())


def test_inference_in_replicas_communicates_nothing():
    assert collectives(gpt2(LAYERS).distributed(dp=2)) == {}


# --- size and placement ---


@pytest.mark.parametrize(
    "degrees",
    [pytest.param({"pp": 2, "microbatches": 2}, marks=pytest.mark.long), {"dp": 2, "tp": 2, "pp": 2}],
    ids=str,
)
def test_depth_adds_no_function(degrees: dict[str, int]):
    shallow, deep = gpt2(4).distributed(**degrees), gpt2(12).distributed(**degrees)
    assert list(functions(shallow)) == list(functions(deep))
    bodies = [
        [len(f.body.block.ops) for n, f in functions(m).items() if n.startswith("layer")] for m in (shallow, deep)
    ]
    assert bodies[0] == bodies[1]


def stage_of_layers(module: ModuleOp, dp: int, tp: int) -> list[set[int]]:
    """The stages on which each layer's weights are."""
    found: dict[int, set[int]] = {}
    for port in arguments_of(entry_function(module)):
        if (match := re.match(r"h\.(\d+)\.", port.name)) and port.on is not None:
            found.setdefault(int(match[1]), set()).add(port.on.device // (dp * tp))
    return [found[layer] for layer in sorted(found)]


def test_layers_that_stages_do_not_divide():
    """4 layers over 3 stages: each whole layer on one stage, in order, one stage with two."""
    homes = stage_of_layers(gpt2(LAYERS).distributed(pp=3, microbatches=2), 1, 1)
    stages = [stage for home in homes for stage in home]
    assert len(stages) == LAYERS
    assert sorted(set(stages)) == [0, 1, 2]
    assert stages == sorted(stages)


@pytest.mark.parametrize("stages", [5, 30])
def test_more_stages_than_layers(stages: int):
    """5: embeddings or the last norm make a stage of their own. 30, more than the calls and other operations of the entry:
    layers are opened."""
    module = gpt2(LAYERS).distributed(pp=stages, microbatches=2)
    assert all(simulate(module, MACHINE).busy_seconds[device] for device in range(stages))
    assert any(name.startswith("layer") for name in functions(module)) == (stages == 5)


def test_devices_are_numbered_as_megatron_numbers_them():
    """Device (p * D + d) * T + t: rows of the input by d, shards of the weights by t, weights by p. D, T, P = 2, 2, 2."""
    module = mlp(batch=8).distributed(dp=2, tp=2, pp=2)
    devices = module.attributes["dist.devices"]
    assert isinstance(devices, IntegerAttr)
    assert devices.value.data == 8
    places: dict[str, list[int]] = {}
    for port in arguments_of(entry_function(module)):
        assert port.on is not None
        device = port.on.device
        places.setdefault(port.name, []).append(device)
        d, t = device // 2 % 2, device % 2
        if port.name == "x":
            assert str(port.part) == f"#dist.part<[{4 * d}:{4 * d + 4}, 0:12] of [8, 12]>"
        elif port.name.startswith("w"):
            shard = f"{6 * t}:{6 * t + 6}"
            assert str(port.part) in (
                f"#dist.part<[0:12, {shard}] of [12, 12]>",
                f"#dist.part<[{shard}, 0:12] of [12, 12]>",
            )
    assert places["x"] == places["w0"] == places["w1"] == [0, 1, 2, 3]
    assert places["z"] == places["w2"] == places["w3"] == [4, 5, 6, 7]


# --- refusals ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pp": 1000}, r"cannot cut \d+ forward operations into 1000 pipeline stages: use at most \d+"),
        ({"dp": 0}, "dp: expected at least 1, got 0"),
        ({"microbatches": -1}, "microbatches: expected at least 1, got -1"),
        ({"schedule": "zigzag"}, "unknown schedule zigzag: expected 1f1b, 1f1b-eager, dualpipev, "),
        ({"batch": "input2:0"}, "batch: no argument 'input2': expected input1"),
        ({"batch": "input1:7"}, "batch: expected input1:DIM with a dim of 'input1', got 'input1:7'"),
        ({"machine": "dgx-1000", "tp": 2}, "dgx-1000"),
    ],
    ids=str,
)
def test_refusals(options: dict[str, object], message: str):
    with pytest.raises(DistirError, match=message):
        gpt2(LAYERS).distributed(**options)


def test_an_unrolled_cell_is_planned_in_bounded_work():
    """Every step takes the same weights, so everything depends on everything: 26 steps of two products, sums and gates."""
    rows, lines = "tensor<8x32xf32>", list[str]()
    for t in range(26):
        lines += [
            f'%a{t} = "onnx.MatMul"(%h{t}, %w) : ({rows}, tensor<32x32xf32>) -> {rows}',
            f'%b{t} = "onnx.MatMul"(%x, %u) : ({rows}, tensor<32x32xf32>) -> {rows}',
            f'%s{t} = "onnx.Add"(%a{t}, %b{t}) : ({rows}, {rows}) -> {rows}',
            f'%g{t} = "onnx.Sigmoid"(%s{t}) : ({rows}) -> {rows}',
            f'%c{t} = "onnx.Tanh"(%s{t}) : ({rows}) -> {rows}',
            f'%m{t} = "onnx.Mul"(%g{t}, %c{t}) : ({rows}, {rows}) -> {rows}',
            f'%n{t} = "onnx.Add"(%m{t}, %v) : ({rows}, tensor<32xf32>) -> {rows}',
            f'%h{t + 1} = "onnx.Mul"(%n{t}, %g{t}) : ({rows}, {rows}) -> {rows}',
        ]
    weights = ", ".join(
        f'%{n}: tensor<{d}xf32> {{dist.name = "{n}", dist.role = "parameter"}}'
        for n, d in (("w", "32x32"), ("u", "32x32"), ("v", "32"))
    )
    text = f"""func.func @main(%x: {rows} {{dist.name = "x", dist.role = "input"}}, %h0: {rows} {{dist.name = "h", dist.role = "input"}},
        {weights}) -> ({rows} {{dist.name = "y", dist.role = "output"}}) {{
        {chr(10).join(lines)}
        func.return %h26 : {rows} }}"""
    module = parsed(text)
    start = process_time()
    DtpParallelizePass(tp=2).apply(Context(), module)
    assert process_time() - start < 60
