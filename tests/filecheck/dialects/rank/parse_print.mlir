// RUN: DISTIR_ROUNDTRIP

// CHECK-LABEL: func.func @main
func.func @main(%x: tensor<4x8xf32>) {
  // CHECK-NEXT: rank.send %x to 1 : tensor<4x8xf32>
  rank.send %x to 1 : tensor<4x8xf32>
  // CHECK-NEXT: %0 = rank.recv from 2 : tensor<4x8xf32>
  %0 = rank.recv from 2 : tensor<4x8xf32>
  // CHECK-NEXT: %1 = rank.wait %x on "comm" : tensor<4x8xf32>
  %1 = rank.wait %x on "comm" : tensor<4x8xf32>
  // CHECK-NEXT: %2 = rank.allreduce sum %1 group [0, 1] {rank.stream = "comm"} : tensor<4x8xf32>
  %2 = rank.allreduce sum %1 group [0, 1] {rank.stream = "comm"} : tensor<4x8xf32>
  // CHECK-NEXT: %3 = rank.allgather %x dim 0 group [1, 0] : tensor<4x8xf32> -> tensor<7x8xf32>
  %3 = rank.allgather %x dim 0 group [1, 0] : tensor<4x8xf32> -> tensor<7x8xf32>
  // CHECK-NEXT: %4 = rank.reducescatter max %x dim 1 group [0, 1] : tensor<4x8xf32> -> tensor<4x3xf32>
  %4 = rank.reducescatter max %x dim 1 group [0, 1] : tensor<4x8xf32> -> tensor<4x3xf32>
  // CHECK-NEXT: %5 = rank.alltoall %x split 1 concat 0 group [0, 1] : tensor<4x8xf32> -> tensor<8x4xf32>
  %5 = rank.alltoall %x split 1 concat 0 group [0, 1] : tensor<4x8xf32> -> tensor<8x4xf32>
  // CHECK-NEXT: = rank.exchange %x dim 0 from 3 group [0, 1] : tensor<4x8xf32> -> tensor<5x8xf32>
  %window = rank.exchange %x dim 0 from 3 group [0, 1] : tensor<4x8xf32> -> tensor<5x8xf32>
  // CHECK-NEXT: rank.broadcast %x root 0 group [0, 1] : (tensor<4x8xf32>) -> ()
  rank.broadcast %x root 0 group [0, 1] : (tensor<4x8xf32>) -> ()
  // CHECK-NEXT: %6 = rank.broadcast root 1 group [1, 0] : () -> tensor<4x8xf32>
  %6 = rank.broadcast root 1 group [1, 0] : () -> tensor<4x8xf32>
  // CHECK-NEXT: %7 = rank.broadcast %x root 0 group [0, 1] : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %7 = rank.broadcast %x root 0 group [0, 1] : (tensor<4x8xf32>) -> tensor<4x8xf32>
  // CHECK-NEXT: %8 = rank.scatter dim 0 root 1 receivers [0, 2] group [1, 0, 2] : () -> tensor<2x8xf32>
  %8 = rank.scatter dim 0 root 1 receivers [0, 2] group [1, 0, 2] : () -> tensor<2x8xf32>
  // CHECK-NEXT: rank.scatter %x dim 0 root 0 receivers [1, 2] group [0, 1, 2] : (tensor<4x8xf32>) -> ()
  rank.scatter %x dim 0 root 0 receivers [1, 2] group [0, 1, 2] : (tensor<4x8xf32>) -> ()
  // CHECK-NEXT: %9 = rank.gather %x dim 1 root 0 contributors [0, 1] group [0, 1] : (tensor<4x8xf32>) -> tensor<4x16xf32>
  %9 = rank.gather %x dim 1 root 0 contributors [0, 1] group [0, 1] : (tensor<4x8xf32>) -> tensor<4x16xf32>
  // CHECK-NEXT: rank.reduce prod %x root 2 contributors [0, 1] group [2, 0, 1] : (tensor<4x8xf32>) -> ()
  rank.reduce prod %x root 2 contributors [0, 1] group [2, 0, 1] : (tensor<4x8xf32>) -> ()
  // CHECK-NEXT: %10 = rank.reduce sum root 0 contributors [1, 2] group [0, 1, 2] : () -> tensor<4x8xf32>
  %10 = rank.reduce sum root 0 contributors [1, 2] group [0, 1, 2] : () -> tensor<4x8xf32>
  func.return
}
