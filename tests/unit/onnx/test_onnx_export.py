"""Programs as ONNX models: accepted by onnx's checker, the same program when imported again, and rank programs that
compute the same when any runtime gives the communication operators a meaning."""

import runpy
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType, f32, i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region

from distir.backends.onnx import RANK_DOMAIN, export_model, save_model
from distir.dialects.dist import AccumulateOp, ConcatOp, PackOp, ScaleOp, SliceOp, UnpackOp, ZerosOp
from distir.dialects.dist.positions import InsideOp, LocalIndexOp
from distir.dialects.errors import DistirError
from distir.dialects.reductions import Reduction
from distir.frontends.onnx import import_model
from distir.interpreters.entry import entry_function, results_of
from distir.interpreters.reference import run
from distir.interpreters.weights import weights_of
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.onnx_fold_shapes import OnnxFoldShapesPass
from distir.passes.outline_repeats import OutlineRepeatsPass
from distir.passes.project_to_rank import project

EXAMPLES = Path(__file__).parents[3] / "examples"
LIGHT_MODELS = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def gpt2() -> ModelProto:
    return runpy.run_path(str(EXAMPLES / "gpt2_onnx.py"))["build"](n_layer=2, d_model=32, n_head=4, vocab=64, n_ctx=32)


def mlp(batch: int | str) -> ModelProto:
    return runpy.run_path(str(EXAMPLES / "mlp_onnx.py"))["build"]([4, 8, 2], batch=batch)


CAPTURES = """
<ir_version: 10, opset_import: ["" : 21]>
main (float[2,3] x, int64 n, bool c) => (float[2,3] y, float[2,3] x) {
  s = Loop (n, , x) <body = step (int64 i, bool go, float[2,3] a) => (bool on, float[2,3] b) {
    on = Identity (go)
    b = If (c) <then_branch = yes () => (float[2,3] p) { p = Add (a, x) },
                else_branch = no () => (float[2,3] q) { q = Clip (a, , two) two = Constant <value = float {2.0}> () }>
  }>
  y = Neg (s)
}
""".replace(
    "q = Clip (a, , two) two = Constant <value = float {2.0}> ()",
    "two = Constant <value = float {2.0}> () q = Clip (a, , two)",
)


def models() -> dict[str, Any]:
    return {
        "a training step": mlp(6),
        "an open dimension": mlp("batch"),
        "GPT-2": gpt2(),
        "captured values": onnx.parser.parse_model(CAPTURES),
        "squeezenet": LIGHT_MODELS / "light_squeezenet.onnx",
    }


@pytest.mark.parametrize("name", models())
def test_import_of_the_export_is_the_same_program(name: str) -> None:
    module = import_model(models()[name])
    model = export_model(module)
    onnx.checker.check_model(model, full_check=True)
    again = import_model(model)
    assert again.is_structurally_equivalent(module)
    before, after = weights_of(module), weights_of(again)
    assert list(after) == list(before)
    assert all(np.array_equal(after[key], before[key]) for key in before)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_the_export_of_every_node_test_is_valid_and_the_same_program() -> None:
    from onnx.backend.test.loader import load_model_tests

    different: list[str] = []
    for case in load_model_tests(kind="node"):
        module = import_model(case.model)
        model = export_model(module)
        onnx.checker.check_model(model, full_check=True)
        if not import_model(model).is_structurally_equivalent(module):
            different.append(case.name)
    assert not different


def test_programs_without_values_keep_their_parameters() -> None:
    module = import_model(mlp(6)).clone()
    model = export_model(module)
    onnx.checker.check_model(model, full_check=True)
    assert not model.graph.initializer
    assert {p.key: p.value for p in model.metadata_props}["dist.role:w0"] == "parameter"
    assert import_model(model).is_structurally_equivalent(module)


def test_functions_become_onnx_functions_and_open_dims_keep_their_names() -> None:
    module = import_model(gpt2(), {"input1": (3, 1, 8)})
    ids = np.random.default_rng(0).integers(0, 64, (3, 1, 8))
    expected = run(module, {"input1": ids})
    OnnxFoldShapesPass().apply(Context(), module)
    OutlineRepeatsPass().apply(Context(), module)
    model = export_model(module)
    onnx.checker.check_model(model, full_check=True)
    assert [function.name for function in model.functions]
    (actual,) = ReferenceEvaluator(model).run(None, {"input1": ids})
    np.testing.assert_allclose(actual, expected["output1"], atol=1e-5)
    open_dim = export_model(import_model(mlp("batch"))).graph.input[0].type.tensor_type.shape.dim[0]
    assert open_dim.dim_param == "batch"


# Rank programs.


def communication(rank: int, mailbox: dict[Any, Any]) -> list[type[OpRun]]:
    """Collectives between threads, one per rank: everyone leaves an operand, waits for all, and takes them in order of ranks."""

    def exchanged(x: Any, group: Any) -> list[Any]:
        calls = mailbox.setdefault(("calls", rank), {})
        number = calls[tuple(group)] = calls.get(tuple(group), 0) + 1
        with mailbox["lock"]:
            mailbox[tuple(group), number, rank] = x
            mailbox["lock"].notify_all()
            keys = [(tuple(group), number, peer) for peer in group]
            assert mailbox["lock"].wait_for(lambda: all(key in mailbox for key in keys), timeout=60)
        return [mailbox[key] for key in keys]

    class allreduce(OpRun):
        op_domain = RANK_DOMAIN

        def _run(self, x: Any, group: Any = None, reduction: Any = None) -> tuple[Any]:  # type: ignore[override]
            assert reduction == "sum"
            return (sum(exchanged(x, group)),)

    class allgather(OpRun):
        op_domain = RANK_DOMAIN

        def _run(self, x: Any, group: Any = None, dim: Any = None) -> tuple[Any]:  # type: ignore[override]
            return (np.concatenate(exchanged(x, group), axis=dim),)

    return [allreduce, allgather]


