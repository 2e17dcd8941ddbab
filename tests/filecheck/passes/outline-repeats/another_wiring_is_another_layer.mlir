// RUN: distir-opt %s -p outline-repeats | filecheck %s

// The second Add takes what the first one took, which is not what its own run multiplies.

// CHECK:      func.func @main
// CHECK-NOT:  func.call
// CHECK:      func.return

func.func @main(%x: tensor<8x8xf32>, %w0: tensor<8x8xf32>, %w1: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = "onnx.MatMul"(%x, %w0) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = "onnx.Add"(%0, %x) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = "onnx.MatMul"(%1, %w1) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %3 = "onnx.Add"(%2, %x) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %3 : tensor<8x8xf32>
}
