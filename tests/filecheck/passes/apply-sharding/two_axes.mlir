// RUN: distir-opt %s -p shardcombine-annotate,apply-sharding | filecheck %s

// Two axes, the last one fastest: rows over "dp" (devices 0, 1 against 2, 3), the contraction over "tp" (0 with 1, 2 with 3).

// CHECK:      builtin.module attributes {dist.devices = 4 : i64, dist.axes = #dist.axes<{{.*}}>} {
// CHECK-NEXT: func.func @main(
// CHECK-SAME: %x_2: tensor<2x4xf32, #dist.on<2>> {dist.name = "x", dist.part = #dist.part<[2:4, 0:4] of [4, 8]>}
// CHECK-SAME: %w_1: tensor<4x6xf32, #dist.on<1>> {dist.name = "w", dist.part = #dist.part<[4:8, 0:6] of [8, 6]>}
// CHECK-SAME: %w_2: tensor<4x6xf32, #dist.on<2>> {dist.name = "w", dist.part = #dist.part<[0:4, 0:6] of [8, 6]>}
// CHECK-NEXT: [[H:%.*]] = "onnx.MatMul"(%x, %w)
// CHECK-NEXT: [[H_1:%.*]] = "onnx.MatMul"(%x_1, %w_1)
// CHECK-NEXT: [[H_2:%.*]] = "onnx.MatMul"(%x_2, %w_2)
// CHECK-NEXT: [[H_3:%.*]] = "onnx.MatMul"(%x_3, %w_3)
// CHECK-NEXT: dist.allreduce sum [[H]], [[H_1]] : (tensor<2x6xf32, #dist.on<0>>, tensor<2x6xf32, #dist.on<1>>)
// CHECK-NEXT: dist.allreduce sum [[H_2]], [[H_3]] : (tensor<2x6xf32, #dist.on<2>>, tensor<2x6xf32, #dist.on<3>>)

dist.mesh @mesh = <["dp" = 2, "tp" = 2]>
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>) -> tensor<4x6xf32> {
  %h = "onnx.MatMul"(%x, %w) {dist.strategy = #dist.strategy<@mesh, {"dp": S1, "tp": S2}>} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %y = "onnx.Relu"(%h) {dist.strategy = #dist.strategy<@mesh, {"dp": S1}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}
