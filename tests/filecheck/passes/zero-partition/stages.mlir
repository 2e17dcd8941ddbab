// RUN: distir-opt %s -p 'zero-partition{stage=1}' | filecheck %s --check-prefixes=CHECK,ONE
// RUN: distir-opt %s -p 'zero-partition{stage=2 axis="pod,dp"}' | filecheck %s --check-prefix=TWO
// RUN: distir-opt %s -p 'zero-partition{stage=3}' | filecheck %s --check-prefixes=CHECK,THREE
// RUN: distir-opt %s --verify-diagnostics -p 'zero-partition{stage=4}' | filecheck %s --check-prefix=STAGE
// RUN: distir-opt %s --verify-diagnostics -p 'zero-partition{axis="dp,dp"}' | filecheck %s --check-prefix=AXIS

// What is pinned is what each device stores: state first, then the sums that the loop carries, then parameters. Inputs are free.
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

// CHECK:      func.func @main(%x: tensor<4xf32> {dist.name = "x", dist.role = "input"},
// ONE-SAME:   %w: tensor<4xf32> {dist.name = "w", dist.role = "parameter", dist.stored = {dp = "whole"}}
// ONE-SAME:   %m: tensor<4xf32> {dist.name = "m", dist.role = "state", dist.stored = {dp = "cut"}}
// ONE:        @body(%x: tensor<4xf32>, %w: tensor<4xf32>, %sum: tensor<4xf32> {dist.stored = {dp = "addends"}}, %k: index)
// TWO:        %w: tensor<4xf32> {dist.name = "w", dist.role = "parameter", dist.stored = {pod = "whole", dp = "whole"}}
// TWO:        %sum: tensor<4xf32> {dist.stored = {pod = "cut", dp = "cut"}}
// THREE-SAME: dist.role = "parameter", dist.stored = {dp = "cut"}
// THREE:      %sum: tensor<4xf32> {dist.stored = {dp = "cut"}}
// STAGE: stage: expected 1, 2 or 3, got 4
// AXIS: axis: expected distinct names of axes such as "dp", got "dp,dp"
