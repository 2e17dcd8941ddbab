// RUN: DISTIR_ROUNDTRIP

// A group of four devices that do the same, and a second one: a value is one tensor on each, a collective is along an axis of the mesh.
dist.mesh @mesh = <["dp" = 2, "tp" = 2]>

// CHECK:      func.func @main(%x: tensor<4x8xf32, #dist.on<0:4>> {dist.name = "x", dist.part = #dist.part<[0:4, 0:8] of [8, 8], "dp" + [4, 0]>})
// CHECK-SAME: -> (tensor<4x8xf32, #dist.on<4:8>> {dist.name = "y", dist.part = #dist.part<[0:4, 0:8] of [8, 8], partial sum, "dp" + [4, 0]>})
func.func @main(%x: tensor<4x8xf32, #dist.on<0:4>> {dist.name = "x", dist.part = #dist.part<[0:4, 0:8] of [8, 8], "dp" + [4, 0]>})
    -> (tensor<4x8xf32, #dist.on<4:8>> {dist.name = "y", dist.part = #dist.part<[0:4, 0:8] of [8, 8], partial sum, "dp" + [4, 0]>}) {
  // CHECK-NEXT: %y = dist.call @layer(%x) on [0, 1, 2, 3]
  %y = dist.call @layer(%x) on [0, 1, 2, 3] : (tensor<4x8xf32, #dist.on<0:4>>) -> tensor<4x8xf32, #dist.on<0:4>>
  // CHECK-NEXT: %s = dist.send %y to 4 : tensor<4x8xf32, #dist.on<0:4>> -> tensor<4x8xf32, #dist.on<4:8>>
  %s = dist.send %y to 4 : tensor<4x8xf32, #dist.on<0:4>> -> tensor<4x8xf32, #dist.on<4:8>>
  func.return %s : tensor<4x8xf32, #dist.on<4:8>>
}

func.func private @layer(%x: tensor<4x8xf32, #dist.on<0:4>>) -> tensor<4x8xf32, #dist.on<0:4>> {
  // CHECK: dist.slice %x [0:2, 0:8] {dist.by_rank = #dist.by_rank<["tp"], [{starts = array<i64: 0, 0>, stops = array<i64: 2, 8>}, {starts = array<i64: 2, 0>, stops = array<i64: 4, 8>}]>}
  %rows = dist.slice %x [0:2, 0:8] {dist.by_rank = #dist.by_rank<["tp"], [{starts = array<i64: 0, 0>, stops = array<i64: 2, 8>}, {starts = array<i64: 2, 0>, stops = array<i64: 4, 8>}]>} : tensor<4x8xf32, #dist.on<0:4>> -> tensor<2x8xf32, #dist.on<0:4>>
  // CHECK-NEXT: dist.first_only %rows over "dp"
  %first = dist.first_only %rows over "dp" : tensor<2x8xf32, #dist.on<0:4>> -> tensor<2x8xf32, #dist.on<0:4>>
  // CHECK-NEXT: dist.allreduce sum %first over "dp" : (tensor<2x8xf32, #dist.on<0:4>>) -> tensor<2x8xf32, #dist.on<0:4>>
  %sum = dist.allreduce sum %first over "dp" : (tensor<2x8xf32, #dist.on<0:4>>) -> tensor<2x8xf32, #dist.on<0:4>>
  // CHECK-NEXT: dist.allgather %sum dim 0 over "tp" : (tensor<2x8xf32, #dist.on<0:4>>) -> tensor<4x8xf32, #dist.on<0:4>>
  %all = dist.allgather %sum dim 0 over "tp" : (tensor<2x8xf32, #dist.on<0:4>>) -> tensor<4x8xf32, #dist.on<0:4>>
  // CHECK-NEXT: dist.alltoall %all split 1 concat 0 over "tp"
  %turned = dist.alltoall %all split 1 concat 0 over "tp" : (tensor<4x8xf32, #dist.on<0:4>>) -> tensor<8x4xf32, #dist.on<0:4>>
  // CHECK-NEXT: dist.exchange %turned dim 0 from [4, 0] over "tp" : (tensor<8x4xf32, #dist.on<0:4>>) -> tensor<9x4xf32, #dist.on<0:4>>
  %window = dist.exchange %turned dim 0 from [4, 0] over "tp" : (tensor<8x4xf32, #dist.on<0:4>>) -> tensor<9x4xf32, #dist.on<0:4>>
  // CHECK-NEXT: dist.reducescatter sum %turned dim 0 over "dp"
  %part = dist.reducescatter sum %turned dim 0 over "dp" : (tensor<8x4xf32, #dist.on<0:4>>) -> tensor<4x4xf32, #dist.on<0:4>>
  // CHECK-NEXT: dist.allgather %part dim 1 over "tp"
  %whole = dist.allgather %part dim 1 over "tp" : (tensor<4x4xf32, #dist.on<0:4>>) -> tensor<4x8xf32, #dist.on<0:4>>
  func.return %whole : tensor<4x8xf32, #dist.on<0:4>>
}
