// RUN: distir-opt %s -p merge-functions | filecheck %s

// Functions that compute something else stay.

// CHECK:      func.func @main(%x: tensor<4xf32>
// CHECK-NEXT: [[V0:%.*]] = func.call @f(%x)
// CHECK-NEXT: [[V1:%.*]] = func.call @g([[V0]])
// CHECK-NEXT: func.return [[V1]]
// CHECK:      func.func private @f(%x: tensor<4xf32>
// CHECK-NEXT: [[V0:%.*]] = "aten.relu"(%x)
// CHECK-NEXT: func.return [[V0]]
// CHECK:      func.func private @g(%x: tensor<4xf32>
// CHECK-NEXT: [[V0:%.*]] = "aten.tanh"(%x)
// CHECK-NEXT: func.return [[V0]]

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = func.call @g(%0) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %1 : tensor<4xf32>
}
func.func private @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "aten.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
func.func private @g(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "aten.tanh"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
