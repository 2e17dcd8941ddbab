// RUN: distir-opt %s -p 'shardcombine-annotate,gradient-type{type=bf16}' | filecheck %s

// A batch that cannot be cut is not summed over.

// CHECK:     func.func @main
// CHECK-NOT: dist.cast

func.func @main(%x: tensor<1x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}) -> (tensor<6x6xf32> {dist.role = "parameter"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<1x6xf32>, tensor<6x6xf32>) -> tensor<1x6xf32>
  %yt = "onnx.Transpose"(%y) <{perm = [1, 0]}> : (tensor<1x6xf32>) -> tensor<6x1xf32>
  %dw = "onnx.MatMul"(%yt, %x) : (tensor<6x1xf32>, tensor<1x6xf32>) -> tensor<6x6xf32>
  %new = "onnx.Sub"(%w, %dw) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %new : tensor<6x6xf32>
}
