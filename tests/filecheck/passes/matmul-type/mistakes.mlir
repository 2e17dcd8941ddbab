// RUN: distir-opt %s --verify-diagnostics -p matmul-type | filecheck %s --check-prefix=RULES
// RUN: distir-opt %s --verify-diagnostics -p 'matmul-type{type=i8}' | filecheck %s --check-prefix=TYPE
// RUN: distir-opt %s -p 'shardcombine-annotate,matmul-type{keep="up,lm_head"}' 2>&1 | filecheck %s

// A program without rules, another type, and a module that has no product with a weight, of which a note says so.

// RULES: matmul-type: the program has no rules: run shardcombine-annotate first
// TYPE:  type: expected one of f8E4M3FN, f8E5M2, bf16, f16, got 'i8'
// CHECK: distir: note: matmul-type: no product with a weight is of a module 'lm_head'
// CHECK: "onnx.MatMul"(%x, %w) {{.*}}found = exact>} :

func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}) -> tensor<4x6xf32> {
  %y = "onnx.MatMul"(%x, %w) {dist.module = "layers.0.up"} : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}
