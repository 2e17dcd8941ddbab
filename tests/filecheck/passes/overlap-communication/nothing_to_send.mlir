// RUN: distir-opt %s -p 'overlap-communication,check-module' | filecheck %s

// A program that does not communicate stays as it is.

// CHECK-NOT: dist.move
// CHECK:     [[Y:%.*]] = "onnx.Relu"(%x)
// CHECK-NEXT: func.return [[Y]]
func.func @main(%x: tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0>> {
  %y = "onnx.Relu"(%x) : (tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0>>
  func.return %y : tensor<4xf32, #dist.on<0>>
}
