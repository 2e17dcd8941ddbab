// RUN: distir-opt %s -p 'zero-partition{stage=3}' | filecheck %s

// A layer takes the queries that a model learns, and then what the layer before gives: only what is a parameter for every caller is taken in parts.

// CHECK: @layer(%h: tensor<4x4xf32>, %w: tensor<4x4xf32> {dist.stored = {dp = "cut"}})
func.func @main(%x: tensor<4x4xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<4x4xf32> {dist.name = "w", dist.role = "parameter"}, %q: tensor<4x4xf32> {dist.name = "q", dist.role = "parameter"}) -> tensor<4x4xf32> {
  %a = func.call @layer(%q, %w) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %c = "onnx.Add"(%a, %x) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %b = func.call @layer(%c, %w) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %b : tensor<4x4xf32>
}
func.func private @layer(%h: tensor<4x4xf32>, %w: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %y = "onnx.MatMul"(%h, %w) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %y : tensor<4x4xf32>
}
