// RUN: distir-opt %s -p recognise-attention | filecheck %s

// Keys come in transposed; the scale is that of the scores.

// CHECK: [[k:%\S+]] = "onnx.Transpose"(%kt) <{perm = [0 : i64, 1 : i64, 3 : i64, 2 : i64]}>
// CHECK: [[o:%\S+]], {{%\S+}} = "attention.forward"(%q, [[k]], %v) <{scale = 5.000000e-01 : f64}>
// CHECK-NOT: onnx.Softmax
// CHECK: func.return [[o]]
func.func @main(%q: tensor<2x3x5x4xf32>, %kt: tensor<2x3x4x7xf32>, %v: tensor<2x3x7x6xf32>) -> tensor<2x3x5x6xf32> {
  %half = "onnx.Constant"() <{value = #onnx.tensor<dense<0.5> : tensor<f32>>}> : () -> tensor<f32>
  %s = "onnx.MatMul"(%q, %kt) : (tensor<2x3x5x4xf32>, tensor<2x3x4x7xf32>) -> tensor<2x3x5x7xf32>
  %m = "onnx.Mul"(%s, %half) : (tensor<2x3x5x7xf32>, tensor<f32>) -> tensor<2x3x5x7xf32>
  %p = "onnx.Softmax"(%m) <{axis = -1 : si64}> : (tensor<2x3x5x7xf32>) -> tensor<2x3x5x7xf32>
  %o = "onnx.MatMul"(%p, %v) : (tensor<2x3x5x7xf32>, tensor<2x3x7x6xf32>) -> tensor<2x3x5x6xf32>
  func.return %o : tensor<2x3x5x6xf32>
}
