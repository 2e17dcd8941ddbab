// RUN: distir-opt %s --split-input-file -p outline-repeats | filecheck %s

// A repeated run becomes one function, called with what differs; the constant it uses is stated inside.
func.func @main(%x: tensor<4x8xf32>, %w0: tensor<8x8xf32>, %w1: tensor<8x8xf32>, %w2: tensor<8x8xf32>) -> tensor<4x8xf32> {
  %two = onnx.Constant dense<2.0> : tensor<f32>
  %0 = "onnx.MatMul"(%x, %w0) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %1 = "onnx.Mul"(%0, %two) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %2 = "onnx.MatMul"(%1, %w1) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %3 = "onnx.Mul"(%2, %two) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %4 = "onnx.MatMul"(%3, %w2) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %5 = "onnx.Mul"(%4, %two) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %6 = "onnx.Neg"(%5) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %6 : tensor<4x8xf32>
}

// CHECK:      func.func @main
// CHECK-NEXT:   %0 = func.call @layer(%x, %w0)
// CHECK-NEXT:   %1 = func.call @layer(%0, %w1)
// CHECK-NEXT:   %2 = func.call @layer(%1, %w2)
// CHECK-NEXT:   %3 = "onnx.Neg"(%2)
// CHECK-NEXT:   func.return %3
// CHECK:      func.func private @layer(%x: tensor<4x8xf32>, %w0: tensor<8x8xf32>) -> tensor<4x8xf32> {
// CHECK-NEXT:   %0 = "onnx.MatMul"(%x, %w0)
// CHECK-NEXT:   %two = onnx.Constant dense<2.0> : tensor<f32>
// CHECK-NEXT:   %1 = "onnx.Mul"(%0, %two)
// CHECK-NEXT:   func.return %1
// CHECK-NEXT: }
// CHECK-NEXT: }

// -----

// The same operations, wired alike (the second operand of Add is what came in).
func.func @main(%x: tensor<8x8xf32>, %w0: tensor<8x8xf32>, %w1: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = "onnx.MatMul"(%x, %w0) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = "onnx.Add"(%0, %x) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = "onnx.MatMul"(%1, %w1) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %3 = "onnx.Add"(%2, %1) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %3 : tensor<8x8xf32>
}

// CHECK:      func.call @layer(%x, %w0)
// CHECK-NEXT: func.call @layer(%0, %w1)

// -----

// Wired otherwise: the second Add takes %x again, which its run does not multiply.
func.func @main(%x: tensor<8x8xf32>, %w0: tensor<8x8xf32>, %w1: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = "onnx.MatMul"(%x, %w0) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = "onnx.Add"(%0, %x) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = "onnx.MatMul"(%1, %w1) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %3 = "onnx.Add"(%2, %x) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %3 : tensor<8x8xf32>
}

// CHECK:      func.func @main
// CHECK-NOT:  func.call
// CHECK:      func.return

// -----

// Other constants make another function.
func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %two = onnx.Constant dense<2.0> : tensor<f32>
  %three = onnx.Constant dense<3.0> : tensor<f32>
  %0 = "onnx.Relu"(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = "onnx.Mul"(%0, %two) : (tensor<8x8xf32>, tensor<f32>) -> tensor<8x8xf32>
  %2 = "onnx.Relu"(%1) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %3 = "onnx.Mul"(%2, %three) : (tensor<8x8xf32>, tensor<f32>) -> tensor<8x8xf32>
  func.return %3 : tensor<8x8xf32>
}

// CHECK:      func.func @main
// CHECK-NOT:  func.call
// CHECK:      func.return

// -----

// One operation again and again is no layer.
func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = "onnx.Relu"(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = "onnx.Relu"(%0) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = "onnx.Relu"(%1) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %3 = "onnx.Relu"(%2) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %3 : tensor<8x8xf32>
}

// CHECK:      func.func @main
// CHECK-NOT:  func.call
// CHECK:      func.return

// -----

// What one repetition gives to the outside, all give; the name of a node is no difference.
func.func @main(%x: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %0 = "onnx.Relu"(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = "onnx.Neg"(%0) {onnx_node_name = "first"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = "onnx.Relu"(%1) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %3 = "onnx.Neg"(%2) {onnx_node_name = "second"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %0, %3 : tensor<8x8xf32>, tensor<8x8xf32>
}

// CHECK:      %0, %1 = func.call @layer(%x)
// CHECK-NEXT: %2, %3 = func.call @layer(%1)
// CHECK-NEXT: func.return %0, %3
