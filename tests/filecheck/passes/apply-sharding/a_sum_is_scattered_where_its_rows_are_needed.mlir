// RUN: distir-opt %s -p shardcombine-annotate,apply-sharding | filecheck %s

// Addends of a product go to rows: each device sums its own.

// CHECK:      [[V0:%.*]], %1 = dist.reducescatter sum %h, %h_1 dim 0 :
// CHECK-SAME: -> (tensor<2x6xf32, #dist.on<0>>, tensor<2x6xf32, #dist.on<1>>)
// CHECK-NEXT: "onnx.Relu"([[V0]])

dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>) -> tensor<4x6xf32> {
  %h = "onnx.MatMul"(%x, %w) {dist.strategy = #dist.strategy<@mesh, {"tp": S2}>} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %y = "onnx.Relu"(%h) {dist.strategy = #dist.strategy<@mesh, {"tp": S1}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}
