// RUN: distir-opt %s -p 'outline-repeats{minimum=3}' | filecheck %s

// What repeats is two operations long.

// CHECK:      func.func @main(%x: tensor<4xf32>
// CHECK-NEXT: [[V0:%.*]] = "aten.relu"(%x)
// CHECK-NEXT: [[V1:%.*]] = "aten.tanh"([[V0]])
// CHECK-NEXT: [[V2:%.*]] = "aten.relu"([[V1]])
// CHECK-NEXT: [[V3:%.*]] = "aten.tanh"([[V2]])
// CHECK-NEXT: func.return [[V3]]

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "aten.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "aten.tanh"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "aten.relu"(%1) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "aten.tanh"(%2) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %3 : tensor<4xf32>
}
