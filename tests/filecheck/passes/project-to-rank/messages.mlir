// RUN: distir-opt %s -p 'project-to-rank{rank=1}' | filecheck %s
// RUN: distir-opt %s -p 'project-to-rank{rank=2}' | filecheck %s --check-prefix=RANK2

// Each communication op from inside (rank 1) and, for the rooted ones, from another side (rank 2). Device 3 sends
// to itself in none of them; arguments and results of other ranks are gone, names and parts stay.

// CHECK: builtin.module attributes {dist.devices = 4 : i64, rank.rank = 1 : i64}
// CHECK-NEXT: func.func @main(%b: tensor<4x8xf32> {dist.name = "x", dist.role = "input", dist.part = #dist.part<[4:8, 0:8] of [8, 8]>}) -> (tensor<4x8xf32> {dist.name = "result1"}) {
// RANK2: func.func @main(%c: tensor<4x8xf32> {dist.name = "c"}) {
builtin.module attributes {dist.devices = 4 : i64} {
  func.func @main(
      %a: tensor<4x8xf32, #dist.on<0>> {dist.name = "x", dist.role = "input", dist.part = #dist.part<[0:4, 0:8] of [8, 8]>},
      %b: tensor<4x8xf32, #dist.on<1>> {dist.name = "x", dist.role = "input", dist.part = #dist.part<[4:8, 0:8] of [8, 8]>},
      %c: tensor<4x8xf32, #dist.on<2>>
  ) -> (tensor<4x8xf32, #dist.on<0>>, tensor<4x8xf32, #dist.on<1>>) {
    // CHECK-NEXT: rank.send %b to 0 : tensor<4x8xf32>
    // RANK2-NEXT: = rank.recv from 0 : tensor<4x8xf32>
    %0 = dist.send %b to 0 : tensor<4x8xf32, #dist.on<1>> -> tensor<4x8xf32, #dist.on<0>>
    %1 = dist.send %a to 2 : tensor<4x8xf32, #dist.on<0>> -> tensor<4x8xf32, #dist.on<2>>
    // CHECK-NEXT: = rank.allreduce max %b group [1, 0] : tensor<4x8xf32>
    %2, %3 = dist.allreduce max %b, %a : (tensor<4x8xf32, #dist.on<1>>, tensor<4x8xf32, #dist.on<0>>) -> (tensor<4x8xf32, #dist.on<1>>, tensor<4x8xf32, #dist.on<0>>)
    // CHECK-NEXT: = rank.allgather %b dim 0 group [0, 1] : tensor<4x8xf32> -> tensor<8x8xf32>
    %4, %5 = dist.allgather %a, %b dim 0 : (tensor<4x8xf32, #dist.on<0>>, tensor<4x8xf32, #dist.on<1>>) -> (tensor<8x8xf32, #dist.on<0>>, tensor<8x8xf32, #dist.on<1>>)
    // CHECK-NEXT: = rank.reducescatter sum %b dim 1 group [0, 1] : tensor<4x8xf32> -> tensor<4x3xf32>
    %6, %7 = dist.reducescatter sum %a, %b dim 1 : (tensor<4x8xf32, #dist.on<0>>, tensor<4x8xf32, #dist.on<1>>) -> (tensor<4x5xf32, #dist.on<0>>, tensor<4x3xf32, #dist.on<1>>)
    // CHECK-NEXT: = rank.alltoall %b split 1 concat 0 group [0, 1] : tensor<4x8xf32> -> tensor<8x4xf32>
    %8, %9 = dist.alltoall %a, %b split 1 concat 0 : (tensor<4x8xf32, #dist.on<0>>, tensor<4x8xf32, #dist.on<1>>) -> (tensor<8x4xf32, #dist.on<0>>, tensor<8x4xf32, #dist.on<1>>)
    // CHECK-NEXT: = rank.exchange %b dim 0 from 2 group [0, 1] : tensor<4x8xf32> -> tensor<6x8xf32>
    %x0, %x1 = dist.exchange %a, %b dim 0 from [0, 2] : (tensor<4x8xf32, #dist.on<0>>, tensor<4x8xf32, #dist.on<1>>) -> (tensor<5x8xf32, #dist.on<0>>, tensor<6x8xf32, #dist.on<1>>)
    // The root is in the group though it does not receive.
    // CHECK-NEXT: rank.broadcast %b root 1 group [1, 0, 2] : (tensor<4x8xf32>) -> ()
    // RANK2-NEXT: = rank.broadcast root 1 group [1, 0, 2] : () -> tensor<4x8xf32>
    %10, %11 = dist.broadcast %b to [0, 2] : (tensor<4x8xf32, #dist.on<1>>) -> (tensor<4x8xf32, #dist.on<0>>, tensor<4x8xf32, #dist.on<2>>)
    // CHECK-NEXT: = rank.scatter %b dim 0 root 1 receivers [2, 1] group [2, 1] : (tensor<4x8xf32>) -> tensor<3x8xf32>
    // RANK2-NEXT: = rank.scatter dim 0 root 1 receivers [2, 1] group [2, 1] : () -> tensor<1x8xf32>
    %12, %13 = dist.scatter %b dim 0 to [2, 1] : (tensor<4x8xf32, #dist.on<1>>) -> (tensor<1x8xf32, #dist.on<2>>, tensor<3x8xf32, #dist.on<1>>)
    // CHECK-NEXT: = rank.gather dim 0 root 1 contributors [0, 2] group [1, 0, 2] : () -> tensor<8x8xf32>
    // RANK2-NEXT: rank.gather %c dim 0 root 1 contributors [0, 2] group [1, 0, 2] : (tensor<4x8xf32>) -> ()
    %14 = dist.gather %a, %c dim 0 to 1 : (tensor<4x8xf32, #dist.on<0>>, tensor<4x8xf32, #dist.on<2>>) -> tensor<8x8xf32, #dist.on<1>>
    // CHECK-NEXT: = rank.reduce sum %b root 1 contributors [1, 2] group [1, 2] : (tensor<4x8xf32>) -> tensor<4x8xf32>
    // RANK2-NEXT: rank.reduce sum %c root 1 contributors [1, 2] group [1, 2] : (tensor<4x8xf32>) -> ()
    %15 = dist.reduce sum %b, %c to 1 : (tensor<4x8xf32, #dist.on<1>>, tensor<4x8xf32, #dist.on<2>>) -> tensor<4x8xf32, #dist.on<1>>
    // CHECK-NEXT: = dist.scale %{{.*}} by 1/2 : tensor<4x8xf32>
    %16 = dist.scale %15 by 1/2 : tensor<4x8xf32, #dist.on<1>>
    // CHECK-NEXT: func.return %{{.*}} : tensor<4x8xf32>
    // RANK2-NEXT: func.return
    func.return %0, %16 : tensor<4x8xf32, #dist.on<0>>, tensor<4x8xf32, #dist.on<1>>
  }
}
