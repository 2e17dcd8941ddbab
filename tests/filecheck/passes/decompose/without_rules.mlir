// RUN: distir-opt %s -p decompose | filecheck %s

// Without rules nothing is known to be cut, and nothing is replaced.

// CHECK: "aten._log_softmax"
func.func @main(%x: tensor<6x8xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<8x10xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<6x10xf32> {dist.name = "y", dist.role = "output"}) {
  %h = "aten.mm"(%x, %w) : (tensor<6x8xf32>, tensor<8x10xf32>) -> tensor<6x10xf32>
  %y = "aten._log_softmax"(%h) <{dim = -1 : i64, half_to_float = false}> : (tensor<6x10xf32>) -> tensor<6x10xf32>
  func.return %y : tensor<6x10xf32>
}
