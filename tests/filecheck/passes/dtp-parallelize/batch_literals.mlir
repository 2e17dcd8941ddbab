// RUN: distir-opt %s -p 'dtp-parallelize{dp=2}' | filecheck %s

// Each replica takes its rows of a literal, and computes half of what follows from it.
// CHECK: dist.slice %rows_1 [2:4, 0:3]
// CHECK: onnx.Div{{.*}}tensor<2x3xf32
// CHECK: onnx.MatMul{{.*}}tensor<2x2xf32
func.func @main(%x: tensor<4x2xf32> {dist.name = "x", dist.role = "input"}, %scale: tensor<f32> {dist.name = "scale", dist.role = "parameter"}) -> (tensor<2x3xf32> {dist.name = "y", dist.role = "output"}) {
  %rows = onnx.Constant dense<[[0.0, 1.0, 2.0], [0.0, 1.0, 2.0], [0.0, 1.0, 2.0], [0.0, 1.0, 2.0]]> : tensor<4x3xf32>
  %scaled = "onnx.Div"(%rows, %scale) : (tensor<4x3xf32>, tensor<f32>) -> tensor<4x3xf32>
  %turned = "onnx.Transpose"(%x) <{perm = [1 : si64, 0 : si64]}> : (tensor<4x2xf32>) -> tensor<2x4xf32>
  %y = "onnx.MatMul"(%turned, %scaled) : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
  func.return %y : tensor<2x3xf32>
}
