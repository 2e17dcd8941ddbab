// RUN: distir-opt %s -p 'shardcombine-annotate,matmul-type' | filecheck %s

// Queries, keys and values are products of one input: a kernel rounds it for the first of them, also for one that takes a view of it.

// CHECK:      "onnx.MatMul"(%x, %w) {{.*}}dist.matmul_type = "f8E4M3FN", dist.rounded = array<i64: 0>} :
// CHECK-NEXT: [[V:%.*]] = "onnx.Reshape"(%x,
// CHECK-NEXT: "onnx.MatMul"([[V]], %v) {{.*}}dist.matmul_type = "f8E4M3FN"} :

func.func @main(%x: tensor<2x2x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}, %v: tensor<6x6xf32> {dist.role = "parameter"}) -> (tensor<2x2x6xf32>, tensor<4x6xf32>) {
  %rows = onnx.Constant dense<[4, 6]> : tensor<2xi64>
  %y = "onnx.MatMul"(%x, %w) : (tensor<2x2x6xf32>, tensor<6x6xf32>) -> tensor<2x2x6xf32>
  %a = "onnx.Reshape"(%x, %rows) : (tensor<2x2x6xf32>, tensor<2xi64>) -> tensor<4x6xf32>
  %z = "onnx.MatMul"(%a, %v) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  func.return %y, %z : tensor<2x2x6xf32>, tensor<4x6xf32>
}
