"""One program at many batch sizes equals the program of each batch size, bit for bit."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.parser import Parser

from distir.dialects.dist import Dist
from distir.dialects.errors import DistirError
from distir.dialects.onnx import Onnx, TensorAttr
from distir.frontends.onnx import import_model
from distir.interpreters.entry import entry_function
from distir.interpreters.machines import load_machine
from distir.interpreters.simulate import summarize
from distir.interpreters.simulate.batches import MARK, BatchSummaries, attribute_at
from distir.passes.distribution.batch.batch_axis import parse_batch
from distir.passes.distribution.batch.rebatch import rebatch
from distir.passes.dtp_parallelize import prepare
from distir.passes.search.configurations import Outcome, grid
from distir.passes.search.search import Search
from examples import mlp_onnx
from tests.unit import random_models, random_modules

QUIET = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
DGX2 = load_machine("dgx-2")


def parse(text: str) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, Func, Dist, Onnx):
        context.load_dialect(dialect)
    return Parser(context, text).parse_module()


@settings(max_examples=40, **QUIET)
@given(random_modules.programs(), st.lists(st.integers(2, 1 << 20), min_size=1, max_size=3))
def test_vectors_of_clocks_and_bytes(module: ModuleOp, rows: list[int]) -> None:
    """Nested calls, aliases, dead results, streams and tuples: every dim of 4 becomes the batch."""
    text = str(module)
    at = {n: parse(text.replace("4xf32", f"{n}xf32")) for n in (*rows, MARK)}
    found = BatchSummaries(DGX2, random_modules.Uneven, rows).of(at[MARK])
    for n, summary in zip(rows, found, strict=True):
        expected = summarize(at[n], DGX2, random_modules.Uneven)
        assert summary.makespan_picoseconds == expected.makespan_picoseconds
        assert summary.peak_memory_bytes == expected.peak_memory_bytes
        assert summary.busy_seconds == expected.busy_seconds


def figures(outcomes: list[Outcome]) -> dict[object, object]:
    return {o.configuration: (o.figures, o.dropped) for o in outcomes}


@settings(max_examples=4, **QUIET)
@given(random_models.models(4))
def test_random_models(program: random_models.Program) -> None:
    """A search over batch sizes says what a search of each configuration's own program says."""
    model = parse(program.text)
    configurations = grid(2, [12, 60], (3,), ["1f1b"])
    together = Search(lambda _: model.clone(), DGX2, "analytic", 1 << 50)
    found = figures(list(together.outcomes(configurations)))
    assert found == figures([together.evaluate_whole(c) for c in configurations])
    assert found == figures(list(together.one_by_one(configurations)))
    apart = Search(lambda _: model.clone(), DGX2, "analytic", 1 << 50)
    own = [c for c in configurations if c.batch == 12]
    assert {c: found[c] for c in own} == figures([apart.evaluate_whole(c) for c in own])


def test_a_model_bound_to_each_batch() -> None:
    """A training step imported at each batch size has the figures that the search finds from one."""
    search = Search(lambda n: import_model(mlp_onnx.build([16] * 5, batch=n)), DGX2, "analytic", 1 << 50)
    configurations = grid(4, [24, 32], (4,), ["1f1b", "gpipe"])
    found = figures(list(search.outcomes(configurations)))
    apart = Search(lambda n: import_model(mlp_onnx.build([16] * 5, batch=n)), DGX2, "analytic", 1 << 50)
    assert found == figures([apart.evaluate_whole(c) for c in configurations])
    assert all(f is not None for f, _ in found.values())  # type: ignore[misc]
    assert found == figures(list(search.one_by_one(configurations)))
    assert any(program.ranks < program.tp for program, _ in search._staged.values())  # pyright: ignore[reportPrivateUsage]


def weights_made_in_the_loop(layers: int, head: int) -> ModuleOp:
    """Layers of 16 x 16 whose weights are negated where they are used, as mixed precision casts them, and a head without: at few
    rows a layer outweighs a head of four times its width, at many it does not."""
    rows, square = "tensor<24x16xf32>", "tensor<16x16xf32>"
    values = [f'%w{i}: {square} {{dist.name = "w{i}", dist.role = "parameter"}}' for i in range(layers)]
    ops = [
        f"""%n{i} = "onnx.Neg"(%w{i}) : ({square}) -> {square}
        %y{i} = "onnx.MatMul"(%x{i}, %n{i}) : ({rows}, {square}) -> {rows}
        %x{i + 1} = "onnx.Relu"(%y{i}) : ({rows}) -> {rows}"""
        for i in range(layers)
    ]
    return parse(f"""
    func.func @main(%x0: {rows} {{dist.name = "x", dist.role = "input"}}, {", ".join(values)},
                    %h: tensor<16x{head}xf32> {{dist.name = "h", dist.role = "parameter"}}) -> (tensor<24x{head}xf32>) {{
      {chr(10).join(ops)}
      %y = "onnx.MatMul"(%x{layers}, %h) : ({rows}, tensor<16x{head}xf32>) -> tensor<24x{head}xf32>
      func.return %y : tensor<24x{head}xf32>
    }}""")


