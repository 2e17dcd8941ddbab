// RUN: distir-opt %s -p 'shardcombine-annotate,matmul-type{type=bf16}' | filecheck %s

// bf16, for a model in f32.

// CHECK: "onnx.MatMul"(%x, %w) {{.*}}dist.matmul_type = "bf16"

func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}) -> tensor<4x6xf32> {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}
