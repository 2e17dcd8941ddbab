// RUN: DISTIR_ROUNDTRIP

// CHECK-LABEL: func.func @main
func.func @main(%q: tensor<2x6x8xf32>, %k: tensor<2x5x8xf32>, %v: tensor<2x5x4xf32>, %m: tensor<1x6x5xi1>, %dy: tensor<2x6x4xf32>) {
  // CHECK-NEXT: %0, %1 = "attention.forward"(%q, %k, %v, %m) <{scale = 5.000000e-01 : f64}>
  %0, %1 = "attention.forward"(%q, %k, %v, %m) <{scale = 0.5 : f64}> : (tensor<2x6x8xf32>, tensor<2x5x8xf32>, tensor<2x5x4xf32>, tensor<1x6x5xi1>) -> (tensor<2x6x4xf32>, tensor<2x6xf32>)
  // CHECK-NEXT: %2, %3, %4 = "attention.backward"(%dy, %0, %1, %q, %k, %v) <{scale = 5.000000e-01 : f64, diagonal = 0 : i64}>
  %2, %3, %4 = "attention.backward"(%dy, %0, %1, %q, %k, %v) <{scale = 0.5 : f64, diagonal = 0 : i64}> : (tensor<2x6x4xf32>, tensor<2x6x4xf32>, tensor<2x6xf32>, tensor<2x6x8xf32>, tensor<2x5x8xf32>, tensor<2x5x4xf32>) -> (tensor<2x6x8xf32>, tensor<2x5x8xf32>, tensor<2x5x4xf32>)
  // CHECK-NEXT: %5, %6 = "attention.combine"(%0, %1, %dy, %1)
  %5, %6 = "attention.combine"(%0, %1, %dy, %1) : (tensor<2x6x4xf32>, tensor<2x6xf32>, tensor<2x6x4xf32>, tensor<2x6xf32>) -> (tensor<2x6x4xf32>, tensor<2x6xf32>)
  func.return
}
