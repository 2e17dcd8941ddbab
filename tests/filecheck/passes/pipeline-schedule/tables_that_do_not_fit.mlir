// RUN: distir-opt %s --verify-diagnostics -p 'shardcombine-annotate,pipeline-stages{stages=2},microbatch{count=2},pipeline-schedule{schedule="%S/Inputs/three.csv"}' | filecheck %s --check-prefix=STAGES
// RUN: distir-opt %s --verify-diagnostics -p 'shardcombine-annotate,pipeline-stages{stages=2},microbatch{count=2},pipeline-schedule{schedule="%S/Inputs/late.csv"}' | filecheck %s --check-prefix=LATE

// A table is of as many stages as the program has, and has every action.
// STAGES: three.csv has 3 ranks, 4 stages and 2 microbatches: the program has 3 ranks, 2 stages and 2 microbatches
// LATE: late.csv: 0F1 is missing on rank 0
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"}) -> (tensor<4x8xf32> {dist.name = "y", dist.role = "output"}) {
  %a = "onnx.Relu"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %b = "onnx.Relu"(%a) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %c = "onnx.Relu"(%b) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %y = "onnx.Relu"(%c) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}
