// RUN: distir-opt %s -p 'zero-partition{stage=0}' | filecheck %s

// Replicas hold everything whole.
// CHECK: %w: tensor<4xf32> {dist.name = "w", dist.role = "parameter", dist.stored = {dp = "whole"}}
// CHECK: %m: tensor<4xf32> {dist.name = "m", dist.role = "state", dist.stored = {dp = "whole"}}
func.func @main(%w: tensor<4xf32> {dist.name = "w", dist.role = "parameter"}, %m: tensor<4xf32> {dist.name = "m", dist.role = "state"}) -> (tensor<4xf32> {dist.name = "w", dist.role = "parameter"}, tensor<4xf32> {dist.name = "m", dist.role = "state"}) {
  func.return %w, %m : tensor<4xf32>, tensor<4xf32>
}
