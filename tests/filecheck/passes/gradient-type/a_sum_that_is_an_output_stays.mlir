// RUN: distir-opt %s -p 'shardcombine-annotate,gradient-type{type=bf16}' | filecheck %s

// A sum over the batch on which no update depends is no gradient, and an output that reads a gradient reads it as it was made.

// CHECK:      [[DW:%.*]] = "onnx.MatMul"({{%.*}}, %x)
// CHECK-NEXT: [[B:%.*]] = dist.cast [[DW]]
// CHECK-NEXT: [[F:%.*]] = dist.cast [[B]]
// CHECK:      [[C:%.*]] = "onnx.MatMul"({{%.*}}, %y) {{.*}}found = exact>} :
// CHECK-NEXT: [[NEW:%.*]] = "onnx.Sub"(%w, [[F]])
// CHECK-NEXT: func.return [[DW]], [[C]], [[NEW]]

func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}) -> (tensor<6x6xf32>, tensor<6x6xf32>, tensor<6x6xf32> {dist.role = "parameter"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %yt = "onnx.Transpose"(%y) <{perm = [1, 0]}> : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %dw = "onnx.MatMul"(%yt, %x) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %c = "onnx.MatMul"(%yt, %y) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %new = "onnx.Sub"(%w, %dw) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %dw, %c, %new : tensor<6x6xf32>, tensor<6x6xf32>, tensor<6x6xf32>
}
