// RUN: distir-opt %s -p expand-ranks | filecheck %s

// The value on the first device, zeros on the others.

// CHECK:      func.func @main(%x: tensor<4x4xf32, #dist.on<0>>, %x_1: tensor<4x4xf32, #dist.on<1>>
// CHECK-NEXT: [[Y:%.*]] = dist.zeros
// CHECK-NEXT: func.return %x, [[Y]]

dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x4xf32, #dist.on<0:2>>) -> tensor<4x4xf32, #dist.on<0:2>> {
  %y = dist.first_only %x over "tp" : tensor<4x4xf32, #dist.on<0:2>> -> tensor<4x4xf32, #dist.on<0:2>>
  func.return %y : tensor<4x4xf32, #dist.on<0:2>>
}
