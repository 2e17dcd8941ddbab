// RUN: distir-opt %s -p 'shardcombine-annotate,gradient-type{type=bf16}' | filecheck %s

// What several uses of a weight make is cast before it is added, as stages of their own may make it.

// CHECK:      [[D0:%.*]] = "onnx.MatMul"({{%.*}}, %x)
// CHECK-NEXT: [[B0:%.*]] = dist.cast [[D0]]
// CHECK-NEXT: [[F0:%.*]] = dist.cast [[B0]]
// CHECK:      [[D1:%.*]] = "onnx.MatMul"({{%.*}}, %y)
// CHECK-NEXT: [[B1:%.*]] = dist.cast [[D1]]
// CHECK-NEXT: [[F1:%.*]] = dist.cast [[B1]]
// CHECK-NEXT: [[DW:%.*]] = "onnx.Add"([[F0]], [[F1]])
// CHECK-NEXT: "onnx.Sub"(%w, [[DW]])

func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}) -> (tensor<6x6xf32> {dist.role = "parameter"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %yt = "onnx.Transpose"(%y) <{perm = [1, 0]}> : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %d0 = "onnx.MatMul"(%yt, %x) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %d1 = "onnx.MatMul"(%yt, %y) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %dw = "onnx.Add"(%d0, %d1) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  %new = "onnx.Sub"(%w, %dw) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %new : tensor<6x6xf32>
}
