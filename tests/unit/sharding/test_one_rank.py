"""One tensor rank stands for all only where all do the same, and says what all of them take."""

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.ir import Block, SSAValue
from xdsl.parser import Parser

from distir.dialects.dist import Dist
from distir.dialects.errors import DistirError
from distir.dialects.onnx import Onnx
from distir.dialects.reductions import Reduction
from distir.dialects.sharding import REPLICATED, Partial, Sharded
from distir.frontends.onnx import import_model
from distir.interpreters.cost_models import make_cost_model
from distir.interpreters.costs import Costs
from distir.interpreters.entry import entry_function
from distir.interpreters.machines import load_machine
from distir.passes.distribution.batch.batch_axis import parse_batch
from distir.passes.distribution.mesh import Mesh
from distir.passes.distribution.pipeline.layout import Layout
from distir.passes.distribution.pipeline.one_rank import FirstRank, RanksDiffer, ShardsOfFirst, lie_alike
from distir.passes.distribution.tensor.choices import TensorChoices
from distir.passes.distribution.tensor.tensor_axis import Variants
from distir.passes.dtp_parallelize import prepare
from distir.passes.search.best_first import Program
from distir.passes.search.configurations import grid
from distir.passes.search.distribute import lower_tensors
from distir.passes.search.search import Search
from examples import gpt2_onnx, mlp_onnx

DGX2 = load_machine("dgx-2")
A, B = "tensor<2x4xf32, #dist.on<0>>", "tensor<2x4xf32, #dist.on<1>>"


def parse(text: str) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, Func, Dist, Onnx):
        context.load_dialect(dialect)
    return Parser(context, text).parse_module()


def two_ranks(body: str) -> ModuleOp:
    """A function of two ranks that takes and returns one value."""
    return parse(f"func.func @main(%a0: {A}, %a1: {B}) -> ({A}, {B}) {{\n{body}\n}}")


def a_value(type_: str) -> SSAValue:
    main = entry_function(parse(f"func.func @main(%a: {type_}) {{ func.return }}"))
    return Block(arg_types=main.function_type.inputs.data).args[0]


def first_rank(ranks: int = 2) -> FirstRank:
    return FirstRank(ranks, Costs(make_cost_model("analytic", DGX2)))


ALIKE = f"""
  %b0 = "onnx.Relu"(%a0) : ({A}) -> {A}
  %b1 = "onnx.Relu"(%a1) : ({B}) -> {B}
  %c0, %c1 = dist.allreduce sum %b0, %b1 : ({A}, {B}) -> ({A}, {B})
  func.return %c0, %c1 : {A}, {B}"""


def test_what_is_left_of_a_function() -> None:
    module = two_ranks(ALIKE)
    main, rank = entry_function(module), first_rank()
    assert rank.stands_for_all([main])
    rank.keep(main)
    assert [op.name for op in main.body.block.ops] == ["onnx.Relu", "dist.allreduce", "func.return"]
    assert [len(op.operands) for op in main.body.block.ops] == [1, 1, 1]
    assert "taking_part = array<i64: 0, 1>" in str(main)
    assert str(main.function_type) == f"({A}) -> {A}"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(ALIKE.replace('%b1 = "onnx.Relu"', '%b1 = "onnx.Exp"'), id="another operation"),
        pytest.param(ALIKE.replace("sum %b0, %b1", "sum %b0, %a1"), id="another operand"),
        pytest.param(ALIKE.replace("return %c0, %c1", "return %c0, %b1"), id="another result"),
        pytest.param(
            ALIKE.replace("%c0, %c1 = dist", f'%d1 = "onnx.Relu"(%b1) : ({B}) -> {B}\n  %c0, %c1 = dist'),
            id="more to do",
        ),
        pytest.param(
            f"""
  %b1 = dist.send %a0 to 1 : {A} -> {B}
  func.return %a0, %b1 : {A}, {B}""",
            id="a message between ranks",
        ),
    ],
)
def test_ranks_that_differ(body: str) -> None:
    assert not first_rank().stands_for_all([entry_function(two_ranks(body))])


def test_slices_of_other_rows_cost_the_same() -> None:
    half0, half1 = A.replace("2x4", "1x4"), B.replace("2x4", "1x4")
    module = parse(f"""func.func @main(%a0: {A}, %a1: {B}) -> ({half0}, {half1}) {{
      %b0 = dist.slice %a0 [0:1, 0:4] : {A} -> {half0}
      %b1 = dist.slice %a1 [1:2, 0:4] : {B} -> {half1}
      func.return %b0, %b1 : {half0}, {half1}
    }}""")
    assert first_rank().stands_for_all([entry_function(module)])


