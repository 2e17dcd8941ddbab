// RUN: distir-opt %s -p outline-repeats | filecheck %s

// One operation again and again is no layer.

// CHECK:      func.func @main
// CHECK-NOT:  func.call
// CHECK:      func.return

func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = "onnx.Relu"(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = "onnx.Relu"(%0) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = "onnx.Relu"(%1) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %3 = "onnx.Relu"(%2) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %3 : tensor<8x8xf32>
}
