// RUN: DISTIR_DIAGNOSTICS

// CHECK: operand 0 is not placed: expected a type such as tensor<4xf32, #dist.on<0>>, got tensor<4xf32>
func.func @main(%x: tensor<4xf32>) {
  %0 = dist.send %x to 1 : tensor<4xf32> -> tensor<4xf32, #dist.on<1>>
  func.return
}

// -----

// CHECK: a send to its own device 0: use the value itself
func.func @main(%x: tensor<4xf32, #dist.on<0>>) {
  %0 = dist.send %x to 0 : tensor<4xf32, #dist.on<0>> -> tensor<4xf32, #dist.on<0, "comm">>
  func.return
}

// -----

// CHECK: expected the result on device 2, got 1
func.func @main(%x: tensor<4xf32, #dist.on<0>>) {
  %0 = dist.send %x to 2 : tensor<4xf32, #dist.on<0>> -> tensor<4xf32, #dist.on<1>>
  func.return
}

// -----

// CHECK: expected result 1 of shape [4], got [5]
func.func @main(%x: tensor<4xf32, #dist.on<0>>) {
  %0 = dist.send %x to 1 : tensor<4xf32, #dist.on<0>> -> tensor<5xf32, #dist.on<1>>
  func.return
}

// -----

// CHECK: expected at least one participant, got 0
func.func @main() {
  dist.allreduce sum : () -> ()
  func.return
}

// -----

// CHECK: expected distinct participants, got operands 0 and 1 both on device 0
func.func @main(%x: tensor<4xf32, #dist.on<0>>) {
  %0, %1 = dist.allreduce sum %x, %x : (tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<0>>) -> (tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1>>)
  func.return
}

// -----

// CHECK: expected 2 results, one per participant, got 1
func.func @main(%x: tensor<4xf32, #dist.on<0>>, %y: tensor<4xf32, #dist.on<1>>) {
  %0 = dist.allreduce sum %x, %y : (tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1>>) -> tensor<4xf32, #dist.on<0>>
  func.return
}

// -----

