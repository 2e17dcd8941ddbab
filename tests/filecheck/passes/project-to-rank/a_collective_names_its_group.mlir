// RUN: distir-opt %s -p 'project-to-rank{rank=0}' | filecheck %s

// A rank has one operand and one result, and the group in participant order.

// CHECK:      func.func @main(%x: tensor<4xf32> {dist.name = "x"}
// CHECK-NEXT: [[A:%.*]] = rank.allreduce sum %x group [0, 1]
// CHECK-NEXT: func.return [[A]]

func.func @main(%x: tensor<4xf32, #dist.on<0>>, %y: tensor<4xf32, #dist.on<1>>) -> (tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1>>) {
  %a, %b = dist.allreduce sum %x, %y : (tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1>>) -> (tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1>>)
  func.return %a, %b : tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1>>
}
