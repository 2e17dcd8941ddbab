// RUN: distir-opt %s --verify-diagnostics -p onnx-fold-shapes | filecheck %s
func.func @main(%x: tensor<2x3x4xf32>, %i: tensor<2x1xi64>) -> tensor<*xf32> {
  %y = "onnx.GatherND"(%x, %i) <{batch_dims = -6 : si64}> : (tensor<2x3x4xf32>, tensor<2x1xi64>) -> tensor<*xf32>
  func.return %y : tensor<*xf32>
}
// CHECK: onnx.GatherND does not accept batch_dims = -6: onnx's inference of shapes crashes