// CHECK: expected result 0 on #dist.on<0>, where operand 0 is, got #dist.on<0, "comm">
func.func @main(%x: tensor<4xf32, #dist.on<0>>) {
  %0 = dist.allreduce sum %x : (tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0, "comm">>
  func.return
}

// -----

// CHECK: expected value 1 of element type f32, got f64
func.func @main(%x: tensor<4xf32, #dist.on<0>>) {
  %0 = dist.allreduce sum %x : (tensor<4xf32, #dist.on<0>>) -> tensor<4xf64, #dist.on<0>>
  func.return
}

// -----

// CHECK: expected a dim in 0..0, got 1
func.func @main(%x: tensor<4xf32, #dist.on<0>>) {
  %0 = dist.allgather %x dim 1 : (tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0>>
  func.return
}

// -----

// CHECK: expected operand 1 of rank 1, got 2
func.func @main(%x: tensor<4xf32, #dist.on<0>>, %y: tensor<4x1xf32, #dist.on<1>>) {
  %0, %1 = dist.allgather %x, %y dim 0 : (tensor<4xf32, #dist.on<0>>, tensor<4x1xf32, #dist.on<1>>) -> (tensor<8xf32, #dist.on<0>>, tensor<8xf32, #dist.on<1>>)
  func.return
}

// -----

// CHECK: expected result 1 of shape [7], got [8]
func.func @main(%x: tensor<4xf32, #dist.on<0>>, %y: tensor<3xf32, #dist.on<1>>) {
  %0, %1 = dist.allgather %x, %y dim 0 : (tensor<4xf32, #dist.on<0>>, tensor<3xf32, #dist.on<1>>) -> (tensor<7xf32, #dist.on<0>>, tensor<8xf32, #dist.on<1>>)
  func.return
}

// -----

// CHECK: expected the results' dim 0 to sum to 4, got 5
func.func @main(%x: tensor<4xf32, #dist.on<0>>, %y: tensor<4xf32, #dist.on<1>>) {
  %0, %1 = dist.reducescatter sum %x, %y dim 0 : (tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1>>) -> (tensor<2xf32, #dist.on<0>>, tensor<3xf32, #dist.on<1>>)
  func.return
}

// -----

// CHECK: expected a concat dim in 0..0, got 1
func.func @main(%x: tensor<4xf32, #dist.on<0>>) {
  %0 = dist.alltoall %x split 0 concat 1 : (tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0>>
  func.return
}

// -----

// CHECK: expected dim 0 divisible by 2 participants, got 3
func.func @main(%x: tensor<3xf32, #dist.on<0>>, %y: tensor<3xf32, #dist.on<1>>) {
  %0, %1 = dist.alltoall %x, %y split 0 concat 0 : (tensor<3xf32, #dist.on<0>>, tensor<3xf32, #dist.on<1>>) -> (tensor<3xf32, #dist.on<0>>, tensor<3xf32, #dist.on<1>>)
  func.return
}

// -----

// CHECK: expected result 0 of shape [4, 8], got [4, 4]
func.func @main(%x: tensor<4x4xf32, #dist.on<0>>, %y: tensor<4x4xf32, #dist.on<1>>) {
  %0, %1 = dist.alltoall %x, %y split 0 concat 1 : (tensor<4x4xf32, #dist.on<0>>, tensor<4x4xf32, #dist.on<1>>) -> (tensor<4x4xf32, #dist.on<0>>, tensor<4x4xf32, #dist.on<1>>)
  func.return
}

// -----

// CHECK: expected results on devices [0, 1], got [0, 2]
func.func @main(%x: tensor<4xf32, #dist.on<0>>) {
  %0, %1 = dist.broadcast %x to [0, 1] : (tensor<4xf32, #dist.on<0>>) -> (tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<2>>)
  func.return
}

// -----

// CHECK: expected at least one receiver, got 0
func.func @main(%x: tensor<4xf32, #dist.on<0>>) {
  dist.scatter %x dim 0 to [] : (tensor<4xf32, #dist.on<0>>) -> ()
  func.return
}

// -----

// CHECK: expected the operand, the sum of its parts, of shape [5], got [4]
func.func @main(%x: tensor<4xf32, #dist.on<0>>) {
  %0, %1 = dist.scatter %x dim 0 to [0, 1] : (tensor<4xf32, #dist.on<0>>) -> (tensor<2xf32, #dist.on<0>>, tensor<3xf32, #dist.on<1>>)
  func.return
}

// -----

// CHECK: expected results on devices [1], got [0]
func.func @main(%x: tensor<4xf32, #dist.on<0>>) {
  %0 = dist.gather %x dim 0 to 1 : (tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0>>
  func.return
}

// -----

// CHECK: expected the result of shape [4], got [8]
func.func @main(%x: tensor<4xf32, #dist.on<0>>) {
  %0 = dist.gather %x dim 0 to 0 : (tensor<4xf32, #dist.on<0>>) -> tensor<8xf32, #dist.on<0>>
  func.return
}

// -----

// CHECK: expected value 2 of shape [4], got [2]
func.func @main(%x: tensor<4xf32, #dist.on<0>>, %y: tensor<4xf32, #dist.on<1>>) {
  %0 = dist.reduce sum %x, %y to 1 : (tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1>>) -> tensor<2xf32, #dist.on<1>>
  func.return
}

// -----

// CHECK: expected all values on #dist.on<0>, got operand 1 on #dist.on<1>
func.func @main(%x: tensor<4xf32, #dist.on<0>>, %y: tensor<4xf32, #dist.on<1>>) {
  %0 = dist.concat %x, %y dim 0 : (tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1>>) -> tensor<8xf32, #dist.on<0>>
  func.return
}

// -----

// CHECK: expected all values on #dist.on<0>, got result 0 on #dist.on<0, "comm">
func.func @main(%x: tensor<4xf32, #dist.on<0>>) {
  %0 = dist.accumulate sum %x : (tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0, "comm">>
  func.return
}

// -----

// CHECK: expected 2 ranges, got 1
func.func @main(%x: tensor<4x8xf32>) {
  %0 = dist.slice %x [0:4] : tensor<4x8xf32> -> tensor<4xf32>
  func.return
}

// -----

// CHECK: expected 1 stops, one per start, got 2
func.func @main(%x: tensor<4xf32>) {
  %0 = "dist.slice"(%x) <{starts = array<i64: 0>, stops = array<i64: 4, 4>}> : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: dim 1: range 4:9 is outside 0:8
func.func @main(%x: tensor<4x8xf32>) {
  %0 = dist.slice %x [0:4, 4:9] : tensor<4x8xf32> -> tensor<4x5xf32>
  func.return
}

// -----

// CHECK: expected the result of shape [4, 2], got [4, 3]
func.func @main(%x: tensor<4x8xf32>) {
  %0 = dist.slice %x [0:4, 2:4] : tensor<4x8xf32> -> tensor<4x3xf32>
  func.return
}

// -----

// CHECK: expected at least one operand, got 0
func.func @main() {
  %0 = dist.concat dim 0 : () -> tensor<4xf32>
  func.return
}

// -----

// CHECK: expected value 1 of shape [4], got [5]
func.func @main(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  %0 = dist.accumulate sum %x, %y : (tensor<4xf32>, tensor<5xf32>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: expected result of floating elements, got i32
func.func @main(%x: tensor<4xf32>) {
  %0 = dist.cast %x : tensor<4xf32> -> tensor<4xi32>
  func.return
}

// -----

// CHECK: expected the result of shape [4], got [5]
func.func @main(%x: tensor<4xf32>) {
  %0 = dist.cast %x : tensor<4xf32> -> tensor<5xbf16>
  func.return
}

// -----

// CHECK: expected a positive denominator, got 0
func.func @main(%x: tensor<4xf32>) {
  %0 = dist.scale %x by 1/0 : tensor<4xf32>
  func.return
}

// -----

// CHECK: expected results of types ['tensor<4xf32>', 'tensor<4xf32>'], got ['tensor<4xf32>']
func.func @main(%t: tuple<tensor<4xf32>, tensor<4xf32>>) {
  %0 = dist.unpack %t : (tuple<tensor<4xf32>, tensor<4xf32>>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: expected operands of types ['tensor<5xf32>'], got ['tensor<4xf32>']
func.func @main(%x: tensor<4xf32>) {
  %0 = dist.pack %x : (tensor<4xf32>) -> tuple<tensor<5xf32>>
  func.return
}

// -----

// A tuple is on one device: every element is checked.
// CHECK: expected all values on #dist.on<0>, got operand 1 on #dist.on<1>
func.func @main(%x: tensor<4xf32, #dist.on<0>>, %y: tensor<4xf32, #dist.on<1>>) {
  %0 = dist.pack %x, %y : (tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1>>) -> tuple<tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1>>>
  func.return
}

// -----

// CHECK: expected a placed operand and result
func.func @main(%x: tensor<4xf32>) {
  %0 = dist.move %x : tensor<4xf32> -> tensor<4xf32>
  func.return
}

// -----

// CHECK: expected the result on device 0, got 1: use dist.send
func.func @main(%x: tensor<4xf32, #dist.on<0>>) {
  %0 = dist.move %x : tensor<4xf32, #dist.on<0>> -> tensor<4xf32, #dist.on<1>>
  func.return
}

// -----

// CHECK: expected another stream, got #dist.on<0> on both sides
func.func @main(%x: tensor<4xf32, #dist.on<0>>) {
  %0 = dist.move %x : tensor<4xf32, #dist.on<0>> -> tensor<4xf32, #dist.on<0>>
  func.return
}

// -----

// CHECK: expected at least one device, got 0
func.func @main() {
  dist.call @f() on [] : () -> ()
  func.return
}

// -----

// CHECK: expected distinct devices, got [1, 1]
func.func @main() {
  dist.call @f() on [1, 1] : () -> ()
  func.return
}

// -----

// CHECK: a value on device 0 is outside the call's devices [1, 2]
func.func @main(%x: tensor<4xf32, #dist.on<0>>) {
  dist.call @f(%x) on [1, 2] : (tensor<4xf32, #dist.on<0>>) -> ()
  func.return
}

// -----

// CHECK: expected 2 starts, one per participant, got 1
func.func @main(%x: tensor<4xf32, #dist.on<0>>, %y: tensor<3xf32, #dist.on<1>>) {
  %0, %1 = dist.exchange %x, %y dim 0 from [0] : (tensor<4xf32, #dist.on<0>>, tensor<3xf32, #dist.on<1>>) -> (tensor<5xf32, #dist.on<0>>, tensor<5xf32, #dist.on<1>>)
  func.return
}

// -----

// CHECK: expected window 1 inside 0:7, got 3:8
func.func @main(%x: tensor<4xf32, #dist.on<0>>, %y: tensor<3xf32, #dist.on<1>>) {
  %0, %1 = dist.exchange %x, %y dim 0 from [0, 3] : (tensor<4xf32, #dist.on<0>>, tensor<3xf32, #dist.on<1>>) -> (tensor<5xf32, #dist.on<0>>, tensor<5xf32, #dist.on<1>>)
  func.return
}

// -----

// CHECK: expected result 1 of shape [5, 2], got [5, 3]
func.func @main(%x: tensor<4x2xf32, #dist.on<0>>, %y: tensor<3x2xf32, #dist.on<1>>) {
  %0, %1 = dist.exchange %x, %y dim 0 from [0, 2] : (tensor<4x2xf32, #dist.on<0>>, tensor<3x2xf32, #dist.on<1>>) -> (tensor<5x2xf32, #dist.on<0>>, tensor<5x3xf32, #dist.on<1>>)
  func.return
}

// -----

// CHECK: expected value 1 of shape [4], got [5]
func.func @main(%x: tuple<tensor<4xf32, #dist.on<0>>>, %y: tuple<tensor<5xf32, #dist.on<1>>>) {
  %0, %1 = dist.allreduce sum %x, %y : (tuple<tensor<4xf32, #dist.on<0>>>, tuple<tensor<5xf32, #dist.on<1>>>) -> (tuple<tensor<4xf32, #dist.on<0>>>, tuple<tensor<5xf32, #dist.on<1>>>)
  func.return
}

// -----

// CHECK: expected value 1 of a tuple type in one place, got tensor<4xf32, #dist.on<0>>
func.func @main(%x: tuple<tensor<4xf32, #dist.on<0>>>) {
  %0 = dist.allgather %x dim 0 : (tuple<tensor<4xf32, #dist.on<0>>>) -> tensor<4xf32, #dist.on<0>>
  func.return
}

// -----

// CHECK: expected tuples of as many elements, got [1, 1, 2, 2]
func.func @main(%x: tuple<tensor<4xf32, #dist.on<0>>>, %y: tuple<tensor<4xf32, #dist.on<1>>>) {
  %0, %1 = dist.allgather %x, %y dim 0 : (tuple<tensor<4xf32, #dist.on<0>>>, tuple<tensor<4xf32, #dist.on<1>>>) -> (tuple<tensor<8xf32, #dist.on<0>>, tensor<8xf32, #dist.on<0>>>, tuple<tensor<8xf32, #dist.on<1>>, tensor<8xf32, #dist.on<1>>>)
  func.return
}

// -----

// CHECK: expected result 0 of shape [6], got [8]
func.func @main(%x: tuple<tensor<4xf32, #dist.on<0>>, tensor<3xf32, #dist.on<0>>>, %y: tuple<tensor<4xf32, #dist.on<1>>, tensor<3xf32, #dist.on<1>>>) {
  %0, %1 = dist.allgather %x, %y dim 0 : (tuple<tensor<4xf32, #dist.on<0>>, tensor<3xf32, #dist.on<0>>>, tuple<tensor<4xf32, #dist.on<1>>, tensor<3xf32, #dist.on<1>>>) -> (tuple<tensor<8xf32, #dist.on<0>>, tensor<8xf32, #dist.on<0>>>, tuple<tensor<8xf32, #dist.on<1>>, tensor<8xf32, #dist.on<1>>>)
  func.return
}

// -----

// CHECK: expected a tensor, got tuple<tensor<4xf32, #dist.on<0>>>
func.func @main(%x: tuple<tensor<4xf32, #dist.on<0>>>) {
  %0 = dist.alltoall %x split 0 concat 0 : (tuple<tensor<4xf32, #dist.on<0>>>) -> tuple<tensor<4xf32, #dist.on<0>>>
  func.return
}
