// RUN: distir-opt %s --verify-diagnostics -p 'pipeline-stages,pipeline-schedule{schedule=zigzag}' | filecheck %s

// The error lists what there is.
// CHECK: unknown schedule zigzag: expected 1f1b, 1f1b-eager, dualpipev, 
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"}) -> (tensor<4x8xf32> {dist.name = "y", dist.role = "output"}) {
  %y = "onnx.Softmax"(%x) <{axis = 0 : si64}> {dist.rule = #dist.rule<[_, S1] -> {S1: gather(1)}, found = exact>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}
