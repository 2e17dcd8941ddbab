// RUN: distir-opt %s -p recognise-attention | filecheck %s

// The gradient is one operation, of the scores of which none is left; its factor is the forward part's.

// CHECK: [[o:%\S+]], [[sums:%\S+]] = "attention.forward"(%q, [[k:%\S+]], %v) <{scale = 5.000000e-01 : f64}>
// CHECK: [[dq:%\S+]], [[dk:%\S+]], [[dv:%\S+]] = "attention.backward"(%g, [[o]], [[sums]], %q, [[k]], %v) <{scale = 5.000000e-01 : f64}>
// CHECK: func.return [[o]], [[dq]], [[dk]], [[dv]]
func.func @main(%q: tensor<3x5x4xf32>, %kt: tensor<3x4x7xf32>, %v: tensor<3x7x6xf32>, %g: tensor<3x5x6xf32>) -> (tensor<3x5x6xf32>, tensor<3x5x4xf32>, tensor<3x7x4xf32>, tensor<3x7x6xf32>) {
  %s = "aten.bmm"(%q, %kt) : (tensor<3x5x4xf32>, tensor<3x4x7xf32>) -> tensor<3x5x7xf32>
  %m = "aten.mul.Scalar"(%s) <{other = 5.000000e-01 : f64}> : (tensor<3x5x7xf32>) -> tensor<3x5x7xf32>
  %p = "aten._softmax"(%m) <{dim = 2 : i64, half_to_float = false}> : (tensor<3x5x7xf32>) -> tensor<3x5x7xf32>
  %o = "aten.bmm"(%p, %v) : (tensor<3x5x7xf32>, tensor<3x7x6xf32>) -> tensor<3x5x6xf32>
  %pt = "aten.transpose.int"(%p) <{dim0 = 1 : i64, dim1 = 2 : i64}> : (tensor<3x5x7xf32>) -> tensor<3x7x5xf32>
  %dv = "aten.bmm"(%pt, %g) : (tensor<3x7x5xf32>, tensor<3x5x6xf32>) -> tensor<3x7x6xf32>
  %vt = "aten.transpose.int"(%v) <{dim0 = 1 : i64, dim1 = 2 : i64}> : (tensor<3x7x6xf32>) -> tensor<3x6x7xf32>
  %dp = "aten.bmm"(%g, %vt) : (tensor<3x5x6xf32>, tensor<3x6x7xf32>) -> tensor<3x5x7xf32>
  %ds = "aten._softmax_backward_data"(%dp, %p) <{dim = 2 : i64, input_dtype = f32}> : (tensor<3x5x7xf32>, tensor<3x5x7xf32>) -> tensor<3x5x7xf32>
  %dm = "aten.mul.Scalar"(%ds) <{other = 5.000000e-01 : f64}> : (tensor<3x5x7xf32>) -> tensor<3x5x7xf32>
  %k = "aten.transpose.int"(%kt) <{dim0 = 1 : i64, dim1 = 2 : i64}> : (tensor<3x4x7xf32>) -> tensor<3x7x4xf32>
  %dq = "aten.bmm"(%dm, %k) : (tensor<3x5x7xf32>, tensor<3x7x4xf32>) -> tensor<3x5x4xf32>
  %qt = "aten.transpose.int"(%q) <{dim0 = 1 : i64, dim1 = 2 : i64}> : (tensor<3x5x4xf32>) -> tensor<3x4x5xf32>
  %dkt = "aten.bmm"(%qt, %dm) : (tensor<3x4x5xf32>, tensor<3x5x7xf32>) -> tensor<3x4x7xf32>
  %dk = "aten.transpose.int"(%dkt) <{dim0 = 1 : i64, dim1 = 2 : i64}> : (tensor<3x4x7xf32>) -> tensor<3x7x4xf32>
  func.return %o, %dq, %dk, %dv : tensor<3x5x6xf32>, tensor<3x5x4xf32>, tensor<3x7x4xf32>, tensor<3x7x6xf32>
}
