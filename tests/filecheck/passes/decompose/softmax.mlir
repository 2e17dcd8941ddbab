// RUN: distir-opt %s -p shardcombine-annotate,decompose | filecheck %s

// A softmax over a weight's columns too: its parts are a maximum, a sum and a division.

// CHECK-NOT: aten._softmax
// CHECK:     "aten.amax"
// CHECK:     "aten.exp"
// CHECK:     "aten.sum.dim_IntList"
// CHECK:     "aten.div.Tensor"
func.func @main(%x: tensor<6x8xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<8x10xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<6x10xf32> {dist.name = "y", dist.role = "output"}) {
  %h = "aten.mm"(%x, %w) : (tensor<6x8xf32>, tensor<8x10xf32>) -> tensor<6x10xf32>
  %y = "aten._softmax"(%h) <{dim = -1 : i64, half_to_float = false}> : (tensor<6x10xf32>) -> tensor<6x10xf32>
  func.return %y : tensor<6x10xf32>
}
