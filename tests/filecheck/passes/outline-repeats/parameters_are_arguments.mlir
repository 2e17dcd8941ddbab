// RUN: distir-opt %s -p outline-repeats | filecheck %s

// What differs from layer to layer is handed to it.

// CHECK:      func.func @main(%x: tensor<4xf32>, %v: tensor<4xf32>, %w: tensor<4xf32>
// CHECK-NEXT: [[V0:%.*]] = func.call @layer(%x, %v)
// CHECK-NEXT: [[V1:%.*]] = func.call @layer([[V0]], %w)
// CHECK-NEXT: func.return [[V1]]
// CHECK:      func.func private @layer(%x: tensor<4xf32>, %v: tensor<4xf32>
// CHECK-NEXT: [[V0:%.*]] = "aten.mul.Tensor"(%x, %v)
// CHECK-NEXT: [[V1:%.*]] = "aten.tanh"([[V0]])
// CHECK-NEXT: func.return [[V1]]

func.func @main(%x: tensor<4xf32>, %v: tensor<4xf32>, %w: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "aten.mul.Tensor"(%x, %v) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = "aten.tanh"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "aten.mul.Tensor"(%1, %w) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %3 = "aten.tanh"(%2) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %3 : tensor<4xf32>
}
