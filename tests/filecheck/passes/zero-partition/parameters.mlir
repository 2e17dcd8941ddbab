// RUN: distir-opt %s -p 'zero-partition{stage=3}' | filecheck %s

// Stage 3 cuts all that a device stores; a function takes parameters in parts, and gathers what it uses.

// CHECK:      %w: tensor<4xf32> {dist.name = "w", dist.role = "parameter", dist.stored = {dp = "cut"}}
// CHECK-SAME: %m: tensor<4xf32> {dist.name = "m", dist.role = "state", dist.stored = {dp = "cut"}}
// CHECK:      @body(%x: tensor<4xf32>, %w: tensor<4xf32> {dist.stored = {dp = "cut"}}, %sum: tensor<4xf32> {dist.stored = {dp = "cut"}}
func.func @main(%x: tensor<4xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<4xf32> {dist.name = "w", dist.role = "parameter"},
                %m: tensor<4xf32> {dist.name = "m", dist.role = "state"}) -> (tensor<4xf32> {dist.name = "m", dist.role = "state"}) {
  %zero = dist.zeros : tensor<4xf32>
  %sum = dist.microbatches @body(%x, %w, %zero) times 2 : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %sum : tensor<4xf32>
}
func.func private @body(%x: tensor<4xf32>, %w: tensor<4xf32>, %sum: tensor<4xf32>, %k: index) -> tensor<4xf32> {
  %added = dist.accumulate sum %sum, %w : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %added : tensor<4xf32>
}
