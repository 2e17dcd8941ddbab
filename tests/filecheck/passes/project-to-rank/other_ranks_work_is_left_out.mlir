// RUN: distir-opt %s -p 'project-to-rank{rank=1}' | filecheck %s

// What runs on another device is not in the rank's program.

// CHECK:      func.func @main(%y: tensor<4xf32> {dist.name = "y"}
// CHECK-NEXT: [[B:%.*]] = "aten.tanh"(%y)
// CHECK-NEXT: func.return [[B]]

func.func @main(%x: tensor<4xf32, #dist.on<0>>, %y: tensor<4xf32, #dist.on<1>>) -> (tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1>>) {
  %a = "aten.relu"(%x) : (tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0>>
  %b = "aten.tanh"(%y) : (tensor<4xf32, #dist.on<1>>) -> tensor<4xf32, #dist.on<1>>
  func.return %a, %b : tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1>>
}
