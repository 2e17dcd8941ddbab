"""A table that every microbatch takes as parts, on two stages: it is sent once, and gathered where it is needed."""

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, TensorType
from xdsl.ir import Operation

from distir.dialects.dist import SendOp
from distir.dialects.errors import DistirError
from distir.dialects.sharding import Sharded, ShardingAttr
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.ilp_shard import IlpShardPass
from distir.passes.microbatch import MicrobatchPass
from distir.passes.pipeline_schedule import PipelineSchedulePass
from distir.passes.pipeline_stages import PipelineStagesPass
from distir.passes.shardcombine_annotate import ShardcombineAnnotatePass
from distir.passes.structure import argument_attributes, functions
from tests.unit.sharding_problems import parsed

TEXT = """
func.func @main(%x: tensor<12x8xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<8x6xf32> {dist.name = "w", dist.role = "parameter"},
                %m: tensor<8x8xf32> {dist.name = "m", dist.role = "parameter"}, %n: tensor<8x6xf32> {dist.name = "n", dist.role = "parameter"})
    -> (tensor<12x6xf32> {dist.name = "y", dist.role = "output"}, tensor<12x6xf32> {dist.name = "z", dist.role = "output"}) {
  %t = "onnx.Relu"(%w) : (tensor<8x6xf32>) -> tensor<8x6xf32>
  %y = "onnx.MatMul"(%x, %t) : (tensor<12x8xf32>, tensor<8x6xf32>) -> tensor<12x6xf32>
  %h = "onnx.MatMul"(%x, %m) : (tensor<12x8xf32>, tensor<8x8xf32>) -> tensor<12x8xf32>
  %a = "onnx.MatMul"(%h, %m) : (tensor<12x8xf32>, tensor<8x8xf32>) -> tensor<12x8xf32>
  %z = "onnx.MatMul"(%a, %t) : (tensor<12x8xf32>, tensor<8x6xf32>) -> tensor<12x6xf32>
  func.return %y, %z : tensor<12x6xf32>, tensor<12x6xf32>
}
"""


BEHIND = """%p = "onnx.MatMul"(%y, %q) : (tensor<12x6xf32>, tensor<6x8xf32>) -> tensor<12x8xf32>
  %h = "onnx.MatMul"(%p, %m)"""
"""What takes the table again depends on what took it first: it cannot be on the same stage."""


def test_what_is_the_same_in_every_microbatch_is_sent_once():
    text = TEXT.replace('%h = "onnx.MatMul"(%x, %m)', BEHIND)
    text = text.replace("%n: tensor<8x6xf32>", "%q: tensor<6x8xf32>")
    module, context = parsed(text), Context()
    for each in (ShardcombineAnnotatePass(), PipelineStagesPass(2, microbatches=3), MicrobatchPass(3)):
        each.apply(context, module)
    body = functions(module)["microbatch"]
    attributes = [dict(known) for known in argument_attributes(body)]
    table = next(i for i, a in enumerate(body.body.block.args) if a.type == TensorType(a.type.element_type, [8, 6]))  # pyright: ignore
    attributes[table]["dist.sharding"] = ShardingAttr.of("mesh", 2, {"dp": Sharded(0, (8,))})
    body.arg_attrs = ArrayAttr([DictionaryAttr(each) for each in attributes])
    IlpShardPass(mesh="dp=2", restrict="dp=batch", time_limit=2).apply(context, module)
    ApplyShardingPass().apply(context, module)
    PipelineSchedulePass("1f1b").apply(context, module)
    sent = [op for op in module.walk() if isinstance(op, SendOp) and _rows(op) != 2]
    assert [_rows(op) for op in sent] == [4, 4], "a part to each device of the second stage"


def _rows(op: Operation) -> int:
    """Of microbatches of a replica: 2."""
    type_ = op.operands[0].type
    assert isinstance(type_, TensorType)
    return type_.get_shape()[0]


@pytest.mark.long
def test_sums_may_pass_through_any_number_of_microbatches():
    module, context = parsed(TEXT.replace("12x", "400x")), Context()
    for each in (ShardcombineAnnotatePass(), PipelineStagesPass(1, microbatches=400), MicrobatchPass(400)):
        each.apply(context, module)
    with pytest.raises(DistirError, match="no sharding fits; the smallest that one needs is"):
        IlpShardPass(mesh="dp=1,tp=2", memory_limit="9000").apply(context, module)
