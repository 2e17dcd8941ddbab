// RUN: DISTIR_ROUNDTRIP

// CHECK-LABEL: func.func @main
func.func @main(%k: tensor<i64, #dist.on<0>>, %r: tensor<4xi64, #dist.on<0>>, %c: tensor<8xi64, #dist.on<0>>) {
  // CHECK-NEXT: %0 = random.bernoulli %k at %r, %c probability 7.500000e-01 : (tensor<i64, #dist.on<0>>, tensor<4xi64, #dist.on<0>>, tensor<8xi64, #dist.on<0>>) -> tensor<4x8xi1, #dist.on<0>>
  %0 = random.bernoulli %k at %r, %c probability 7.500000e-01 : (tensor<i64, #dist.on<0>>, tensor<4xi64, #dist.on<0>>, tensor<8xi64, #dist.on<0>>) -> tensor<4x8xi1, #dist.on<0>>
  // CHECK-NEXT: %1 = random.uniform %k at %r : (tensor<i64, #dist.on<0>>, tensor<4xi64, #dist.on<0>>) -> tensor<4xf32, #dist.on<0>>
  %1 = random.uniform %k at %r : (tensor<i64, #dist.on<0>>, tensor<4xi64, #dist.on<0>>) -> tensor<4xf32, #dist.on<0>>
  func.return
}
