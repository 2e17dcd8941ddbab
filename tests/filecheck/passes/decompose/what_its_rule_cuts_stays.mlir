// RUN: distir-opt %s -p shardcombine-annotate,decompose | filecheck %s

// Elementwise operations cut the weight's columns themselves.

// CHECK:     "aten.gelu"
// CHECK-NOT: aten.erf
func.func @main(%x: tensor<6x8xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<8x10xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<6x10xf32> {dist.name = "y", dist.role = "output"}) {
  %h = "aten.mm"(%x, %w) : (tensor<6x8xf32>, tensor<8x10xf32>) -> tensor<6x10xf32>
  %y = "aten.gelu"(%h) <{approximate = "none"}> : (tensor<6x10xf32>) -> tensor<6x10xf32>
  func.return %y : tensor<6x10xf32>
}
