// RUN: distir-opt %s --verify-diagnostics -p 'shardcombine-annotate,pipeline-stages{stages=2 virtual=2},microbatch{count=2},pipeline-schedule' | filecheck %s --check-prefix=PLAIN
// RUN: distir-opt %s --verify-diagnostics -p 'shardcombine-annotate,pipeline-stages{stages=3},microbatch{count=2},pipeline-schedule{schedule=zbv}' | filecheck %s --check-prefix=ODD

// A schedule has so many stages on each rank.
// PLAIN: the schedule 1f1b has 1 stage on each rank, not 2
// ODD: the schedule zbv has 2 stages on each rank: they are 3 in all
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"}) -> (tensor<4x8xf32> {dist.name = "y", dist.role = "output"}) {
  %a = "onnx.Relu"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %b = "onnx.Relu"(%a) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %c = "onnx.Relu"(%b) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %y = "onnx.Relu"(%c) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}
