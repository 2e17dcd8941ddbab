// RUN: DISTIR_DIAGNOSTICS

// Values on no device (constants) may be used on any.
func.func @constants(%a: tensor<4xf32, #dist.on<3>>) {
  %z = dist.zeros : tensor<4xf32>
  %c = "onnx.Add"(%a, %z) : (tensor<4xf32, #dist.on<3>>, tensor<4xf32>) -> tensor<4xf32, #dist.on<3>>
  func.return
}
// CHECK: func.func @constants
