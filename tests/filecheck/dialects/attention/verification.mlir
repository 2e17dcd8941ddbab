// RUN: DISTIR_DIAGNOSTICS

// CHECK: expected keys of shape [2, 'keys', 8], got [3, 5, 8]
func.func @main(%q: tensor<2x6x8xf32>, %k: tensor<3x5x8xf32>, %v: tensor<3x5x4xf32>) {
  %0, %1 = "attention.forward"(%q, %k, %v) <{scale = 0.5 : f64}> : (tensor<2x6x8xf32>, tensor<3x5x8xf32>, tensor<3x5x4xf32>) -> (tensor<2x6x4xf32>, tensor<2x6xf32>)
  func.return
}

// -----

// CHECK: expected a mask that broadcasts to [2, 6, 5], got [1, 6, 4]
func.func @main(%q: tensor<2x6x8xf32>, %k: tensor<2x5x8xf32>, %v: tensor<2x5x4xf32>, %m: tensor<1x6x4xi1>) {
  %0, %1 = "attention.forward"(%q, %k, %v, %m) <{scale = 0.5 : f64}> : (tensor<2x6x8xf32>, tensor<2x5x8xf32>, tensor<2x5x4xf32>, tensor<1x6x4xi1>) -> (tensor<2x6x4xf32>, tensor<2x6xf32>)
  func.return
}

// -----

// CHECK: expected logarithms of sums of shape [2, 6], got [2, 5]
func.func @main(%q: tensor<2x6x8xf32>, %k: tensor<2x5x8xf32>, %v: tensor<2x5x4xf32>) {
  %0, %1 = "attention.forward"(%q, %k, %v) <{scale = 0.5 : f64}> : (tensor<2x6x8xf32>, tensor<2x5x8xf32>, tensor<2x5x4xf32>) -> (tensor<2x6x4xf32>, tensor<2x5xf32>)
  func.return
}

// -----

// CHECK: expected logarithms of sums of shape [2, 6], got [6]
func.func @main(%o: tensor<2x6x4xf32>, %s: tensor<2x6xf32>, %t: tensor<6xf32>) {
  %0, %1 = "attention.combine"(%o, %s, %o, %t) : (tensor<2x6x4xf32>, tensor<2x6xf32>, tensor<2x6x4xf32>, tensor<6xf32>) -> (tensor<2x6x4xf32>, tensor<2x6xf32>)
  func.return
}

// -----

// CHECK: expected a mask at most, and with dropout a key and 2 vectors of positions, got 2 operands after the values
func.func @main(%q: tensor<6x8xf32>, %k: tensor<5x8xf32>, %v: tensor<5x4xf32>, %key: tensor<i64>, %r: tensor<6xi64>) {
  %0, %1 = "attention.forward"(%q, %k, %v, %key, %r) <{scale = 0.5 : f64, dropout = 0.1 : f64}> : (tensor<6x8xf32>, tensor<5x8xf32>, tensor<5x4xf32>, tensor<i64>, tensor<6xi64>) -> (tensor<6x4xf32>, tensor<6xf32>)
  func.return
}

// -----

// CHECK: expected a key of i64, and positions of the dims of [6, 5], got tensor<6xi64>
func.func @main(%q: tensor<6x8xf32>, %k: tensor<5x8xf32>, %v: tensor<5x4xf32>, %key: tensor<i64>, %r: tensor<6xi64>) {
  %0, %1 = "attention.forward"(%q, %k, %v, %key, %r, %r) <{scale = 0.5 : f64, dropout = 0.1 : f64}> : (tensor<6x8xf32>, tensor<5x8xf32>, tensor<5x4xf32>, tensor<i64>, tensor<6xi64>, tensor<6xi64>) -> (tensor<6x4xf32>, tensor<6xf32>)
  func.return
}

// -----

// CHECK: expected a dropout of more than 0 and less than 1, got 1.0
func.func @main(%q: tensor<6x8xf32>, %k: tensor<5x8xf32>, %v: tensor<5x4xf32>, %key: tensor<i64>, %r: tensor<6xi64>, %c: tensor<5xi64>) {
  %0, %1 = "attention.forward"(%q, %k, %v, %key, %r, %c) <{scale = 0.5 : f64, dropout = 1.0 : f64}> : (tensor<6x8xf32>, tensor<5x8xf32>, tensor<5x4xf32>, tensor<i64>, tensor<6xi64>, tensor<5xi64>) -> (tensor<6x4xf32>, tensor<6xf32>)
  func.return
}
