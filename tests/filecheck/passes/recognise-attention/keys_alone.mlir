// RUN: distir-opt %s -p recognise-attention | filecheck %s

// Values differ from head to head, so keys stay repeated, and nothing is said of the module.

// CHECK-NOT: dist.recognised
// CHECK: "attention.forward"({{.*}}) <{{{.*}}}> : (tensor<6x5x4xf32>, tensor<6x7x4xf32>, tensor<6x7x4xf32>)
func.func @main(%q: tensor<6x5x4xf32>, %k: tensor<3x7x4xf32>, %v: tensor<6x7x4xf32>) -> tensor<6x5x4xf32> {
  %ku = "aten.unsqueeze"(%k) <{dim = 1 : i64}> : (tensor<3x7x4xf32>) -> tensor<3x1x7x4xf32>
  %ke = "aten.expand"(%ku) <{size = array<i64: 3, 2, 7, 4>}> : (tensor<3x1x7x4xf32>) -> tensor<3x2x7x4xf32>
  %kr = "aten.reshape"(%ke) <{shape = array<i64: 6, 7, 4>}> : (tensor<3x2x7x4xf32>) -> tensor<6x7x4xf32>
  %o, %s = "attention.forward"(%q, %kr, %v) <{scale = 5.000000e-01 : f64}> : (tensor<6x5x4xf32>, tensor<6x7x4xf32>, tensor<6x7x4xf32>) -> (tensor<6x5x4xf32>, tensor<6x5xf32>)
  func.return %o : tensor<6x5x4xf32>
}
