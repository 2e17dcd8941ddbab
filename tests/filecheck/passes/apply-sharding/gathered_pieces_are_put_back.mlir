// RUN: distir-opt %s -p shardcombine-annotate,apply-sharding | filecheck %s

// Gathered, the parts come in the order 0 2 4 1 3 5 and are put back: the whole is places 0 3 1 4 2 5 of what came.

// CHECK:      [[V0:%.*]], %1 = dist.allgather %x, %x_1 dim 0
// CHECK-NEXT: [[V2:%.*]] = dist.slice [[V0]] [0:1]
// CHECK-NEXT: [[V3:%.*]] = dist.slice [[V0]] [3:4]
// CHECK-NEXT: [[V4:%.*]] = dist.slice [[V0]] [1:2]
// CHECK-NEXT: [[V5:%.*]] = dist.slice [[V0]] [4:5]
// CHECK-NEXT: [[V6:%.*]] = dist.slice [[V0]] [2:3]
// CHECK-NEXT: [[V7:%.*]] = dist.slice [[V0]] [5:6]
// CHECK-NEXT: %8 = dist.concat [[V2]], [[V3]], [[V4]], [[V5]], [[V6]], [[V7]] dim 0

dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<6xf32> {dist.sharding = #dist.sharding<@mesh, [{"tp" [2, 2, 2]}]>}) -> tensor<6xf32> {
  %y = "onnx.Neg"(%x) : (tensor<6xf32>) -> tensor<6xf32>
  func.return %y : tensor<6xf32>
}
