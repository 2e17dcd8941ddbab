// RUN: distir-opt %s --verify-diagnostics -p 'shardcombine-annotate,pipeline-stages{stages=2 whole-layers=true}' | filecheck %s

// Fewer calls than stages: none is opened, and the pipeline is refused.
// CHECK: cannot cut 1 forward operations into 2 pipeline stages: use at most 1
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
