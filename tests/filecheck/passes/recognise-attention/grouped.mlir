// RUN: distir-opt %s -p recognise-attention | filecheck %s

// Keys and values that are repeated for three heads of queries are not: queries have a dim for the heads of a group.

// CHECK: "attention.forward"(%{{.*}}) <{scale = 1.000000e+00 : f64}> : (tensor<2x3x5x4xf32>, tensor<2x7x4xf32>, tensor<2x7x4xf32>) ->
// CHECK-NOT: aten.expand
func.func @main(%q: tensor<6x5x4xf32>, %k: tensor<1x2x1x7x4xf32>, %v: tensor<1x2x1x7x4xf32>) -> tensor<6x5x4xf32> {
  %ke = "aten.expand"(%k) <{size = array<i64: 1, 2, 3, 7, 4>}> : (tensor<1x2x1x7x4xf32>) -> tensor<1x2x3x7x4xf32>
  %kr = "aten.reshape"(%ke) <{shape = array<i64: 6, 7, 4>}> : (tensor<1x2x3x7x4xf32>) -> tensor<6x7x4xf32>
  %ve = "aten.expand"(%v) <{size = array<i64: 1, 2, 3, 7, 4>}> : (tensor<1x2x1x7x4xf32>) -> tensor<1x2x3x7x4xf32>
  %vr = "aten.reshape"(%ve) <{shape = array<i64: 6, 7, 4>}> : (tensor<1x2x3x7x4xf32>) -> tensor<6x7x4xf32>
  %kt = "aten.transpose.int"(%kr) <{dim0 = 1 : i64, dim1 = 2 : i64}> : (tensor<6x7x4xf32>) -> tensor<6x4x7xf32>
  %s = "aten.bmm"(%q, %kt) : (tensor<6x5x4xf32>, tensor<6x4x7xf32>) -> tensor<6x5x7xf32>
  %p = "aten._softmax"(%s) <{dim = -1 : i64, half_to_float = false}> : (tensor<6x5x7xf32>) -> tensor<6x5x7xf32>
  %o = "aten.bmm"(%p, %vr) : (tensor<6x5x7xf32>, tensor<6x7x4xf32>) -> tensor<6x5x4xf32>
  func.return %o : tensor<6x5x4xf32>
}
