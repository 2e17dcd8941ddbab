// RUN: DISTIR_DIAGNOSTICS

// Streams count: dist.move is the only way across.
func.func @main(%a: tensor<4xf32, #dist.on<0>>) {
  %c = "onnx.Relu"(%a) : (tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0, "comm">>
  func.return
}
// CHECK: expected all values on #dist.on<0>, where operand 0 is, got result 0 on #dist.on<0, "comm">
