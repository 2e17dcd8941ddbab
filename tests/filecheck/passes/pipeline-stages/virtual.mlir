// RUN: distir-opt %s -p 'shardcombine-annotate,pipeline-stages{stages=2 virtual=2}' | filecheck %s

// Two ranks with two stages each are four stages, which the schedule gives to ranks.

// CHECK:      [[A:%.*]] = func.call @forward_0(%x) {dist.stage = 0 : i64
// CHECK-NEXT: [[B:%.*]] = func.call @forward_1([[A]]) {dist.stage = 1 : i64
// CHECK-NEXT: [[C:%.*]] = func.call @forward_2([[B]]) {dist.stage = 2 : i64
// CHECK-NEXT: func.call @forward_3([[C]]) {dist.stage = 3 : i64
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"}) -> (tensor<4x8xf32> {dist.name = "y", dist.role = "output"}) {
  %a = "onnx.Relu"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %b = "onnx.Relu"(%a) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %c = "onnx.Relu"(%b) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %y = "onnx.Relu"(%c) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}
