// RUN: distir-opt %s -p 'overlap-communication,check-module' | filecheck %s

// A message to an earlier device has a stream of its own, so it does not wait for those to later ones.

// CHECK:      dist.move %x : tensor<4xf32, #dist.on<1>> -> tensor<4xf32, #dist.on<1, "send-previous">>
// CHECK-NEXT: [[S:%.*]] = dist.send
// CHECK:      [[R:%.*]] = dist.move [[S]] : tensor<4xf32, #dist.on<0, "receive">> -> tensor<4xf32, #dist.on<0>>
// CHECK-NEXT: "onnx.Relu"([[R]])
func.func @main(%x: tensor<4xf32, #dist.on<1>>) -> tensor<4xf32, #dist.on<0>> {
  %s = dist.send %x to 0 : tensor<4xf32, #dist.on<1>> -> tensor<4xf32, #dist.on<0>>
  %y = "onnx.Relu"(%s) : (tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0>>
  func.return %y : tensor<4xf32, #dist.on<0>>
}
