// RUN: distir-opt %s -p recognise-attention | filecheck %s

// A mask that is added is the operation's, with as many dims as the scores.

// CHECK: [[m:%\S+]] = "onnx.Reshape"(%mask, {{.*}} -> tensor<2x1x1x7xf32>
// CHECK: "attention.forward"(%q, {{%\S+}}, %v, [[m]]) <{scale = 1.000000e+00 : f64}>
func.func @main(%q: tensor<2x3x5x4xf32>, %kt: tensor<2x3x4x7xf32>, %v: tensor<2x3x7x6xf32>, %mask: tensor<2x7xf32>) -> tensor<2x3x5x6xf32> {
  %dims = "onnx.Constant"() <{value = #onnx.tensor<dense<[1, 2]> : tensor<2xi64>>}> : () -> tensor<2xi64>
  %s = "onnx.MatMul"(%q, %kt) : (tensor<2x3x5x4xf32>, tensor<2x3x4x7xf32>) -> tensor<2x3x5x7xf32>
  %wide = "onnx.Unsqueeze"(%mask, %dims) : (tensor<2x7xf32>, tensor<2xi64>) -> tensor<2x1x1x7xf32>
  %m = "onnx.Add"(%s, %wide) : (tensor<2x3x5x7xf32>, tensor<2x1x1x7xf32>) -> tensor<2x3x5x7xf32>
  %p = "onnx.Softmax"(%m) <{axis = -1 : si64}> : (tensor<2x3x5x7xf32>) -> tensor<2x3x5x7xf32>
  %o = "onnx.MatMul"(%p, %v) : (tensor<2x3x5x7xf32>, tensor<2x3x7x6xf32>) -> tensor<2x3x5x6xf32>
  func.return %o : tensor<2x3x5x6xf32>
}
