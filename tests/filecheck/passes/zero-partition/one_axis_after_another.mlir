// RUN: distir-opt %s -p 'zero-partition{stage=0 axis=pod},zero-partition{stage=1}' | filecheck %s

// Each axis as it was said of it.

// CHECK: %w: tensor<4xf32> {dist.name = "w", dist.role = "parameter", dist.stored = {pod = "whole", dp = "whole"}}
// CHECK: %m: tensor<4xf32> {dist.name = "m", dist.role = "state", dist.stored = {pod = "whole", dp = "cut"}}
func.func @main(%w: tensor<4xf32> {dist.name = "w", dist.role = "parameter"}, %m: tensor<4xf32> {dist.name = "m", dist.role = "state"}) -> (tensor<4xf32> {dist.name = "w", dist.role = "parameter"}, tensor<4xf32> {dist.name = "m", dist.role = "state"}) {
  func.return %w, %m : tensor<4xf32>, tensor<4xf32>
}
