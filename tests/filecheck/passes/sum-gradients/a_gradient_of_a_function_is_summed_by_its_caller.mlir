// RUN: distir-opt %s -p 'shardcombine-annotate,sum-gradients' | filecheck %s

// Functions stay as they are: what a call gives is summed where it is called.

// CHECK:      [[DW:%.*]] = func.call @gradient(%x, %w)
// CHECK-NEXT: [[S:%.*]] = dist.accumulate sum [[DW]]
// CHECK-NEXT: "onnx.Sub"(%w, [[S]])
// CHECK-NOT:  dist.accumulate

func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}) -> (tensor<6x6xf32> {dist.role = "parameter"}) {
  %dw = func.call @gradient(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  %new = "onnx.Sub"(%w, %dw) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %new : tensor<6x6xf32>
}
func.func private @gradient(%x: tensor<4x6xf32>, %w: tensor<6x6xf32>) -> tensor<6x6xf32> {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %yt = "onnx.Transpose"(%y) <{perm = [1, 0]}> : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %dw = "onnx.MatMul"(%yt, %x) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  func.return %dw : tensor<6x6xf32>
}
