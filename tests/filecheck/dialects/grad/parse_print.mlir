// RUN: DISTIR_ROUNDTRIP

// CHECK-LABEL: func.func @step
func.func @step(%x: tensor<2x4x8xf64, #dist.on<0>>, %w: tensor<8x3xf64, #dist.on<0>>, %dy: tensor<2x4x3xf64, #dist.on<0>>,
                %n: tensor<f64, #dist.on<0>>) {
  // CHECK-NEXT: %dx, %dw = grad.matmul_grad %x, %w, %dy : (tensor<2x4x8xf64, #dist.on<0>>, tensor<8x3xf64, #dist.on<0>>, tensor<2x4x3xf64, #dist.on<0>>) -> (tensor<2x4x8xf64, #dist.on<0>>, tensor<8x3xf64, #dist.on<0>>)
  %dx, %dw = grad.matmul_grad %x, %w, %dy : (tensor<2x4x8xf64, #dist.on<0>>, tensor<8x3xf64, #dist.on<0>>, tensor<2x4x3xf64, #dist.on<0>>) -> (tensor<2x4x8xf64, #dist.on<0>>, tensor<8x3xf64, #dist.on<0>>)
  // CHECK-NEXT: %0 = grad.relu_grad %x, %dx : (tensor<2x4x8xf64, #dist.on<0>>, tensor<2x4x8xf64, #dist.on<0>>) -> tensor<2x4x8xf64, #dist.on<0>>
  %0 = grad.relu_grad %x, %dx : (tensor<2x4x8xf64, #dist.on<0>>, tensor<2x4x8xf64, #dist.on<0>>) -> tensor<2x4x8xf64, #dist.on<0>>
  // CHECK-NEXT: %1 = grad.loss %x, %dx, %n : (tensor<2x4x8xf64, #dist.on<0>>, tensor<2x4x8xf64, #dist.on<0>>, tensor<f64, #dist.on<0>>) -> tensor<2x4x8xf64, #dist.on<0>>
  %1 = grad.loss %x, %dx, %n : (tensor<2x4x8xf64, #dist.on<0>>, tensor<2x4x8xf64, #dist.on<0>>, tensor<f64, #dist.on<0>>) -> tensor<2x4x8xf64, #dist.on<0>>
  // CHECK-NEXT: %2 = grad.loss_grad %x, %dx, %n : (tensor<2x4x8xf64, #dist.on<0>>, tensor<2x4x8xf64, #dist.on<0>>, tensor<f64, #dist.on<0>>) -> tensor<2x4x8xf64, #dist.on<0>>
  %2 = grad.loss_grad %x, %dx, %n : (tensor<2x4x8xf64, #dist.on<0>>, tensor<2x4x8xf64, #dist.on<0>>, tensor<f64, #dist.on<0>>) -> tensor<2x4x8xf64, #dist.on<0>>
  // CHECK-NEXT: %3 = grad.sgd %w, %dw learning_rate 1.000000e-01 : (tensor<8x3xf64, #dist.on<0>>, tensor<8x3xf64, #dist.on<0>>) -> tensor<8x3xf64, #dist.on<0>>
  %3 = grad.sgd %w, %dw learning_rate 1.000000e-01 : (tensor<8x3xf64, #dist.on<0>>, tensor<8x3xf64, #dist.on<0>>) -> tensor<8x3xf64, #dist.on<0>>
  func.return
}
