// RUN: distir-opt %s --verify-diagnostics -p 'microbatch{count=0}' | filecheck %s --check-prefix=NONE
// RUN: distir-opt %s --verify-diagnostics -p 'microbatch{count=2}' | filecheck %s --check-prefix=ORDER
// RUN: distir-opt %s --verify-diagnostics -p 'pipeline-stages,microbatch{count=3}' | filecheck %s --check-prefix=ROWS
// RUN: distir-opt %s --verify-diagnostics -p 'pipeline-stages,microbatch{count=2}' | filecheck %s --check-prefix=WHOLE

// NONE: count: expected at least 1, got 0
// ORDER: onnx.Softmax in @main belongs to no stage: run pipeline-stages first
// ROWS: the batch of 'x' (dim 0, 4 rows) is not divisible by 3 (data parallel replicas x microbatches)
// WHOLE: onnx.Softmax needs the whole of %x [4, 8], which the batch axis of 2 parts holds as parts of dim 0: its rule cuts S1
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"}) -> (tensor<4x8xf32> {dist.name = "y", dist.role = "output"}) {
  %y = "onnx.Softmax"(%x) <{axis = 0 : si64}> {dist.rule = #dist.rule<[_, S1] -> {S1: gather(1)}, found = exact>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}
