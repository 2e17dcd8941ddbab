// RUN: distir-opt %s -p recognise-attention | filecheck %s

// A softmax over the queries is no attention.

// CHECK-NOT: attention.forward
// CHECK: onnx.Softmax
func.func @main(%q: tensor<3x5x4xf32>, %kt: tensor<3x4x7xf32>, %v: tensor<3x7x6xf32>) -> tensor<3x5x6xf32> {
  %s = "onnx.MatMul"(%q, %kt) : (tensor<3x5x4xf32>, tensor<3x4x7xf32>) -> tensor<3x5x7xf32>
  %p = "onnx.Softmax"(%s) <{axis = 1 : si64}> : (tensor<3x5x7xf32>) -> tensor<3x5x7xf32>
  %o = "onnx.MatMul"(%p, %v) : (tensor<3x5x7xf32>, tensor<3x7x6xf32>) -> tensor<3x5x6xf32>
  func.return %o : tensor<3x5x6xf32>
}
