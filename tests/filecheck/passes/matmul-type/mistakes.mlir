// RUN: distir-opt %s --verify-diagnostics -p 'matmul-type' | filecheck %s --check-prefix=RULES
// RUN: distir-opt %s -p 'shardcombine-annotate,matmul-type{keep="up,lm_head"}' 2>&1 | filecheck %s

// RULES: matmul-type: the program has no rules: run shardcombine-annotate first
// CHECK: distir: note: matmul-type: no product with a weight is of a module 'lm_head'
// CHECK: "onnx.MatMul"(%x, %w) {dist.module = "layers.0.up", {{.*}}found = exact>} :
func.func @main(%x: tensor<4x6xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<6x6xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<4x6xf32> {dist.name = "y", dist.role = "output"}) {
  %y = "onnx.MatMul"(%x, %w) {dist.module = "layers.0.up"} : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}
