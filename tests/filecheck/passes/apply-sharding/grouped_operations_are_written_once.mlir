// RUN: distir-opt %s -p 'shardcombine-annotate,apply-sharding{grouped=true}' | filecheck %s

// Every device does the same: an operation is written once, on a group.

// CHECK:      dist.mesh @mesh = <["tp" = 2]>
// CHECK:      func.func @main(%x: tensor<4x8xf32, #dist.on<0:2>> {dist.name = "x", dist.part = #dist.part<[0:4, 0:8] of [4, 8]>},
// CHECK-SAME: %w: tensor<8x4xf32, #dist.on<0:2>> {dist.name = "w", dist.part = #dist.part<[0:8, 0:4] of [8, 8], "tp" + [0, 4]>},
// CHECK-SAME: %v: tensor<4x8xf32, #dist.on<0:2>> {dist.name = "v", dist.part = #dist.part<[0:4, 0:8] of [8, 8], "tp" + [4, 0]>})
// CHECK-NEXT: [[H:%.*]] = "onnx.MatMul"(%x, %w)
// CHECK-NEXT: [[P:%.*]] = "onnx.MatMul"([[H]], %v)
// CHECK-NEXT: [[Y:%.*]] = dist.allreduce sum [[P]] over "tp"
// CHECK-NEXT: [[Z:%.*]] = "onnx.Relu"([[Y]])
// CHECK-NEXT: dist.slice [[Z]] [0:2, 0:8] {dist.by_rank = #dist.by_rank<["tp"], [{starts = array<i64: 0, 0>, stops = array<i64: 2, 8>}, {starts = array<i64: 2, 0>, stops = array<i64: 4, 8>}]>}

dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>, %v: tensor<8x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %h = "onnx.MatMul"(%x, %w) {
    dist.strategy = #dist.strategy<@mesh, {"tp": S3}>
  } : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %y = "onnx.MatMul"(%h, %v) {
    dist.strategy = #dist.strategy<@mesh, {"tp": S2}>
  } : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %z = "onnx.Relu"(%y) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %t = "onnx.Relu"(%z) {
    dist.strategy = #dist.strategy<@mesh, {"tp": S1}>
  } : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %z, %t : tensor<4x8xf32>, tensor<4x8xf32>
}
