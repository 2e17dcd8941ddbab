// RUN: distir-opt %s --verify-diagnostics -p 'zero-partition{axis="dp,dp"}' | filecheck %s

// An axis is named once.
// CHECK: axis: expected distinct names of axes such as "dp", got "dp,dp"
func.func @main(%w: tensor<4xf32> {dist.name = "w", dist.role = "parameter"}) -> (tensor<4xf32> {dist.name = "w", dist.role = "parameter"}) {
  func.return %w : tensor<4xf32>
}
