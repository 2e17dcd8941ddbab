// RUN: distir-opt %s -p 'shardcombine-annotate,matmul-type' | filecheck %s

// What is of inputs is multiplied with what is of parameters alone in the type, and is rounded for that.

// CHECK:      [[V:%.*]] = "onnx.Relu"(%w)
// CHECK-NEXT: [[Y:%.*]] = "onnx.MatMul"(%x, [[V]]) {{.*}}found = exact>, dist.matmul_type = "f8E4M3FN", dist.rounded = array<i64: 0>} :
// CHECK-NEXT: func.return [[Y]]

func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}) -> tensor<4x6xf32> {
  %v = "onnx.Relu"(%w) : (tensor<6x6xf32>) -> tensor<6x6xf32>
  %y = "onnx.MatMul"(%x, %v) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}
