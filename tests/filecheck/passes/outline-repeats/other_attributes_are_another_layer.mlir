// RUN: distir-opt %s -p outline-repeats | filecheck %s

// Operations with other attributes are not the same.

// CHECK:      func.func @main(%x: tensor<4xf32>
// CHECK-NEXT: [[V0:%.*]] = "onnx.LeakyRelu"(%x) <{alpha = 1.000000e-01 : f32}>
// CHECK-NEXT: [[V1:%.*]] = "onnx.Tanh"([[V0]])
// CHECK-NEXT: [[V2:%.*]] = "onnx.LeakyRelu"([[V1]]) <{alpha = 2.000000e-01 : f32}>
// CHECK-NEXT: [[V3:%.*]] = "onnx.Tanh"([[V2]])
// CHECK-NEXT: func.return [[V3]]

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "onnx.LeakyRelu"(%x) <{alpha = 1.000000e-01 : f32}> : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "onnx.Tanh"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "onnx.LeakyRelu"(%1) <{alpha = 2.000000e-01 : f32}> : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "onnx.Tanh"(%2) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %3 : tensor<4xf32>
}
