// RUN: DISTIR_DIAGNOSTICS

// CHECK: expected distinct ranks, got [0, 0]
func.func @main(%x: tensor<4xf32>) {
  %0 = rank.allreduce sum %x group [0, 0] : tensor<4xf32>
  func.return
}

// -----

// CHECK: expected a dim in 0..0, got 1
func.func @main(%x: tensor<4xf32>) {
  %0 = rank.allgather %x dim 1 group [0, 1] : tensor<4xf32> -> tensor<8xf32>
  func.return
}

// -----

// CHECK: expected the result of shape [8, 8], got [8, 9]
func.func @main(%x: tensor<4x8xf32>) {
  %0 = rank.allgather %x dim 0 group [0, 1] : tensor<4x8xf32> -> tensor<8x9xf32>
  func.return
}

// -----

// CHECK: expected a part of [4, 8] along dim 0, got [5, 8]
func.func @main(%x: tensor<4x8xf32>) {
  %0 = rank.alltoall %x split 0 concat 1 group [0, 1, 2] : tensor<4x8xf32> -> tensor<5x8xf32>
  func.return
}

// -----

// CHECK: expected dim 0 divisible by 3 ranks, got 4
func.func @main(%x: tensor<4x8xf32>) {
  %0 = rank.alltoall %x split 0 concat 0 group [0, 1, 2] : tensor<4x8xf32> -> tensor<4x8xf32>
  func.return
}

// -----

// CHECK: expected an operand, a result or both
func.func @main() {
  rank.broadcast root 0 group [0, 1] : () -> ()
  func.return
}

// -----

// CHECK: expected the result of rank 1, got 2
func.func @main(%x: tensor<4xf32>) {
  %0 = rank.reducescatter sum %x dim 0 group [0, 1] : tensor<4xf32> -> tensor<2x1xf32>
  func.return
}

// -----

// CHECK: expected a dim in 0..1, got 2
func.func @main(%x: tensor<4x8xf32>) {
  %0 = rank.alltoall %x split 2 concat 0 group [0, 1] : tensor<4x8xf32> -> tensor<4x8xf32>
  func.return
}

// -----

// CHECK: expected a part of [4, 8] along dim 0, got [2, 7]
func.func @main(%x: tensor<4x8xf32>) {
  %0 = rank.alltoall %x split 0 concat 1 group [0, 1] : tensor<4x8xf32> -> tensor<2x7xf32>
  func.return
}

// -----

// CHECK: expected the root in the group [0, 1], got [2]
func.func @main(%x: tensor<4xf32>) {
  rank.broadcast %x root 2 group [0, 1] : (tensor<4xf32>) -> ()
  func.return
}

// -----

// CHECK: expected the receivers in the group [0, 1], got [2]
func.func @main(%x: tensor<4xf32>) {
  rank.scatter %x dim 0 root 0 receivers [1, 2] group [0, 1] : (tensor<4xf32>) -> ()
  func.return
}

// -----

// CHECK: expected the contributors in the group [0, 1], got [2, 3]
func.func @main(%x: tensor<4xf32>) {
  rank.reduce sum %x root 0 contributors [0, 2, 3] group [0, 1] : (tensor<4xf32>) -> ()
  func.return
}

// -----

// CHECK: expected a start of at least 0, got -1
func.func @main(%x: tensor<4xf32>) {
  %0 = rank.exchange %x dim 0 from -1 group [0, 1] : tensor<4xf32> -> tensor<5xf32>
  func.return
}
