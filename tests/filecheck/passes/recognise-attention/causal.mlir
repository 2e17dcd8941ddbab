// RUN: distir-opt %s -p recognise-attention | filecheck %s

// A constant mask that hides later positions is the diagonal; the heads were rows of the batch of one product.

// CHECK: [[q:%\S+]] = "aten.reshape"(%q) <{shape = array<i64: 2, 3, 5, 4>}>
// CHECK: "attention.forward"([[q]], {{%\S+}}, {{%\S+}}) <{scale = 1.000000e+00 : f64, diagonal = 0 : i64}>
// CHECK-NOT: aten.tril
func.func @main(%q: tensor<6x5x4xf32>, %k: tensor<6x5x4xf32>, %v: tensor<6x5x4xf32>) -> tensor<6x5x4xf32> {
  %kt = "aten.transpose.int"(%k) <{dim0 = 1 : i64, dim1 = 2 : i64}> : (tensor<6x5x4xf32>) -> tensor<6x4x5xf32>
  %s = "aten.bmm"(%q, %kt) : (tensor<6x5x4xf32>, tensor<6x4x5xf32>) -> tensor<6x5x5xf32>
  %h = "aten.view"(%s) <{size = array<i64: 2, 3, 5, 5>}> : (tensor<6x5x5xf32>) -> tensor<2x3x5x5xf32>
  %ones = "aten.ones"() <{size = array<i64: 5, 5>, dtype = i1}> : () -> tensor<5x5xi1>
  %seen = "aten.tril"(%ones) <{diagonal = 0 : i64}> : (tensor<5x5xi1>) -> tensor<5x5xi1>
  %hidden = "aten.logical_not"(%seen) : (tensor<5x5xi1>) -> tensor<5x5xi1>
  %m = "aten.masked_fill.Scalar"(%h, %hidden) <{value = 0xfff0000000000000 : f64}> : (tensor<2x3x5x5xf32>, tensor<5x5xi1>) -> tensor<2x3x5x5xf32>
  %p = "aten._softmax"(%m) <{dim = -1 : i64, half_to_float = false}> : (tensor<2x3x5x5xf32>) -> tensor<2x3x5x5xf32>
  %w = "aten.view"(%p) <{size = array<i64: 6, 5, 5>}> : (tensor<2x3x5x5xf32>) -> tensor<6x5x5xf32>
  %o = "aten.bmm"(%w, %v) : (tensor<6x5x5xf32>, tensor<6x5x4xf32>) -> tensor<6x5x4xf32>
  func.return %o : tensor<6x5x4xf32>
}
