// RUN: DISTIR_DIAGNOSTICS

// CHECK: value 1: expected element type f32, got f64
func.func @main(%x: tensor<4xf32>, %dy: tensor<4xf64>) {
  %0 = grad.relu_grad %x, %dy : (tensor<4xf32>, tensor<4xf64>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: value 1: expected placement #dist.on<0>, got #dist.on<1>
func.func @main(%x: tensor<4xf32, #dist.on<0>>, %dy: tensor<4xf32, #dist.on<1>>) {
  %0 = grad.relu_grad %x, %dy : (tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1>>) -> tensor<4xf32, #dist.on<0>>
  func.return
}

// -----

// CHECK: expected x of shape (..., k) and w of shape (k, n), got [4, 8] and [7, 3]
func.func @main(%x: tensor<4x8xf32>, %w: tensor<7x3xf32>, %dy: tensor<4x3xf32>) {
  %dx, %dw = grad.matmul_grad %x, %w, %dy : (tensor<4x8xf32>, tensor<7x3xf32>, tensor<4x3xf32>) -> (tensor<4x8xf32>, tensor<7x3xf32>)
  func.return
}

// -----

// CHECK: expected dy of shape [4, 3], got [4, 2]
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x3xf32>, %dy: tensor<4x2xf32>) {
  %dx, %dw = grad.matmul_grad %x, %w, %dy : (tensor<4x8xf32>, tensor<8x3xf32>, tensor<4x2xf32>) -> (tensor<4x8xf32>, tensor<8x3xf32>)
  func.return
}

// -----

// CHECK: expected dw of shape [8, 3], got [3, 8]
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x3xf32>, %dy: tensor<4x3xf32>) {
  %dx, %dw = grad.matmul_grad %x, %w, %dy : (tensor<4x8xf32>, tensor<8x3xf32>, tensor<4x3xf32>) -> (tensor<4x8xf32>, tensor<3x8xf32>)
  func.return
}

// -----

// CHECK: expected dx of shape [4], got [5]
func.func @main(%x: tensor<4xf32>) {
  %0 = grad.relu_grad %x, %x : (tensor<4xf32>, tensor<4xf32>) -> tensor<5xf32>
  func.return
}

// -----

// CHECK: expected label of shape [4], got [5]
func.func @main(%x: tensor<4xf32>, %y: tensor<5xf32>, %n: tensor<f32>) {
  %0 = grad.loss %x, %y, %n : (tensor<4xf32>, tensor<5xf32>, tensor<f32>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: expected count of shape [], got [1]
func.func @main(%x: tensor<4xf32>, %n: tensor<1xf32>) {
  %0 = grad.loss_grad %x, %x, %n : (tensor<4xf32>, tensor<4xf32>, tensor<1xf32>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: expected gradient of shape [4], got [5]
func.func @main(%w: tensor<4xf32>, %g: tensor<5xf32>) {
  %0 = grad.sgd %w, %g learning_rate 1.000000e-01 : (tensor<4xf32>, tensor<5xf32>) -> tensor<4xf32>
  func.return
}
