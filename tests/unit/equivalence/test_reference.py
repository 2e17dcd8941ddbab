"""The reference executor: names, parts, precision, ranks that meet, and the paper's programs."""

import weakref
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.interpreter import Interpreter, InterpreterFunctions, PythonValues, impl, register_impls

from distir.dialects.dist import ScaleOp
from distir.dialects.errors import DistirError
from distir.frontends import weights
from distir.interpreters.reference import run, run_ranks
from distir.interpreters.weights import attach
from distir.passes.project_to_rank import project

PAPER = Path(__file__).parents[2] / "filecheck" / "paper"


@pytest.fixture
def parse(tmp_path: Path):
    def parse_text(text: str) -> ModuleOp:
        (tmp_path / "program.mlir").write_text(text)
        return weights.load(tmp_path / "program.mlir")

    return parse_text


HALVE = """
func.func @main(%x: tensor<2x2xf32>, %1: tensor<f32>) -> (tensor<2x2xf32>, tensor<2x2xf32> {dist.name = "z"}) {
  %y = dist.scale %x by 1/2 : tensor<2x2xf32>
  func.return %y, %x : tensor<2x2xf32>, tensor<2x2xf32>
}"""


def test_names_fall_back_to_the_text_and_the_position(parse) -> None:
    x = np.arange(4.0).reshape(2, 2)
    outputs = run(parse(HALVE), {"x": x, "arg1": np.float32(0)})
    assert outputs.keys() == {"result0", "z"}
    np.testing.assert_array_equal(outputs["result0"], x / 2)
    assert outputs["result0"].dtype == np.float32


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, r"input x is missing: expected an array of shape \[2, 2\] and type f32, given: none"),
        ({"x": np.zeros(3)}, r"input x: expected shape \[2, 2\], got \[3\]"),
    ],
)
def test_wrong_inputs(parse, inputs, message: str) -> None:
    with pytest.raises(DistirError, match=message):
        run(parse(HALVE), inputs)


def test_weights_stand_in_for_missing_inputs_and_inputs_override_them(parse) -> None:
    module = parse(HALVE)
    attach(module, {"x": np.ones((2, 2), np.float32), "arg1": np.float32(0)})
    assert run(module, {})["z"][0, 0] == 1
    assert run(module, {"x": np.full((2, 2), 5.0)})["z"][0, 0] == 5


def test_everything_floating_can_be_computed_in_double_precision(parse) -> None:
    """A third of 1 + 2**-30 is not a third of 1: single precision cannot tell."""
    module = parse("""
func.func @main(%x: tensor<1xf16>) -> tensor<1xf16> {
  %y = dist.scale %x by 1/3 : tensor<1xf16>
  func.return %y : tensor<1xf16>
}""")
    x = np.array([1 + 2.0**-30])
    assert run(module, {"x": x}, dtype=np.float64)["result0"] == x / 3
    assert run(module, {"x": x})["result0"] == np.float16(1) / np.float16(3)


PARTS = """
#left = #dist.part<[0:1 + 2:3] of [4]>
#right = #dist.part<[1:2 + 3:4] of [4]>
#sum = #dist.part<[0:2] of [2], partial sum>
#whole = #dist.part<[0:2] of [2]>
!t0 = tensor<2xf32, #dist.on<0>>
!t1 = tensor<2xf32, #dist.on<1>>
builtin.module attributes {dist.devices = 2 : i64} {
  func.func @main(%a: !t0 {dist.name = "x", dist.part = #left}, %b: !t1 {dist.name = "x", dist.part = #right},
                  %c: !t0 {dist.name = "p", dist.part = #sum}, %d: !t1 {dist.name = "p", dist.part = #sum},
                  %e: !t0 {dist.name = "r", dist.part = #whole}, %f: !t1 {dist.name = "q", dist.part = #whole})
      -> (!t0 {dist.name = "x", dist.part = #left}, !t1 {dist.name = "x", dist.part = #right},
          !t0 {dist.name = "sum", dist.part = #sum}, !t1 {dist.name = "sum", dist.part = #sum},
          !t0 {dist.name = "r", dist.part = #whole}, !t1 {dist.name = "r", dist.part = #whole},
          !t0 {dist.name = "c"}, !t1 {dist.name = "d"}) {
    func.return %a, %b, %a, %b, %e, %f, %c, %d : !t0, !t1, !t0, !t1, !t0, !t1, !t0, !t1
  }
}"""


def test_parts_of_global_arrays(parse) -> None:
    module = parse(PARTS)
    x, p, r = np.arange(4.0), np.array([5.0, 7.0]), np.ones(2)
    for outputs in (
        run(module, {"x": x, "p": p, "r": r, "q": r}),
        run_ranks([project(module, rank) for rank in (0, 1)], {"x": x, "p": p, "r": r, "q": r}),
    ):
        np.testing.assert_array_equal(outputs["x"], x)
        np.testing.assert_array_equal(outputs["sum"], [0 + 1, 2 + 3])  # the pieces 0, 2 and 1, 3 as addends
        np.testing.assert_array_equal(outputs["r"], r)
        np.testing.assert_array_equal(outputs["c"], p)  # the first addend holds the value
        np.testing.assert_array_equal(outputs["d"], [0, 0])


