// RUN: distir-opt %s -p 'project-to-rank{rank=1}' | filecheck %s

// The receiving rank has a receive in its place.

// CHECK:      func.func @main(
// CHECK-NEXT: [[Y:%.*]] = rank.recv from 0
// CHECK-NEXT: func.return [[Y]]

func.func @main(%x: tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<1>> {
  %y = dist.send %x to 1 : tensor<4xf32, #dist.on<0>> -> tensor<4xf32, #dist.on<1>>
  func.return %y : tensor<4xf32, #dist.on<1>>
}
