// RUN: distir-opt %s -p 'shardcombine-annotate,sum-gradients' | filecheck %s

// Of a gradient that is made and used inside a function there is nothing to sum in the entry.

// CHECK:     func.call @step(%x, %w)
// CHECK-NOT: dist.accumulate

func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}) -> (tensor<6x6xf32> {dist.role = "parameter"}) {
  %new = func.call @step(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %new : tensor<6x6xf32>
}
func.func private @step(%x: tensor<4x6xf32>, %w: tensor<6x6xf32>) -> tensor<6x6xf32> {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %yt = "onnx.Transpose"(%y) <{perm = [1, 0]}> : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %dw = "onnx.MatMul"(%yt, %x) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %new = "onnx.Sub"(%w, %dw) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %new : tensor<6x6xf32>
}
