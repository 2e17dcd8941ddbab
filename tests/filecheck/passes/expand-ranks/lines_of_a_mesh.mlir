// RUN: distir-opt %s -p expand-ranks | filecheck %s

// Along one axis of two, every line of the mesh has a collective of its own.

// CHECK:      func.func @main
// CHECK-NEXT: [[Y:%.*]], [[Y_1:%.*]] = dist.allreduce sum %x, %x_2
// CHECK-NEXT: [[Y_2:%.*]], [[Y_3:%.*]] = dist.allreduce sum %x_1, %x_3
// CHECK-NEXT: func.return [[Y]], [[Y_2]], [[Y_1]], [[Y_3]]

dist.mesh @mesh = <["dp" = 2, "tp" = 2]>
func.func @main(%x: tensor<4x4xf32, #dist.on<0:4>>) -> tensor<4x4xf32, #dist.on<0:4>> {
  %y = dist.allreduce sum %x over "dp" : (tensor<4x4xf32, #dist.on<0:4>>) -> tensor<4x4xf32, #dist.on<0:4>>
  func.return %y : tensor<4x4xf32, #dist.on<0:4>>
}
