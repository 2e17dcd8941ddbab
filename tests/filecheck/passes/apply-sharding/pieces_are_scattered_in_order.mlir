// RUN: distir-opt %s -p shardcombine-annotate,apply-sharding | filecheck %s

// A sum scattered in pieces is first put in the order of the shards: 0 2 4 1 3 5.

// CHECK:      [[V0:%.*]] = dist.slice %h [0:4, 0:1]
// CHECK-NEXT: [[V1:%.*]] = dist.slice %h [0:4, 2:3]
// CHECK-NEXT: [[V2:%.*]] = dist.slice %h [0:4, 4:5]
// CHECK-NEXT: [[V3:%.*]] = dist.slice %h [0:4, 1:2]
// CHECK-NEXT: [[V4:%.*]] = dist.slice %h [0:4, 3:4]
// CHECK-NEXT: [[V5:%.*]] = dist.slice %h [0:4, 5:6]
// CHECK-NEXT: [[V6:%.*]] = dist.concat [[V0]], [[V1]], [[V2]], [[V3]], [[V4]], [[V5]] dim 1
// CHECK:      dist.reducescatter sum [[V6]], %{{.*}} dim 1 :

dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>) -> tensor<4x6xf32> {
  %h = "onnx.MatMul"(%x, %w) {dist.strategy = #dist.strategy<@mesh, {"tp": S2}>} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %y = "onnx.Relu"(%h) {dist.strategy = #dist.strategy<@mesh, {"tp": S2(pieces = [2, 2, 2])}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}
