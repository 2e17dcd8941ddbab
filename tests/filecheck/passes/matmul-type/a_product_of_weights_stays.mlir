// RUN: distir-opt %s -p 'shardcombine-annotate,matmul-type' | filecheck %s

// Weights that are multiplied with each other (an adapter that is merged) are no product with an input; what comes out is a weight.

// CHECK:      [[M:%.*]] = "onnx.MatMul"(%a, %b) {{.*}}found = exact>} :
// CHECK-NEXT: "onnx.MatMul"(%x, [[M]]) {{.*}}dist.matmul_type = "f8E4M3FN", dist.rounded = array<i64: 0>}

func.func @main(%x: tensor<4x6xf32>, %a: tensor<6x6xf32> {dist.role = "parameter"}, %b: tensor<6x6xf32> {dist.role = "parameter"}) -> tensor<4x6xf32> {
  %m = "onnx.MatMul"(%a, %b) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  %y = "onnx.MatMul"(%x, %m) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}
