// RUN: distir-opt %s -p outline-repeats | filecheck %s

// What is done to both views does not mostly consist of layers: it is one function.

// CHECK:      [[V0:%.*]] = func.call @layer(%x, %v)
// CHECK-NEXT: [[V1:%.*]] = func.call @layer(%y, %v)
// CHECK-NEXT: func.return [[V0]], [[V1]]

func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>, %v: tensor<4xf32> {dist.role = "parameter"})
    -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "aten.mul.Tensor"(%x, %v) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = "aten.tanh"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "aten.relu"(%1) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "aten.mul.Tensor"(%y, %v) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %4 = "aten.tanh"(%3) : (tensor<4xf32>) -> tensor<4xf32>
  %5 = "aten.relu"(%4) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %2, %5 : tensor<4xf32>, tensor<4xf32>
}
