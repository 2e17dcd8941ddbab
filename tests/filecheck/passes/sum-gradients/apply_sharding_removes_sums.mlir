// RUN: distir-opt %s -p 'shardcombine-annotate,sum-gradients,apply-sharding' | filecheck %s

// On devices a sum of one addend is the addend.

// CHECK:     "onnx.Sub"(%w, %dw)
// CHECK-NOT: dist.accumulate

dist.mesh @mesh = <["dp" = 1]>
func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}) -> (tensor<6x6xf32> {dist.role = "parameter"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %yt = "onnx.Transpose"(%y) <{perm = [1, 0]}> : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %dw = "onnx.MatMul"(%yt, %x) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %new = "onnx.Sub"(%w, %dw) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %new : tensor<6x6xf32>
}
