// RUN: distir-opt %s -p 'project-to-rank{rank=4}' | filecheck %s

// Functions are projected once per group of machine ranks, each at this rank's place in it; a template without placement
// keeps its name; what is never reached is gone.

// Rank 4 is the second device of @stage in the first and third call and the first in the second.
// CHECK:      func.func @stage.on_2_4() -> tensor<4xf32> {
// CHECK-NEXT:   [[Y:%.*]] = rank.recv from 2 : tensor<4xf32>
// CHECK-NEXT:   [[Z:%.*]] = func.call @double([[Y]]) : (tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT:   func.return [[Z]] : tensor<4xf32>
// CHECK:      func.func @stage.on_4_2(%x: tensor<4xf32>) {
// CHECK-NEXT:   rank.send %x to 2 : tensor<4xf32>
// CHECK-NEXT:   func.return
func.func @stage(%x: tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<1>> {
  %y = dist.send %x to 1 : tensor<4xf32, #dist.on<0>> -> tensor<4xf32, #dist.on<1>>
  %z = dist.call @double(%y) on [1] : (tensor<4xf32, #dist.on<1>>) -> tensor<4xf32, #dist.on<1>>
  func.return %z : tensor<4xf32, #dist.on<1>>
}
// CHECK:      func.func @double(%x: tensor<4xf32>) -> tensor<4xf32> {
func.func @double(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = dist.scale %x by 2/1 : tensor<4xf32>
  func.return %y : tensor<4xf32>
}
// CHECK-NOT: @unreached
func.func @unreached(%x: tensor<4xf32>) {
  func.return
}
// CHECK:      func.func @main() {
// CHECK-NEXT:   [[B:%.*]] = func.call @stage.on_2_4() : () -> tensor<4xf32>
// CHECK-NEXT:   func.call @stage.on_4_2([[B]]) : (tensor<4xf32>) -> ()
// CHECK-NEXT:   %d = func.call @stage.on_2_4() : () -> tensor<4xf32>
// CHECK-NEXT:   func.return
func.func @main(%a: tensor<4xf32, #dist.on<2>>) {
  %b = dist.call @stage(%a) on [2, 4] : (tensor<4xf32, #dist.on<2>>) -> tensor<4xf32, #dist.on<4>>
  %c = dist.call @stage(%b) on [4, 2] : (tensor<4xf32, #dist.on<4>>) -> tensor<4xf32, #dist.on<2>>
  %d = dist.call @stage(%c) on [2, 4] : (tensor<4xf32, #dist.on<2>>) -> tensor<4xf32, #dist.on<4>>
  %e = dist.call @double(%c) on [2] : (tensor<4xf32, #dist.on<2>>) -> tensor<4xf32, #dist.on<2>>
  func.return
}
