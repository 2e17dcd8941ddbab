// RUN: distir-opt %s -p 'shardcombine-annotate,sum-gradients' | filecheck %s

// A sum over the batch on which no update depends stays, and an output reads a gradient as it was made.

// CHECK:      [[DW:%.*]] = "onnx.MatMul"({{%.*}}, %x)
// CHECK-NEXT: [[S:%.*]] = dist.accumulate sum [[DW]]
// CHECK-NEXT: [[C:%.*]] = "onnx.MatMul"({{%.*}}, %y)
// CHECK-NEXT: [[NEW:%.*]] = "onnx.Sub"(%w, [[S]])
// CHECK-NEXT: func.return [[DW]], [[C]], [[NEW]]

func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}) -> (tensor<6x6xf32>, tensor<6x6xf32>, tensor<6x6xf32> {dist.role = "parameter"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %yt = "onnx.Transpose"(%y) <{perm = [1, 0]}> : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %dw = "onnx.MatMul"(%yt, %x) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %c = "onnx.MatMul"(%yt, %y) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %new = "onnx.Sub"(%w, %dw) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %dw, %c, %new : tensor<6x6xf32>, tensor<6x6xf32>, tensor<6x6xf32>
}
