// RUN: distir-opt %s -p 'shardcombine-annotate,matmul-type' | filecheck %s
// RUN: distir-opt %s -p 'shardcombine-annotate,matmul-type{type=bf16 keep=up}' | filecheck %s --check-prefix=KEPT
// RUN: distir-opt %s --verify-diagnostics -p 'matmul-type{type=i8}' | filecheck %s --check-prefix=TYPE

// A layer's product with its weight, and the two of its gradient; what is made of inputs alone stays as it is (scores of attention). What is of inputs is rounded
// where weights multiply it.
// CHECK:       %y = "onnx.MatMul"(%x, %v) {{.*}}dist.matmul_type = "f8E4M3FN", dist.rounded = array<i64: 0>}
// CHECK:       %s = "onnx.MatMul"(%y, %yt) {{.*}}found = exact>} :
// CHECK:       %dx = "onnx.MatMul"(%s, %y) {{.*}}found = exact>} :
// CHECK:       %dw = "onnx.MatMul"(%xt, %dx) {{.*}}dist.matmul_type = "f8E4M3FN"} :
// CHECK:       %back = "onnx.MatMul"(%dx, %wt) {{.*}}dist.matmul_type = "f8E4M3FN"

// KEPT:        %y = "onnx.MatMul"(%x, %v) {dist.module = "layers.0.up", {{.*}}found = exact>} :
// KEPT:        %dw = {{.*}}dist.matmul_type = "bf16"
// TYPE: type: expected one of f8E4M3FN, f8E5M2, bf16, f16, got 'i8'
func.func @main(%x: tensor<4x6xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<6x6xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<4x6xf32> {dist.name = "y", dist.role = "output"}, tensor<6x6xf32> {dist.name = "w", dist.role = "parameter"}) {
  %v = "onnx.Relu"(%w) : (tensor<6x6xf32>) -> tensor<6x6xf32>
  %y = "onnx.MatMul"(%x, %v) {dist.module = "layers.0.up"} : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %yt = "onnx.Transpose"(%y) <{perm = [1, 0]}> : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %s = "onnx.MatMul"(%y, %yt) : (tensor<4x6xf32>, tensor<6x4xf32>) -> tensor<4x4xf32>
  %dx = "onnx.MatMul"(%s, %y) : (tensor<4x4xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  %xt = "onnx.Transpose"(%x) <{perm = [1, 0]}> : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %dw = "onnx.MatMul"(%xt, %dx) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %wt = "onnx.Transpose"(%v) <{perm = [1, 0]}> : (tensor<6x6xf32>) -> tensor<6x6xf32>
  %back = "onnx.MatMul"(%dx, %wt) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %new = "onnx.Sub"(%w, %dw) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %back, %new : tensor<4x6xf32>, tensor<6x6xf32>
}
