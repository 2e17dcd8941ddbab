// RUN: distir-opt %s -p outline-repeats | filecheck %s

// Other constants make another function.

// CHECK:      func.func @main
// CHECK-NOT:  func.call
// CHECK:      func.return

func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %two = onnx.Constant dense<2.0> : tensor<f32>
  %three = onnx.Constant dense<3.0> : tensor<f32>
  %0 = "onnx.Relu"(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = "onnx.Mul"(%0, %two) : (tensor<8x8xf32>, tensor<f32>) -> tensor<8x8xf32>
  %2 = "onnx.Relu"(%1) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %3 = "onnx.Mul"(%2, %three) : (tensor<8x8xf32>, tensor<f32>) -> tensor<8x8xf32>
  func.return %3 : tensor<8x8xf32>
}
