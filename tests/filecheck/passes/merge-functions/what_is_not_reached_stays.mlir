// RUN: distir-opt %s -p merge-functions | filecheck %s

// A function that the entry does not call is left alone.

// CHECK:      func.func @main(%x: tensor<4xf32>
// CHECK-NEXT: [[V0:%.*]] = func.call @f(%x)
// CHECK-NEXT: func.return [[V0]]
// CHECK:      func.func private @f(%x: tensor<4xf32>
// CHECK-NEXT: [[V0:%.*]] = "aten.relu"(%x)
// CHECK-NEXT: func.return [[V0]]
// CHECK:      func.func private @g(%x: tensor<4xf32>
// CHECK-NEXT: [[V0:%.*]] = "aten.relu"(%x)
// CHECK-NEXT: func.return [[V0]]

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
func.func private @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "aten.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
func.func private @g(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "aten.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
