// RUN: distir-opt %s -p recognise-attention | filecheck %s

// Keys that attention operations take repeated for two heads of queries are those of their own head, and their gradient is what was summed over the two.

// CHECK: "attention.forward"({{.*}}) <{scale = 5.000000e-01 : f64}> : (tensor<3x2x5x4xf32>, tensor<3x7x4xf32>, tensor<3x7x4xf32>) ->
// CHECK: %{{.*}}, [[dk:%\S+]], [[dv:%\S+]] = "attention.backward"({{.*}}) <{scale = 5.000000e-01 : f64}> : ({{.*}}, tensor<3x7x4xf32>, tensor<3x7x4xf32>) ->
// CHECK-NOT: aten.expand
// CHECK-NOT: aten.sum
// CHECK: func.return {{.*}}, [[dk]], [[dv]]
func.func @main(%q: tensor<6x5x4xf32>, %k: tensor<3x7x4xf32>, %v: tensor<3x7x4xf32>, %g: tensor<6x5x4xf32>) -> (tensor<6x5x4xf32>, tensor<3x7x4xf32>, tensor<3x7x4xf32>) {
  %ku = "aten.unsqueeze"(%k) <{dim = 1 : i64}> : (tensor<3x7x4xf32>) -> tensor<3x1x7x4xf32>
  %ke = "aten.expand"(%ku) <{size = array<i64: 3, 2, 7, 4>}> : (tensor<3x1x7x4xf32>) -> tensor<3x2x7x4xf32>
  %kr = "aten.reshape"(%ke) <{shape = array<i64: 6, 7, 4>}> : (tensor<3x2x7x4xf32>) -> tensor<6x7x4xf32>
  %vu = "aten.unsqueeze"(%v) <{dim = 1 : i64}> : (tensor<3x7x4xf32>) -> tensor<3x1x7x4xf32>
  %ve = "aten.expand"(%vu) <{size = array<i64: 3, 2, 7, 4>}> : (tensor<3x1x7x4xf32>) -> tensor<3x2x7x4xf32>
  %vr = "aten.reshape"(%ve) <{shape = array<i64: 6, 7, 4>}> : (tensor<3x2x7x4xf32>) -> tensor<6x7x4xf32>
  %o, %s = "attention.forward"(%q, %kr, %vr) <{scale = 5.000000e-01 : f64}> : (tensor<6x5x4xf32>, tensor<6x7x4xf32>, tensor<6x7x4xf32>) -> (tensor<6x5x4xf32>, tensor<6x5xf32>)
  %dq, %dkr, %dvr = "attention.backward"(%g, %o, %s, %q, %kr, %vr) <{scale = 5.000000e-01 : f64}> : (tensor<6x5x4xf32>, tensor<6x5x4xf32>, tensor<6x5xf32>, tensor<6x5x4xf32>, tensor<6x7x4xf32>, tensor<6x7x4xf32>) -> (tensor<6x5x4xf32>, tensor<6x7x4xf32>, tensor<6x7x4xf32>)
  %dks = "aten.reshape"(%dkr) <{shape = array<i64: 3, 2, 7, 4>}> : (tensor<6x7x4xf32>) -> tensor<3x2x7x4xf32>
  %dk = "aten.sum.dim_IntList"(%dks) <{dim = array<i64: 1>}> : (tensor<3x2x7x4xf32>) -> tensor<3x7x4xf32>
  %dvs = "aten.reshape"(%dvr) <{shape = array<i64: 3, 2, 7, 4>}> : (tensor<6x7x4xf32>) -> tensor<3x2x7x4xf32>
  %dv = "aten.sum.dim_IntList"(%dvs) <{dim = array<i64: 1>}> : (tensor<3x2x7x4xf32>) -> tensor<3x7x4xf32>
  func.return %o, %dk, %dv : tensor<6x5x4xf32>, tensor<3x7x4xf32>, tensor<3x7x4xf32>
}
