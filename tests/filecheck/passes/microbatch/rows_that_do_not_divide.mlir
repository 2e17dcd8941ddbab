// RUN: distir-opt %s --verify-diagnostics -p 'pipeline-stages,microbatch{count=3}' | filecheck %s

// All microbatches have equally many rows.
// CHECK: the batch of 'x' (dim 0, 4 rows) is not divisible by 3 (data parallel replicas x microbatches)
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"}) -> (tensor<4x8xf32> {dist.name = "y", dist.role = "output"}) {
  %y = "onnx.Softmax"(%x) <{axis = 0 : si64}> {dist.rule = #dist.rule<[_, S1] -> {S1: gather(1)}, found = exact>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}
