// RUN: distir-opt %s --verify-diagnostics -p 'pipeline-stages{stages=2}' | filecheck %s --check-prefix=STAGES
// RUN: distir-opt %s --verify-diagnostics -p 'pipeline-stages{stages=0}' | filecheck %s --check-prefix=NONE
// RUN: distir-opt %s --verify-diagnostics -p 'pipeline-stages{microbatches=0}' | filecheck %s --check-prefix=ZERO

// There is at least one stage and one microbatch, and an operation for each stage.
// STAGES: cannot cut 1 forward operations into 2 pipeline stages: use at most 1
// NONE: stages: expected at least 1, got 0
// ZERO: microbatches: expected at least 1, got 0
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"}) -> (tensor<4x8xf32> {dist.name = "y", dist.role = "output"}) {
  %y = "onnx.Softmax"(%x) <{axis = 0 : si64}> {dist.rule = #dist.rule<[_, S1] -> {S1: gather(1)}, found = exact>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}
