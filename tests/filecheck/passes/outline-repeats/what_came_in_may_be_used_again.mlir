// RUN: distir-opt %s -p outline-repeats | filecheck %s

// What comes into a layer may be used by several of its operations (a residual connection).

// CHECK:      [[Y:%.*]] = func.call @layer(%x, %w0)
// CHECK-NEXT: func.call @layer([[Y]], %w1)
// CHECK:      func.func private @layer
// CHECK-NEXT: [[P:%.*]] = "onnx.MatMul"(%x, %w0)
// CHECK-NEXT: "onnx.Add"([[P]], %x)

func.func @main(%x: tensor<8x8xf32>, %w0: tensor<8x8xf32>, %w1: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = "onnx.MatMul"(%x, %w0) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = "onnx.Add"(%0, %x) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = "onnx.MatMul"(%1, %w1) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %3 = "onnx.Add"(%2, %1) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %3 : tensor<8x8xf32>
}
