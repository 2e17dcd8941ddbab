// RUN: distir-opt %s -p 'shardcombine-annotate,matmul-type{keep="layers.1"}' | filecheck %s

// layers.1 is not layers.10, but all that is in layers.1.

// CHECK:      "onnx.MatMul"(%x, %w) {{.*}}dist.matmul_type = "f8E4M3FN"
// CHECK-NEXT: "onnx.MatMul"(%x, %v) {{.*}}found = exact>} :

func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}, %v: tensor<6x6xf32> {dist.role = "parameter"}) -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %y = "onnx.MatMul"(%x, %w) {dist.module = "layers.10.up"} : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %z = "onnx.MatMul"(%x, %v) {dist.module = "layers.1.up"} : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  func.return %y, %z : tensor<4x6xf32>, tensor<4x6xf32>
}
