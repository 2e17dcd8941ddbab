// RUN: distir-opt %s -p 'shardcombine-annotate,matmul-type' | filecheck %s

// A function that several layers are is marked once.

// CHECK:      [[Y:%.*]] = func.call @layer(%x, %w)
// CHECK-NEXT: func.call @layer([[Y]], %v)
// CHECK:      func.func private @layer(
// CHECK-NEXT: "onnx.MatMul"(%x, %w) {{.*}}dist.matmul_type = "f8E4M3FN", dist.rounded = array<i64: 0>}
// CHECK-NOT:  func.func

func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}, %v: tensor<6x6xf32> {dist.role = "parameter"}) -> tensor<4x6xf32> {
  %0 = func.call @layer(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %1 = func.call @layer(%0, %v) {dist.renamed = {"layers.0" = "layers.1"}} : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  func.return %1 : tensor<4x6xf32>
}
func.func private @layer(%x: tensor<4x6xf32>, %w: tensor<6x6xf32>) -> tensor<4x6xf32> {
  %y = "onnx.MatMul"(%x, %w) {dist.module = "layers.0.up"} : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}
