// RUN: distir-opt %s -p 'shardcombine-annotate,pipeline-stages{stages=2}' | filecheck %s

// Fewer calls than stages: the call is opened.
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"},
                %w: tensor<8x6xf32> {dist.name = "w", dist.role = "parameter"},
                %v: tensor<6x4xf32> {dist.name = "v", dist.role = "parameter"})
    -> (tensor<4x4xf32> {dist.name = "y", dist.role = "output"}) {
  %y = func.call @f(%x, %w, %v) : (tensor<4x8xf32>, tensor<8x6xf32>, tensor<6x4xf32>) -> tensor<4x4xf32>
  func.return %y : tensor<4x4xf32>
}
func.func private @f(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>, %v: tensor<6x4xf32>) -> tensor<4x4xf32> {
  %h = "onnx.MatMul"(%x, %w) : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %y = "onnx.MatMul"(%h, %v) : (tensor<4x6xf32>, tensor<6x4xf32>) -> tensor<4x4xf32>
  func.return %y : tensor<4x4xf32>
}

// CHECK:      [[H:%.*]] = func.call @forward_0(%x, %w)
// CHECK-NEXT: %y = func.call @forward_1([[H]], %v)
// CHECK-NOT:  @f{{[^o]}}
