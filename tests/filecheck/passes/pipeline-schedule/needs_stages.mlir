// RUN: distir-opt %s --verify-diagnostics -p 'pipeline-schedule' | filecheck %s

// Only calls of stages can be scheduled.
// CHECK: onnx.Softmax in @main belongs to no stage: run pipeline-stages first
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"}) -> (tensor<4x8xf32> {dist.name = "y", dist.role = "output"}) {
  %y = "onnx.Softmax"(%x) <{axis = 0 : si64}> {dist.rule = #dist.rule<[_, S1] -> {S1: gather(1)}, found = exact>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}