def test_replicas_must_agree(parse) -> None:
    x, p, r = np.arange(4.0), np.zeros(2), np.ones(2)
    with pytest.raises(DistirError, match=r"output r: the replicas of devices 0 and 1 disagree by up to 0.25"):
        run(parse(PARTS), {"x": x, "p": p, "r": r, "q": r * [1, 1.25]})
    run(parse(PARTS), {"x": x, "p": p, "r": r, "q": r * (1 + 5e-7)})


def test_results_must_cover_the_array(parse) -> None:
    module = parse("""
func.func @main(%x: tensor<2xf32>) -> (tensor<2xf32> {dist.name = "y", dist.part = #dist.part<[1:3] of [4]>}) {
  func.return %x : tensor<2xf32>
}""")
    with pytest.raises(DistirError, match="output y: 2 of its 4 elements are in no result's part"):
        run(module, {"x": np.zeros(2)})


RANK = """
builtin.module attributes {{dist.devices = 2 : i64, rank.rank = {rank} : i64}} {{
  func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{
    {ops}
    func.return %y : tensor<2xf32>
  }}
}}"""


def rank_programs(parse, first: str, second: str) -> list[ModuleOp]:
    return [parse(RANK.format(rank=0, ops=first)), parse(RANK.format(rank=1, ops=second))]


def test_one_rank_alone_is_refused(parse) -> None:
    (first, _) = rank_programs(parse, "%y = rank.recv from 1 : tensor<2xf32>", "%y = rank.recv from 0 : tensor<2xf32>")
    with pytest.raises(DistirError, match="this is rank 0's program of 2: run them all together, with run_ranks"):
        run(first, {"x": np.zeros(2)})
    with pytest.raises(DistirError, match="expected the programs of 2 ranks, got 1"):
        run_ranks([first], {"x": np.zeros(2)})


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (
            "%y = rank.recv from 1 : tensor<2xf32>",
            "%y = rank.recv from 0 : tensor<2xf32>",
            r"rank 0 waits in rank.recv over ranks \[1, 0\], but rank 1 waits in rank.recv over ranks \[0, 1\]",
        ),
        (
            "%y = rank.allreduce sum %x group [0, 1] : tensor<2xf32>",
            "%y = dist.scale %x by 1/2 : tensor<2xf32>",
            r"rank 0 waits in rank.allreduce over ranks \[0, 1\], but rank 1 has finished",
        ),
        (
            "%y = rank.allreduce sum %x group [0, 1] : tensor<2xf32>",
            "%y = rank.allreduce max %x group [0, 1] : tensor<2xf32>",
            r"deadlock: rank 0 waits in rank.allreduce",
        ),
    ],
)
def test_a_deadlock_is_reported(parse, first: str, second: str, message: str) -> None:
    with pytest.raises(DistirError, match=message):
        run_ranks(rank_programs(parse, first, second), {"x": np.zeros(2)})


def test_values_are_freed_at_their_last_use(parse) -> None:
    alive: list[int] = []
    references: list[weakref.ref[np.ndarray]] = []

    @register_impls
    class Counting(InterpreterFunctions):
        @impl(ScaleOp)
        def scale(self, interpreter: Interpreter, op: ScaleOp, args: PythonValues) -> PythonValues:
            result = args[0] / 2
            references.append(weakref.ref(result))
            alive.append(sum(reference() is not None for reference in references))
            return (result,)

    lines = [f"%{i + 1} = dist.scale %{i} by 1/2 : tensor<2xf32>" for i in range(6)]
    text = "\n".join(lines)
    module = parse(
        f"func.func @main(%0: tensor<2xf32>) -> tensor<2xf32> {{\n{text}\nfunc.return %6 : tensor<2xf32>\n}}"
    )
    run(module, {"arg0": np.ones(2)}, extra=(Counting(),))
    assert alive == [1, 2, 2, 2, 2, 2]  # a result and the operand that it is made from


@pytest.mark.parametrize("name", ["figure2", "figure2_swapped", "figure8", "figure9", "data_parallel"])
def test_the_papers_programs_compute_the_sequential_step(name: str) -> None:
    generator = np.random.default_rng(0)
    inputs = {n: generator.standard_normal((8, 8)) for n in ("w1", "w2")}
    inputs |= {n: generator.standard_normal((4, 8)) for n in ("x", "y")}
    expected = run(weights.load(PAPER / "figure_sequential.mlir"), inputs, dtype=np.float64)
    assert expected.keys() == {"w1", "w2"}
    module = weights.load(PAPER / f"{name}.mlir")
    devices = 1 if name == "figure8" else 2
    ranks = [project(module, rank) for rank in range(devices)]
    got, together = run(module, inputs, dtype=np.float64), run_ranks(ranks, inputs, dtype=np.float64)
    for parameter, value in expected.items():
        assert np.abs(value - inputs[parameter]).max() > 1e-3
        np.testing.assert_allclose(got[parameter], value, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(together[parameter], got[parameter])
