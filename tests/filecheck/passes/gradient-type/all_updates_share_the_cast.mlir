// RUN: distir-opt %s -p 'shardcombine-annotate,gradient-type{type=bf16}' | filecheck %s

// A gradient that a parameter and its state are updated with is cast once.

// CHECK:      [[DW:%.*]] = "onnx.MatMul"({{%.*}}, %x)
// CHECK-NEXT: [[B:%.*]] = dist.cast [[DW]]
// CHECK-NEXT: [[F:%.*]] = dist.cast [[B]]
// CHECK-NOT:  dist.cast
// CHECK:      [[S:%.*]] = "onnx.Mul"([[F]], [[F]])
// CHECK-NEXT: "onnx.Add"(%v, [[S]])
// CHECK-NEXT: "onnx.Sub"(%w, [[F]])

func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}, %v: tensor<6x6xf32> {dist.role = "state"}) -> (tensor<6x6xf32> {dist.role = "parameter"}, tensor<6x6xf32> {dist.role = "state"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %yt = "onnx.Transpose"(%y) <{perm = [1, 0]}> : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %dw = "onnx.MatMul"(%yt, %x) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %square = "onnx.Mul"(%dw, %dw) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  %v_new = "onnx.Add"(%v, %square) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  %w_new = "onnx.Sub"(%w, %dw) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %w_new, %v_new : tensor<6x6xf32>, tensor<6x6xf32>
}
