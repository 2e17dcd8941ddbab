// RUN: distir-opt %s -p outline-repeats | filecheck %s

// A constant that a layer uses is in its function.

// CHECK:      func.func @main(%x: tensor<4xf32>
// CHECK-NEXT: [[V0:%.*]] = func.call @layer(%x)
// CHECK-NEXT: [[V1:%.*]] = func.call @layer([[V0]])
// CHECK-NEXT: func.return [[V1]]
// CHECK:      func.func private @layer(%x: tensor<4xf32>
// CHECK-NEXT: [[C:%.*]] = onnx.Constant dense<2.0>
// CHECK-NEXT: [[V0:%.*]] = "onnx.Mul"(%x, [[C]])
// CHECK-NEXT: [[V1:%.*]] = "onnx.Tanh"([[V0]])
// CHECK-NEXT: func.return [[V1]]

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = onnx.Constant dense<2.000000e+00> : tensor<f32>
  %0 = "onnx.Mul"(%x, %c) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = "onnx.Tanh"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "onnx.Mul"(%1, %c) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %3 = "onnx.Tanh"(%2) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %3 : tensor<4xf32>
}
