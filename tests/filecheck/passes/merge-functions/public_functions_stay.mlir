// RUN: distir-opt %s -p merge-functions | filecheck %s

// A public function stays, beside an equal one; what the entry does not reach calls the function that is left.

// CHECK: func.func @main
// CHECK: func.func @seen
// CHECK: func.func private @first
// CHECK-NOT: @second
// CHECK: func.func @unreached
// CHECK-NEXT: func.call @first

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @seen(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = func.call @first(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = func.call @second(%1) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %2 : tensor<4xf32>
}
func.func @seen(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "aten.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
func.func private @first(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "aten.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
func.func private @second(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "aten.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
func.func @unreached(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @second(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