def test_rank_programs_compute_the_whole_when_communication_is_given() -> None:
    module = import_model(gpt2(), {"input1": (4, 1, 8)})
    ids = np.random.default_rng(0).integers(0, 64, (4, 1, 8))
    expected = run(module, {"input1": ids})["output1"]
    DtpParallelizePass(dp=2, tp=2).apply(Context(), module)
    mailbox: dict[Any, Any] = {"lock": threading.Condition()}
    outputs: dict[int, Any] = {}

    def run_rank(rank: int) -> None:
        program = project(module, rank)
        model = export_model(program)
        onnx.checker.check_model(model)
        used = {node.op_type for f in model.functions for node in f.node if node.domain == RANK_DOMAIN}
        assert used == {"allreduce", "allgather"}
        part = ids[:2] if rank < 2 else ids[2:]
        assert [value.name for value in model.graph.input] == ["input1"]  # the rest are parts of weights
        inlined = onnx.inliner.inline_local_functions(model)  # the evaluator gives new operators to the graph only
        evaluator = ReferenceEvaluator(inlined, new_ops=communication(rank, mailbox))
        (outputs[rank],) = evaluator.run(None, {"input1": part})

    threads = [threading.Thread(target=run_rank, args=[rank]) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ports = results_of(entry_function(module))
    assert len(ports) == 4
    for port in ports:
        assert port.part is not None
        assert port.on is not None
        whole = expected[np.ix_(*[np.concatenate([np.arange(*r) for r in dim]) for dim in port.part.dims])]
        np.testing.assert_allclose(outputs[port.on.device], whole, atol=1e-5)


def local(ops: list[Operation], block: Block) -> ModuleOp:
    block.add_ops(ops)
    results = ops[-1].results
    block.add_op(ReturnOp(*results))
    types = [argument.type for argument in block.args], [result.type for result in results]
    return ModuleOp([FuncOp("main", types, Region(block))])


def test_local_operations_become_onnx_operators() -> None:
    block = Block(arg_types=[TensorType(f32, [4, 6])])
    (x,) = block.args
    part = SliceOp(x, [(1, 3), (0, 6)])
    pack = PackOp([part.output, x])
    unpack = UnpackOp(pack.output)
    mean = AccumulateOp([unpack.outputs[0]] * 3, Reduction.MEAN)
    most = AccumulateOp([mean.output, part.output], Reduction.MAX)
    scale = ScaleOp(most.output, 2, 3)
    zeros = ZerosOp(TensorType(f32, [2, 6]))
    concat = ConcatOp([scale.output, zeros.output, unpack.outputs[1]], 0)
    module = local([part, pack, unpack, mean, most, scale, zeros, concat], block)
    module.verify()
    model = export_model(module)
    onnx.checker.check_model(model, full_check=True)
    value = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    (actual,) = ReferenceEvaluator(model).run(None, {model.graph.input[0].name: value})
    np.testing.assert_allclose(actual, np.concatenate([value[1:3] * 2 / 3, 0 * value[:2], value]), rtol=1e-6)


def test_positions_of_a_shard_become_onnx_operators() -> None:
    """Rows 2 and 3 of 6, of which the indices name -6 = 0, 2, 5, -3 = 3: here 0, 0, 1 and 1; inside are 2 and 3."""
    block = Block(arg_types=[TensorType(i64, [4]), TensorType(f32, [4, 2])])
    indices, x = block.args
    local_index = LocalIndexOp(indices, 2, 4, 6)
    inside = InsideOp(x, indices, [0], 2, 4, 6)
    block.add_ops([local_index, inside])
    block.add_op(ReturnOp(local_index.output, inside.output))
    function = FuncOp("main", ([v.type for v in block.args], [local_index.output.type, x.type]), Region(block))
    module = ModuleOp([function])
    module.verify()
    model = export_model(module)
    onnx.checker.check_model(model, full_check=True)
    names = [i.name for i in model.graph.input]
    values = np.array([-6, 2, 5, -3]), np.arange(1, 9, dtype=np.float32).reshape(4, 2)
    shifted, kept = ReferenceEvaluator(model).run(None, dict(zip(names, values, strict=True)))
    np.testing.assert_array_equal(shifted, [0, 0, 1, 1])
    np.testing.assert_array_equal(kept, [[0, 0], [3, 4], [0, 0], [7, 8]])


def test_programs_of_several_devices_are_refused() -> None:
    module = import_model(gpt2(), {"input1": (4, 1, 8)})
    DtpParallelizePass(dp=2).apply(Context(), module)
    with pytest.raises(DistirError, match=r"export one rank's program \(project-to-rank\)"):
        export_model(module)


# Files.


def test_large_weights_lie_beside_the_file_and_are_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distir.backends.onnx.LARGEST_INLINE_BYTES", 100)
    weight = np.arange(600, dtype=np.float32).reshape(3, 200)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "b"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 200])],
        [numpy_helper.from_array(np.float32(1), "b"), numpy_helper.from_array(weight, "w")],
    )
    module = import_model(helper.make_model(graph))
    save_model(module, tmp_path / "m.onnx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    onnx.checker.check_model(tmp_path / "m.onnx", full_check=True)
    again = import_model(tmp_path / "m.onnx")
    assert again.is_structurally_equivalent(module)
    assert isinstance(weights_of(again)["w"], np.memmap)
    np.testing.assert_array_equal(weights_of(again)["w"], weight)
