// RUN: distir-opt %s -p outline-repeats | filecheck %s

// Two views go through the same layers: these are the functions, not all that is done to a view.

// CHECK:      func.func @main(
// CHECK-NEXT: [[V0:%.*]] = func.call @layer(%x, %v)
// CHECK-NEXT: [[V1:%.*]] = func.call @layer([[V0]], %w)
// CHECK-NEXT: [[V2:%.*]] = "aten.relu"([[V1]])
// CHECK-NEXT: [[V3:%.*]] = func.call @layer(%y, %v)
// CHECK-NEXT: [[V4:%.*]] = func.call @layer([[V3]], %w)
// CHECK-NEXT: [[V5:%.*]] = "aten.relu"([[V4]])
// CHECK-NEXT: func.return [[V2]], [[V5]]

func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>, %v: tensor<4xf32> {dist.role = "parameter"},
                %w: tensor<4xf32> {dist.role = "parameter"}) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "aten.mul.Tensor"(%x, %v) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = "aten.tanh"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "aten.mul.Tensor"(%1, %w) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %3 = "aten.tanh"(%2) : (tensor<4xf32>) -> tensor<4xf32>
  %4 = "aten.relu"(%3) : (tensor<4xf32>) -> tensor<4xf32>
  %5 = "aten.mul.Tensor"(%y, %v) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %6 = "aten.tanh"(%5) : (tensor<4xf32>) -> tensor<4xf32>
  %7 = "aten.mul.Tensor"(%6, %w) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %8 = "aten.tanh"(%7) : (tensor<4xf32>) -> tensor<4xf32>
  %9 = "aten.relu"(%8) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %4, %9 : tensor<4xf32>, tensor<4xf32>
}
