// RUN: distir-opt %s -p shardcombine-annotate,decompose | filecheck %s

// An operation that takes parameters itself stays: over what it normalises, activations are whole in any case.

// CHECK-NOT: dist.decomposed
// CHECK:     "aten.native_layer_norm"
// CHECK-NOT: aten.var_mean
func.func @main(%x: tensor<6x8xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<8x10xf32> {dist.name = "w", dist.role = "parameter"},
                %g: tensor<10xf32> {dist.name = "g", dist.role = "parameter"}, %b: tensor<10xf32> {dist.name = "b", dist.role = "parameter"})
    -> (tensor<6x10xf32> {dist.name = "y", dist.role = "output"}) {
  %h = "aten.mm"(%x, %w) : (tensor<6x8xf32>, tensor<8x10xf32>) -> tensor<6x10xf32>
  %y, %mean, %rstd = "aten.native_layer_norm"(%h, %g, %b) <{normalized_shape = array<i64: 10>, eps = 1.000000e-05 : f64, operandSegmentSizes = array<i32: 1, 1, 1>}> : (tensor<6x10xf32>, tensor<10xf32>, tensor<10xf32>) -> (tensor<6x10xf32>, tensor<6x1xf32>, tensor<6x1xf32>)
  func.return %y : tensor<6x10xf32>
}
