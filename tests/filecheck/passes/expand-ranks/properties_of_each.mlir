// RUN: distir-opt %s -p expand-ranks | filecheck %s

// Properties that differ along an axis are those of each device.

// CHECK: dist.slice %x [0:2, 0:4]
// CHECK: dist.slice %x_1 [2:4, 0:4]

dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x4xf32, #dist.on<0:2>>) -> tensor<2x4xf32, #dist.on<0:2>> {
  %y = dist.slice %x [0:2, 0:4] {dist.by_rank = #dist.by_rank<["tp"], [{starts = array<i64: 0, 0>, stops = array<i64: 2, 4>}, {starts = array<i64: 2, 0>, stops = array<i64: 4, 4>}]>} : tensor<4x4xf32, #dist.on<0:2>> -> tensor<2x4xf32, #dist.on<0:2>>
  func.return %y : tensor<2x4xf32, #dist.on<0:2>>
}
