// RUN: distir-opt %s --verify-diagnostics -p 'pipeline-stages{batch="q:0"}' | filecheck %s --check-prefix=NAME
// RUN: distir-opt %s --verify-diagnostics -p 'pipeline-stages{batch="x:2"}' | filecheck %s --check-prefix=DIM

// The batch is a dim of an argument of the entry.
// NAME: batch: no argument 'q': expected x
// DIM: batch: expected x:DIM with a dim of 'x', got 'x:2'
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"}) -> (tensor<4x8xf32> {dist.name = "y", dist.role = "output"}) {
  %y = "onnx.Softmax"(%x) <{axis = 0 : si64}> {dist.rule = #dist.rule<[_, S1] -> {S1: gather(1)}, found = exact>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}
