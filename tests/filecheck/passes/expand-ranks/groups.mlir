// RUN: distir-opt %s -p expand-ranks | filecheck %s
// RUN: distir-opt %s -p 'project-to-rank{rank=3}' | filecheck %s --check-prefix=RANK

// What is written once for a group of four devices is written for each: collectives for each line of the mesh, properties that differ.
dist.mesh @mesh = <["dp" = 2, "tp" = 2]>

// CHECK-NOT:  dist.mesh
// CHECK:      func.func @main(%x: tensor<4x4xf32, #dist.on<0>> {dist.name = "x", dist.part = #dist.part<[0:4, 0:4] of [8, 8]>},
// CHECK-SAME: %x_1: tensor<4x4xf32, #dist.on<1>> {dist.name = "x", dist.part = #dist.part<[0:4, 4:8] of [8, 8]>},
// CHECK-SAME: %x_2: tensor<4x4xf32, #dist.on<2>> {dist.name = "x", dist.part = #dist.part<[4:8, 0:4] of [8, 8]>},
// CHECK-SAME: %x_3: tensor<4x4xf32, #dist.on<3>> {dist.name = "x", dist.part = #dist.part<[4:8, 4:8] of [8, 8]>})
func.func @main(%x: tensor<4x4xf32, #dist.on<0:4>> {dist.name = "x", dist.part = #dist.part<[0:4, 0:4] of [8, 8], "dp" + [4, 0], "tp" + [0, 4]>})
    -> tensor<4x4xf32, #dist.on<4:8>> {
  // CHECK-NEXT: [[S:%.*]], [[S_1:%.*]], [[S_2:%.*]], [[S_3:%.*]] = dist.call @layer(%x, %x_1, %x_2, %x_3) on [0, 1, 2, 3]
  %s = dist.call @layer(%x) on [0, 1, 2, 3] : (tensor<4x4xf32, #dist.on<0:4>>) -> tensor<4x4xf32, #dist.on<0:4>>
  // CHECK-NEXT: [[Y:%.*]] = dist.send [[S]] to 4
  // CHECK-NEXT: [[Y_1:%.*]] = dist.send [[S_1]] to 5
  // CHECK-NEXT: [[Y_2:%.*]] = dist.send [[S_2]] to 6
  // CHECK-NEXT: [[Y_3:%.*]] = dist.send [[S_3]] to 7
  %y = dist.send %s to 4 : tensor<4x4xf32, #dist.on<0:4>> -> tensor<4x4xf32, #dist.on<4:8>>
  // CHECK-NEXT: return [[Y]], [[Y_1]], [[Y_2]], [[Y_3]]
  func.return %y : tensor<4x4xf32, #dist.on<4:8>>
}

func.func private @layer(%x: tensor<4x4xf32, #dist.on<0:4>>) -> tensor<4x4xf32, #dist.on<0:4>> {
  // CHECK:      [[ROWS:%.*]] = dist.slice %x [0:2, 0:4]
  // CHECK-NEXT: [[ROWS_1:%.*]] = dist.slice %x_1 [0:2, 0:4]
  // CHECK-NEXT: [[ROWS_2:%.*]] = dist.slice %x_2 [2:4, 0:4]
  // CHECK-NEXT: [[ROWS_3:%.*]] = dist.slice %x_3 [2:4, 0:4]
  %rows = dist.slice %x [0:2, 0:4] {dist.by_rank = #dist.by_rank<["dp"], [{starts = array<i64: 0, 0>, stops = array<i64: 2, 4>}, {starts = array<i64: 2, 0>, stops = array<i64: 4, 4>}]>} : tensor<4x4xf32, #dist.on<0:4>> -> tensor<2x4xf32, #dist.on<0:4>>
  // CHECK-NEXT: [[ALL:%.*]], [[ALL_1:%.*]] = dist.allgather [[ROWS]], [[ROWS_2]] dim 0
  // CHECK-NEXT: %all_2, %all_3 = dist.allgather [[ROWS_1]], [[ROWS_3]] dim 0
  %all = dist.allgather %rows dim 0 over "dp" : (tensor<2x4xf32, #dist.on<0:4>>) -> tensor<4x4xf32, #dist.on<0:4>>
  // The first device along an axis keeps the value, the others have zeros.
  // CHECK-NEXT: [[FIRST:%.*]] = dist.zeros : tensor<4x4xf32, #dist.on<1>>
  // CHECK-NEXT: [[FIRST_1:%.*]] = dist.zeros : tensor<4x4xf32, #dist.on<3>>
  %first = dist.first_only %all over "tp" : tensor<4x4xf32, #dist.on<0:4>> -> tensor<4x4xf32, #dist.on<0:4>>
  // CHECK-NEXT: dist.allreduce sum [[ALL]], [[FIRST]]
  // CHECK-NEXT: dist.allreduce sum [[ALL_1]], [[FIRST_1]]
  %sum = dist.allreduce sum %first over "tp" : (tensor<4x4xf32, #dist.on<0:4>>) -> tensor<4x4xf32, #dist.on<0:4>>
  func.return %sum : tensor<4x4xf32, #dist.on<0:4>>
}

// RANK: rank.rank = 3
// RANK: dist.slice %x [2:4, 0:4]
// RANK: rank.allgather %rows {{.*}}[1, 3]
// RANK: rank.allreduce {{.*}}[2, 3]
