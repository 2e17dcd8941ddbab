// RUN: distir-opt %s --split-input-file -p onnx-fold-shapes | filecheck %s

// A mask that is the same for all of the batch keeps one: the sum repeats it anyway.
func.func @main(%x: tensor<4x2x3xf32>, %low: tensor<f32>) -> tensor<4x2x3xf32> {
  %mask = onnx.Constant dense<[[[true, false, true]], [[true, false, true]], [[true, false, true]], [[true, false, true]]]> : tensor<4x1x3xi1>
  %zero = onnx.Constant dense<0.0> : tensor<f32>
  %bias = "onnx.Where"(%mask, %zero, %low) : (tensor<4x1x3xi1>, tensor<f32>, tensor<f32>) -> tensor<4x1x3xf32>
  %y = "onnx.Add"(%x, %bias) : (tensor<4x2x3xf32>, tensor<4x1x3xf32>) -> tensor<4x2x3xf32>
  func.return %y : tensor<4x2x3xf32>
}

// CHECK:      %0 = onnx.Constant dense<{{\[\[\[}}true, false, true]]]> : tensor<1x1x3xi1>
// CHECK-NEXT: %1 = "onnx.Where"(%0, %zero, %low) : (tensor<1x1x3xi1>, tensor<f32>, tensor<f32>) -> tensor<1x1x3xf32>
// CHECK-NEXT: %y = "onnx.Add"(%x, %1) : (tensor<4x2x3xf32>, tensor<1x1x3xf32>) -> tensor<4x2x3xf32>

// -----

// So do the rows of a table of positions. What differs along a dim, or alone gives the result its size, is kept.
func.func @main(%x: tensor<2x2x3xf32>, %table: tensor<5x3xf32>) -> (tensor<2x2x3xf32>, tensor<2x2x3xf32>) {
  %ids = onnx.Constant dense<[[0, 1], [0, 1]]> : tensor<2x2xi64>
  %rows = "onnx.Gather"(%table, %ids) <{axis = 0 : si64}> : (tensor<5x3xf32>, tensor<2x2xi64>) -> tensor<2x2x3xf32>
  %y = "onnx.Add"(%x, %rows) : (tensor<2x2x3xf32>, tensor<2x2x3xf32>) -> tensor<2x2x3xf32>
  %all = onnx.Constant dense<[0, 1, 2]> : tensor<3xi64>
  %row = "onnx.ReduceMax"(%x, %all) <{keepdims = 0 : si64}> : (tensor<2x2x3xf32>, tensor<3xi64>) -> tensor<f32>
  %z = "onnx.Mul"(%row, %rows) : (tensor<f32>, tensor<2x2x3xf32>) -> tensor<2x2x3xf32>
  func.return %y, %z : tensor<2x2x3xf32>, tensor<2x2x3xf32>
}

// CHECK:      "onnx.Gather"(%table, %{{.*}}) <{axis = 0 : si64}> : (tensor<5x3xf32>, tensor<1x2xi64>) -> tensor<1x2x3xf32>
// CHECK:      %z = "onnx.Mul"(%row, %rows) : (tensor<f32>, tensor<2x2x3xf32>) -> tensor<2x2x3xf32>