def test_groups_that_cross_nodes_unevenly_do_not_lie_alike() -> None:
    """A DGX H100 has 8 devices in a node: 3 do not fill it, 16 are two nodes."""
    machine = load_machine("dgx-h100")
    assert [ranks for ranks in (2, 3, 4, 6, 8, 16) if lie_alike(machine, ranks)] == [2, 4, 8, 16]


def test_conversions() -> None:
    """Of a whole value that becomes addends, the first rank has its own, and is spared the zeros that others make."""
    value = a_value("tensor<4x2xf32, #dist.on<5>>")
    for source, target, names, spared in (
        (REPLICATED, Partial(Reduction.SUM), ["dist.zeros"], 1),
        (Partial(Reduction.SUM), REPLICATED, ["dist.allreduce"], 0),
        (REPLICATED, Sharded(0, (4,)), ["dist.slice"], 0),
        (REPLICATED, REPLICATED, [], 0),
    ):
        block = Block()
        _, found = first_rank().converted(value, source, target, block.add_op)
        assert [op.name for op in block.ops] == names
        assert len(found) == spared
        assert all(str(op.results[0].type).endswith("#dist.on<5>>") for op in block.ops)


def test_conversions_in_which_ranks_differ() -> None:
    """Of 5 rows, the first rank has 3."""
    value = a_value("tensor<5x2xf32, #dist.on<0>>")
    with pytest.raises(DistirError, match="tensor ranks differ"):
        first_rank().converted(value, REPLICATED, Sharded(0, (5,)), Block().add_op)


class Counted(Search):
    """Counts the programs that one rank stands for."""

    narrow = 0

    def _simulated(self, program: Program, summaries):  # type: ignore[no-untyped-def, override]
        self.narrow += program.layout.tp > program.staged.ranks
        return super()._simulated(program, summaries)


@pytest.mark.parametrize("name", ["mlp", "gpt2"])
def test_the_figures_are_those_of_all_ranks(name: str) -> None:
    """Of a training step and of a transformer: time, memory, and shares, bit for bit those of the whole program."""
    if name == "mlp":
        model, batch = import_model(mlp_onnx.build([16] * 5, batch=24)), 24
    else:
        built = gpt2_onnx.build(n_layer=4, d_model=16, n_head=4, vocab=24, n_ctx=8)
        model, batch = import_model(built, {"input1": (8, 1, 4)}), 8
    search = Counted(lambda _: model.clone(), DGX2, "analytic", 1 << 50)
    configurations = [c for c in grid(8, [batch], (2,), ["1f1b"]) if c.tp > 1]
    found = {o.configuration: (o.figures, o.dropped) for o in search.outcomes(configurations)}
    assert search.narrow > 0
    for c in configurations:
        whole, alone = search.evaluate_whole(c), search.evaluate(c)
        assert found[c] == (whole.figures, whole.dropped) == (alone.figures, alone.dropped)


@pytest.mark.parametrize("tp", [2, 4])
def test_written_at_once_or_cut_down(tp: int) -> None:
    """Functions that are written for the first rank are those that are left of all ranks'."""
    built = gpt2_onnx.build(n_layer=2, d_model=16, n_head=4, vocab=24, n_ctx=8)
    model = import_model(built, {"input1": (8, 1, 4)})
    prepare(Context(), model)
    entry = entry_function(model)
    variants = Variants(model, parse_batch("", entry), 2, 1, DGX2)
    choices, layout = TensorChoices(), Layout(2, tp, 1, 1)
    variants.choose(tp, choices)
    texts: list[str] = []
    for at_once in (True, False):
        program, plan = variants.copy(layout, choices)
        first = first_rank(tp)
        if at_once:
            lower_tensors(program, tp, plan, lambda mesh: ShardsOfFirst(mesh, first))
        else:
            lower_tensors(program, tp, plan)
            assert first.stands_for_all(program.functions[:-1])
            for function in program.functions[:-1]:
                first.keep(function)
        texts.append(str(program.module))
    assert texts[0] == texts[1]
    assert "dist.allreduce" in texts[0]


def test_operations_that_depend_on_their_position_are_written_for_all() -> None:
    """A lookup in a table of which every rank has some rows."""
    shards = ShardsOfFirst(Mesh((("tp", 2),)), first_rank())
    with pytest.raises(RanksDiffer, match="another one on each tensor rank"):
        shards.check(next(iter(two_ranks(ALIKE).walk())), lambda: False)
