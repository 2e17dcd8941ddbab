// RUN: distir-opt %s -p shardcombine-annotate,apply-sharding | filecheck %s

// Addends along "a" that "b" replicates would be added twice: those of the second half leave as zeros.

// CHECK:      func.func @main
// CHECK:      [[V0:%.*]] = dist.zeros : tensor<4x6xf32, #dist.on<1>>
// CHECK-NEXT: [[V1:%.*]] = dist.zeros : tensor<4x6xf32, #dist.on<3>>
// CHECK-NEXT: func.return %h, [[V0]], %h_2, [[V1]]

dist.mesh @mesh = <["a" = 2, "b" = 2]>
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>) -> tensor<4x6xf32> {
  %h = "onnx.MatMul"(%x, %w) {dist.strategy = #dist.strategy<@mesh, {"a": S2}>} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  func.return %h : tensor<4x6xf32>
}
