// RUN: distir-opt %s -p onnx-fold-shapes | filecheck %s

// A mask that is the same for all of the batch keeps one: the sum repeats it anyway.
func.func @main(%x: tensor<4x2x3xf32>, %low: tensor<f32>) -> tensor<4x2x3xf32> {
  %mask = onnx.Constant dense<[[[true, false, true]], [[true, false, true]], [[true, false, true]], [[true, false, true]]]> : tensor<4x1x3xi1>
  %zero = onnx.Constant dense<0.0> : tensor<f32>
  %bias = "onnx.Where"(%mask, %zero, %low) : (tensor<4x1x3xi1>, tensor<f32>, tensor<f32>) -> tensor<4x1x3xf32>
  %y = "onnx.Add"(%x, %bias) : (tensor<4x2x3xf32>, tensor<4x1x3xf32>) -> tensor<4x2x3xf32>
  func.return %y : tensor<4x2x3xf32>
}

// CHECK:      [[V0:%.*]] = onnx.Constant dense<{{\[\[\[}}true, false, true]]]> : tensor<1x1x3xi1>
// CHECK-NEXT: [[V1:%.*]] = "onnx.Where"([[V0]], %zero, %low) : (tensor<1x1x3xi1>, tensor<f32>, tensor<f32>) -> tensor<1x1x3xf32>
// CHECK-NEXT: %y = "onnx.Add"(%x, [[V1]]) : (tensor<4x2x3xf32>, tensor<1x1x3xf32>) -> tensor<4x2x3xf32>
