// RUN: distir-opt %s --verify-diagnostics -p 'pipeline-stages,microbatch{count=2}' | filecheck %s

// An operation inside a stage may not need the rows of other microbatches: pipeline-stages, where it knows of microbatches, puts it elsewhere.
// CHECK: onnx.Softmax needs the whole of %x [4, 8], which the batch axis of 2 parts holds as parts of dim 0: its rule cuts S1
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"}) -> (tensor<4x8xf32> {dist.name = "y", dist.role = "output"}) {
  %y = "onnx.Softmax"(%x) <{axis = 0 : si64}> {dist.rule = #dist.rule<[_, S1] -> {S1: gather(1)}, found = exact>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}
