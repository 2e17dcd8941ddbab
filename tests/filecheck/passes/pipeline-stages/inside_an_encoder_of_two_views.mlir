// RUN: distir-opt %s -p 'shardcombine-annotate,pipeline-stages{stages=2}' | filecheck %s

// One function has all parameters, and both views take it: it is a function for each stage, which both take.
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"},
                %y: tensor<4x8xf32> {dist.name = "y", dist.role = "input"},
                %v: tensor<8x8xf32> {dist.name = "v", dist.role = "parameter"},
                %w: tensor<8x8xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<4x8xf32> {dist.name = "z", dist.role = "output"}) {
  %a = func.call @encoder(%x, %v, %w) : (tensor<4x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %b = func.call @encoder(%y, %v, %w) : (tensor<4x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %z = "onnx.Add"(%a, %b) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %z : tensor<4x8xf32>
}
func.func private @encoder(%x: tensor<4x8xf32>, %v: tensor<8x8xf32>, %w: tensor<8x8xf32>) -> tensor<4x8xf32> {
  %h = "onnx.MatMul"(%x, %v) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %y = "onnx.MatMul"(%h, %w) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}

// CHECK:      [[A:%.*]], [[B:%.*]] = func.call @forward_0(%x, %v, %y)
// CHECK-NEXT: %z = func.call @forward_1([[A]], %w, [[B]])
// CHECK:      func.func private @layer_part(
// CHECK:      func.func private @layer_part_1(
// CHECK:      func.func private @forward_0(
// CHECK-NEXT: func.call @layer_part(
// CHECK-NEXT: func.call @layer_part(
// CHECK:      func.func private @forward_1(
// CHECK-NEXT: func.call @layer_part_1(
// CHECK-NEXT: func.call @layer_part_1(
