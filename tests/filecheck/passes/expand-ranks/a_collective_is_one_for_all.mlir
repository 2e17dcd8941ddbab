// RUN: distir-opt %s -p expand-ranks | filecheck %s

// A collective over an axis has all members of a line as participants.

// CHECK:      func.func @main(%x: tensor<4x4xf32, #dist.on<0>>, %x_1: tensor<4x4xf32, #dist.on<1>>
// CHECK-NEXT: [[Y:%.*]], [[Y_1:%.*]] = dist.allreduce sum %x, %x_1
// CHECK-NEXT: func.return [[Y]], [[Y_1]]

dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x4xf32, #dist.on<0:2>>) -> tensor<4x4xf32, #dist.on<0:2>> {
  %y = dist.allreduce sum %x over "tp" : (tensor<4x4xf32, #dist.on<0:2>>) -> tensor<4x4xf32, #dist.on<0:2>>
  func.return %y : tensor<4x4xf32, #dist.on<0:2>>
}
