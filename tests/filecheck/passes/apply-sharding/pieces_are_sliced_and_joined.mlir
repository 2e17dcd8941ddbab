// RUN: distir-opt %s -p shardcombine-annotate,apply-sharding | filecheck %s

// Cut in pieces [2, 2, 2] by two devices: parts 0, 2, 4 and 1, 3, 5.

// CHECK:      [[V4:%.*]] = dist.slice %x_1 [1:2]
// CHECK-NEXT: [[V5:%.*]] = dist.slice %x_1 [3:4]
// CHECK-NEXT: [[V6:%.*]] = dist.slice %x_1 [5:6]
// CHECK-NEXT: [[V7:%.*]] = dist.concat [[V4]], [[V5]], [[V6]] dim 0 :
// CHECK:      %y_1 = "onnx.Neg"([[V7]])

dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<6xf32> {dist.sharding = #dist.sharding<@mesh, [{}]>}) -> tensor<6xf32> {
  %y = "onnx.Neg"(%x) {dist.strategy = #dist.strategy<@mesh, {"tp": S1(pieces = [2, 2, 2])}>} : (tensor<6xf32>) -> tensor<6xf32>
  func.return %y : tensor<6xf32>
}
