// RUN: distir-opt %s -p expand-ranks | filecheck %s

// A local operation is written for each device of the group.

// CHECK:      func.func @main(%x: tensor<4x4xf32, #dist.on<0>>, %x_1: tensor<4x4xf32, #dist.on<1>>
// CHECK-NEXT: [[Y:%.*]] = "aten.relu"(%x)
// CHECK-NEXT: [[Y_1:%.*]] = "aten.relu"(%x_1)
// CHECK-NEXT: func.return [[Y]], [[Y_1]]

dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x4xf32, #dist.on<0:2>>) -> tensor<4x4xf32, #dist.on<0:2>> {
  %y = "aten.relu"(%x) : (tensor<4x4xf32, #dist.on<0:2>>) -> tensor<4x4xf32, #dist.on<0:2>>
  func.return %y : tensor<4x4xf32, #dist.on<0:2>>
}
