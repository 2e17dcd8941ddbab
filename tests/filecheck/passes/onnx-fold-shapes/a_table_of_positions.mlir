// RUN: distir-opt %s -p onnx-fold-shapes | filecheck %s

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
