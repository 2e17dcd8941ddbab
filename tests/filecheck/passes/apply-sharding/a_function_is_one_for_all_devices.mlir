// RUN: distir-opt %s -p shardcombine-annotate,apply-sharding | filecheck %s

// Functions are templates over the mesh: one body, calls on all devices, conversions between calls. The callee's argument is what its first consumer
// needs, and its result is what its last op gives.

// CHECK:      [[A:%.*]], [[A_1:%.*]] = dist.call @f(%x, %x_1) on [0, 1] : (tensor<2x6xf32, #dist.on<0>>, tensor<2x6xf32, #dist.on<1>>) -> (tensor<4x6xf32, #dist.on<0>>, tensor<4x6xf32, #dist.on<1>>)
// CHECK-NEXT: [[V0:%.*]] = dist.slice [[A]] [0:2, 0:6]
// CHECK-NEXT: [[V1:%.*]] = dist.slice [[A_1]] [2:4, 0:6]
// CHECK-NEXT: %b, %b_1 = dist.call @f([[V0]], [[V1]]) on [0, 1]
// CHECK:      func.func private @f(%x: tensor<2x6xf32, #dist.on<0>>, %x_1: tensor<2x6xf32, #dist.on<1>>) -> (tensor<4x6xf32, #dist.on<0>>, tensor<4x6xf32, #dist.on<1>>) {
// CHECK:      [[N:%.*]] = "onnx.Neg"(%x)
// CHECK-NEXT: [[N_1:%.*]] = "onnx.Neg"(%x_1)
// CHECK-NEXT: dist.allgather [[N]], [[N_1]] dim 0

dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %a = func.call @f(%x) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %b = func.call @f(%a) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %b : tensor<4x6xf32>
}
func.func private @f(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %a = "onnx.Neg"(%x) {dist.strategy = #dist.strategy<@mesh, {"tp": S1}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %b = "onnx.Neg"(%a) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %b : tensor<4x6xf32>
}
