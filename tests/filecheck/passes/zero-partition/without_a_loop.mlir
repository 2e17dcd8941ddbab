// RUN: distir-opt %s -p 'zero-partition{stage=2}' | filecheck %s

// Without microbatches there are no sums to cut, and buffers are free.

// CHECK:      %w: tensor<4xf32> {dist.name = "w", dist.role = "parameter", dist.stored = {dp = "whole"}}
// CHECK-SAME: %b: tensor<4xf32> {dist.name = "b", dist.role = "buffer"}
// CHECK-SAME: %m: tensor<4xf32> {dist.name = "m", dist.role = "state", dist.stored = {dp = "cut"}}
func.func @main(%w: tensor<4xf32> {dist.name = "w", dist.role = "parameter"}, %b: tensor<4xf32> {dist.name = "b", dist.role = "buffer"}, %m: tensor<4xf32> {dist.name = "m", dist.role = "state"})
    -> (tensor<4xf32> {dist.name = "m", dist.role = "state"}) {
  %n = dist.accumulate sum %m, %b : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %n : tensor<4xf32>
}
