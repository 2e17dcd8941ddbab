// RUN: distir-opt %s -p merge-functions | filecheck %s

// Equal bodies are one function, and then so are their callers; what the model calls an operation does not count.

// CHECK: func.func @main
// CHECK-NEXT: [[X:%.*]] = func.call @outer_0(%x)
// CHECK-NEXT: [[Y:%.*]] = func.call @outer_0([[X]])
// CHECK-NEXT: func.return [[Y]]
// CHECK: func.func private @outer_0
// CHECK-NEXT: func.call @inner_0
// CHECK: func.func private @inner_0
// CHECK-NEXT: "aten.relu"
// CHECK-NOT: @inner_1
// CHECK-NOT: @outer_1

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @outer_0(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = func.call @outer_1(%0) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %1 : tensor<4xf32>
}
func.func private @outer_0(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @inner_0(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
func.func private @outer_1(%y: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @inner_1(%y) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
func.func private @inner_0(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "aten.relu"(%x) {dist.module = "blocks.0"} : (tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
func.func private @inner_1(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "aten.relu"(%x) {dist.module = "blocks.1"} : (tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
