// RUN: distir-opt %s -p 'apply-sharding{grouped=true}' --split-input-file | filecheck %s

// Every device does the same: an operation is written once, on a group.
dist.mesh @mesh = <["tp" = 2]>

// CHECK:      dist.mesh @mesh = <["tp" = 2]>
// CHECK:      func.func @main(%x: tensor<4x8xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:4, 0:8] of [4, 8]>},
// CHECK-SAME: %w: tensor<8x4xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:8, 0:4] of [8, 8], "tp" + [0, 4]>},
// CHECK-SAME: %v: tensor<4x8xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:4, 0:8] of [8, 8], "tp" + [4, 0]>})
// CHECK-NEXT: %h = "onnx.MatMul"(%x, %w)
// CHECK-NEXT: %y = "onnx.MatMul"(%h, %v)
// CHECK-NEXT: %[[Y:.*]] = dist.allreduce sum %y over "tp"
// CHECK:      dist.slice %{{.*}} [0:2, 0:8] {dist.by_rank = #dist.by_rank<["tp"], [{starts = array<i64: 0, 0>, stops = array<i64: 2, 8>}, {starts = array<i64: 2, 0>, stops = array<i64: 4, 8>}]>}
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>, %v: tensor<8x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %h = "onnx.MatMul"(%x, %w) {
    dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, found = exact>,
    dist.strategy = #dist.strategy<@mesh, {"tp": S3}>
  } : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %y = "onnx.MatMul"(%h, %v) {
    dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, found = exact>,
    dist.strategy = #dist.strategy<@mesh, {"tp": S2}>
  } : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %z = "onnx.Relu"(%y) {
    dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, found = exact>
  } : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %t = "onnx.Relu"(%z) {
    dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, found = exact>,
    dist.strategy = #dist.strategy<@mesh, {"tp": S1}>
  } : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %z, %t : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// Shards of three rows over two devices differ: each device has operations of its own.
dist.mesh @mesh = <["tp" = 2]>
// CHECK-NOT: dist.mesh
// CHECK:     "onnx.Relu"(%x) : (tensor<{{[12]}}x8xf32, #dist.on<0>>)
// CHECK:     "onnx.Relu"(%x_1) : (tensor<{{[12]}}x8xf32, #dist.on<1>>)
func.func @main(%x: tensor<3x8xf32>) -> tensor<3x8xf32> {
  %y = "onnx.Relu"(%x) {
    dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, found = exact>,
    dist.strategy = #dist.strategy<@mesh, {"tp": S1}>
  } : (tensor<3x8xf32>) -> tensor<3x8xf32>
  func.return %y : tensor<3x8xf32>
}
