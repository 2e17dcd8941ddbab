// RUN: distir-opt %s -p 'shardcombine-annotate,pipeline-stages{stages=2}' | filecheck %s

// What does not depend on the batch is computed once, where it is used first.
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"},
                %w: tensor<8x6xf32> {dist.name = "w", dist.role = "parameter"},
                %v: tensor<4x6xf32> {dist.name = "v", dist.role = "parameter"})
    -> (tensor<4x4xf32> {dist.name = "y", dist.role = "output"}) {
  %t = "onnx.Transpose"(%v) <{perm = [1 : i64, 0 : i64]}> : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %h = "onnx.MatMul"(%x, %w) : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %y = "onnx.MatMul"(%h, %t) : (tensor<4x6xf32>, tensor<6x4xf32>) -> tensor<4x4xf32>
  func.return %y : tensor<4x4xf32>
}

// CHECK:      [[T:%.*]] = func.call @before_1(%v) {dist.stage = 1 : i64, dist.phase = "before"}
// CHECK-NEXT: [[H:%.*]] = func.call @forward_0(%x, %w) {dist.stage = 0 : i64, dist.phase = "forward"}
// CHECK-NEXT: %y = func.call @forward_1([[H]], [[T]]) {dist.stage = 1 : i64, dist.phase = "forward"}
// CHECK:      func.func private @before_1
// CHECK-NEXT: onnx.Transpose
