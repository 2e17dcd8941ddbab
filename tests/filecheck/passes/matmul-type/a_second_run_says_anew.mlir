// RUN: distir-opt %s -p 'shardcombine-annotate,matmul-type,matmul-type{type=f8E5M2 keep=up}' | filecheck %s

// What was said before is not kept, also of products that stay as they are.

// CHECK:      [[Y:%.*]] = "onnx.MatMul"(%x, %w) {{.*}}found = exact>} :
// CHECK-NEXT: "onnx.MatMul"([[Y]], %w) {{.*}}dist.matmul_type = "f8E5M2", dist.rounded = array<i64: 0>}

func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}) -> tensor<4x6xf32> {
  %y = "onnx.MatMul"(%x, %w) {dist.module = "up"} : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %z = "onnx.MatMul"(%y, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  func.return %z : tensor<4x6xf32>
}
