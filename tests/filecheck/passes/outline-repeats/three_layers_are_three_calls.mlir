// RUN: distir-opt %s -p outline-repeats | filecheck %s

// Each repetition is a call of the one function.

// CHECK:      func.func @main(%x: tensor<4xf32>
// CHECK-NEXT: [[V0:%.*]] = func.call @layer(%x)
// CHECK-NEXT: [[V1:%.*]] = func.call @layer([[V0]])
// CHECK-NEXT: [[V2:%.*]] = func.call @layer([[V1]])
// CHECK-NEXT: func.return [[V2]]
// CHECK:      func.func private @layer(%x: tensor<4xf32>
// CHECK-NEXT: [[V0:%.*]] = "aten.relu"(%x)
// CHECK-NEXT: [[V1:%.*]] = "aten.tanh"([[V0]])
// CHECK-NEXT: func.return [[V1]]

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "aten.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "aten.tanh"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "aten.relu"(%1) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "aten.tanh"(%2) : (tensor<4xf32>) -> tensor<4xf32>
  %4 = "aten.relu"(%3) : (tensor<4xf32>) -> tensor<4xf32>
  %5 = "aten.tanh"(%4) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %5 : tensor<4xf32>
}
