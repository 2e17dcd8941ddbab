// RUN: DISTIR_DIAGNOSTICS

func.func @main(%a: tensor<4xf32, #dist.on<0>>, %b: tensor<4xf32, #dist.on<1>>) {
  %c = "onnx.Add"(%a, %b) : (tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1>>) -> tensor<4xf32, #dist.on<0>>
  func.return
}
// CHECK: expected all values on #dist.on<0>, where operand 0 is, got operand 1 on #dist.on<1>

// -----

func.func @main(%a: tensor<4xf32, #dist.on<0>>) {
  %c = "onnx.Relu"(%a) : (tensor<4xf32, #dist.on<0>>) -> tensor<4xf32>
  func.return
}
// CHECK: expected all values on #dist.on<0>, where operand 0 is, got result 0 not placed
