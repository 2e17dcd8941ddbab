// RUN: distir-opt %s --verify-diagnostics -p 'zero-partition{stage=4}' | filecheck %s

// ZeRO has three stages, and 0 is none.
// CHECK: stage: expected 0, 1, 2 or 3, got 4
func.func @main(%w: tensor<4xf32> {dist.name = "w", dist.role = "parameter"}) -> (tensor<4xf32> {dist.name = "w", dist.role = "parameter"}) {
  func.return %w : tensor<4xf32>
}
