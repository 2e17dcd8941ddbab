// RUN: distir-opt %s -p expand-ranks | filecheck %s

// A program that is written device by device is as it was.

// CHECK:      func.func @main(%x: tensor<4x4xf32, #dist.on<0>>
// CHECK-NEXT: [[Y:%.*]] = dist.send %x to 1
// CHECK-NEXT: func.return [[Y]]

func.func @main(%x: tensor<4x4xf32, #dist.on<0>>) -> tensor<4x4xf32, #dist.on<1>> {
  %y = dist.send %x to 1 : tensor<4x4xf32, #dist.on<0>> -> tensor<4x4xf32, #dist.on<1>>
  func.return %y : tensor<4x4xf32, #dist.on<1>>
}