def test_stages_are_cut_alike_at_every_batch() -> None:
    """What balances the stages at one batch does not at another: the program of each has the cuts that all were simulated with,
    on one tensor rank and on two."""
    model = weights_made_in_the_loop(5, 64)
    configurations = [c for n in (2, 3, 4, 6) for c in grid(n, [6, 24, 384], (2, 3), ["1f1b"])]
    search = Search(lambda _: model.clone(), DGX2, "analytic", 1 << 50)
    found = figures(list(search.outcomes(configurations)))
    assert found == figures([search.evaluate_whole(c) for c in configurations])
    assert found == figures(list(search.one_by_one(configurations)))


def test_replicas_are_not_alike_where_pairs_of_devices_are_not() -> None:
    """The recovered DGX-2 has a bandwidth for every pair of neighbours, so groups of three differ."""
    search = Search(lambda n: import_model(mlp_onnx.build([18] * 5, batch=n)), DGX2, "distir", 1 << 50)
    configurations = [c for c in grid(12, [1_200_000, 2_400_000], (2,), ["1f1b"]) if c.tp in (3, 6)]
    found = figures(list(search.outcomes(configurations)))
    assert found == figures([search.evaluate_whole(c) for c in configurations])


def test_plans_whose_parameters_exceed_the_memory_are_not_built() -> None:
    """Five layers hold four weights of 16 x 16 floats: 4,096 bytes, so T * P = 2 has a device with at least 2,048 of them."""

    def search(exhaustive: bool) -> list[Outcome]:
        model = import_model(mlp_onnx.build([16] * 5, batch=24))
        made = Search(lambda _: model.clone(), DGX2, "analytic", 2000, exhaustive=exhaustive)
        return list(made.outcomes(grid(4, [24], (2,), ["1f1b"])))

    skipped = {o.configuration for o in search(False) if o.dropped is not None and o.figures is None}
    assert skipped == {c for c in grid(4, [24], (2,), ["1f1b"]) if c.tp * c.pp <= 2}
    built = {o.configuration: o for o in search(True)}
    assert all(built[c].figures is not None and built[c].dropped is not None for c in skipped)


def test_rebatch_scales_dims_and_sizes() -> None:
    module = parse("""
    func.func @main(%x: tensor<6x4xf32> {dist.name = "x", dist.role = "input"}) -> (tensor<12x2xf32>) {
      %shape = onnx.Constant dense<[12, 2]> : tensor<2xi64>
      %0 = "onnx.Reshape"(%x, %shape) : (tensor<6x4xf32>, tensor<2xi64>) -> tensor<12x2xf32>
      func.return %0 : tensor<12x2xf32>
    }""")
    prepare(Context(), module)
    text = str(rebatch(module, parse_batch("", entry_function(module)), 10))
    assert "dense<[20, 2]>" in text
    assert "(tensor<10x4xf32>, tensor<2xi64>) -> tensor<20x2xf32>" in text


def test_literals_of_any_batch() -> None:
    """One number for all rows is a literal of any batch; rows that are alike, written out, are not."""
    text = """
    func.func @main(%x: tensor<2x4xf32> {dist.name = "x", dist.role = "input"}) -> (tensor<2x8xf32>) {
      %c = onnx.Constant dense<LITERAL> : tensor<2x4xf32>
      %0 = "onnx.Concat"(%x, %c) <{axis = 1 : si64}> : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x8xf32>
      func.return %0 : tensor<2x8xf32>
    }"""
    one = parse(text.replace("LITERAL", "2.0"))
    prepare(Context(), one)
    constant = next(iter(entry_function(rebatch(one, {0: 0}, MARK)).body.block.ops))
    at_three = attribute_at(constant.properties["value"], 3)
    assert isinstance(at_three, TensorAttr)
    assert at_three.to_numpy().tolist() == [[2.0] * 4] * 3
    rows = parse(text.replace("LITERAL", "[[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]]"))
    prepare(Context(), rows)
    with pytest.raises(DistirError, match="a literal of shape"):
        rebatch(rows, {0: 0}, MARK)


def test_a_model_of_one_batch_size_is_refused() -> None:
    """A running sum over the batch needs all of it."""
    module = parse("""
    func.func @main(%x: tensor<6xf32> {dist.name = "x", dist.role = "input"}) -> (tensor<6xf32>) {
      %axis = onnx.Constant dense<0> : tensor<i64>
      %0 = "onnx.CumSum"(%x, %axis) : (tensor<6xf32>, tensor<i64>) -> tensor<6xf32>
      func.return %0 : tensor<6xf32>
    }""")
    prepare(Context(), module)
    with pytest.raises(DistirError, match="needs the whole of %x"):
        rebatch(module, {0: 0}, 10)
