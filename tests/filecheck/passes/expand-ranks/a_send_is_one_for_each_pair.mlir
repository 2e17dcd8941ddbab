// RUN: distir-opt %s -p expand-ranks | filecheck %s

// A send to another group goes from each device to the one at its place.

// CHECK:      func.func @main(%x: tensor<4x4xf32, #dist.on<0>>, %x_1: tensor<4x4xf32, #dist.on<1>>
// CHECK-NEXT: [[Y:%.*]] = dist.send %x to 2
// CHECK-NEXT: [[Y_1:%.*]] = dist.send %x_1 to 3
// CHECK-NEXT: func.return [[Y]], [[Y_1]]

dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x4xf32, #dist.on<0:2>>) -> tensor<4x4xf32, #dist.on<2:4>> {
  %y = dist.send %x to 2 : tensor<4x4xf32, #dist.on<0:2>> -> tensor<4x4xf32, #dist.on<2:4>>
  func.return %y : tensor<4x4xf32, #dist.on<2:4>>
}
