// RUN: distir-opt %s -p 'shardcombine-annotate,pipeline-stages{stages=2}' | filecheck %s

// Stages alone do not cut the batch: an operation that needs all of it may be in one.
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"})
    -> (tensor<4x8xf32> {dist.name = "y", dist.role = "output"}) {
  %y = "onnx.Softmax"(%x) <{axis = 0 : si64}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %z = "onnx.Neg"(%y) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %z : tensor<4x8xf32>
}

// CHECK:      func.func @main
// CHECK:      func.func private @forward_0
// CHECK-NEXT: onnx.Softmax
