// RUN: DISTIR_DIAGNOSTICS

// CHECK: operand 1: expected element type i64, got i32
func.func @main(%k: tensor<i64>, %r: tensor<4xi32>) {
  %0 = random.uniform %k at %r : (tensor<i64>, tensor<4xi32>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: expected a key without dims, got [1]
func.func @main(%k: tensor<1xi64>, %r: tensor<4xi64>) {
  %0 = random.uniform %k at %r : (tensor<1xi64>, tensor<4xi64>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: expected positions of one dim, got [4, 2]
func.func @main(%k: tensor<i64>, %r: tensor<4x2xi64>) {
  %0 = random.uniform %k at %r : (tensor<i64>, tensor<4x2xi64>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: expected a result of shape [4, 8], got [8, 4]
func.func @main(%k: tensor<i64>, %r: tensor<4xi64>, %c: tensor<8xi64>) {
  %0 = random.bernoulli %k at %r, %c probability 5.000000e-01 : (tensor<i64>, tensor<4xi64>, tensor<8xi64>) -> tensor<8x4xi1>
  func.return
}

// -----

// CHECK: expected a result of truth values (i1), got f32
func.func @main(%k: tensor<i64>, %r: tensor<4xi64>) {
  %0 = random.bernoulli %k at %r probability 5.000000e-01 : (tensor<i64>, tensor<4xi64>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: expected a probability of 0 to 1, got 1.5
func.func @main(%k: tensor<i64>, %r: tensor<4xi64>) {
  %0 = random.bernoulli %k at %r probability 1.500000e+00 : (tensor<i64>, tensor<4xi64>) -> tensor<4xi1>
  func.return
}

// -----

// CHECK: expected a result of f32, got f64
func.func @main(%k: tensor<i64>, %r: tensor<4xi64>) {
  %0 = random.uniform %k at %r : (tensor<i64>, tensor<4xi64>) -> tensor<4xf64>
  func.return
}
