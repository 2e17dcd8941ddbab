// RUN: distir-opt %s -p 'overlap-communication,check-module' | filecheck %s

// While the first message is not waited for, the second arrives on another stream; the third takes the first's.

// CHECK:      [[A:%.*]] = dist.send %{{.*}} : tensor<4xf32, #dist.on<0, "send-next">> -> tensor<4xf32, #dist.on<1, "receive">>
// CHECK:      [[B:%.*]] = dist.send %{{.*}} : tensor<4xf32, #dist.on<0, "send-next">> -> tensor<4xf32, #dist.on<1, "receive-1">>
// CHECK-NEXT: [[X:%.*]] = dist.move [[A]] : tensor<4xf32, #dist.on<1, "receive">>
// CHECK-NEXT: "onnx.Relu"([[X]])
// CHECK:      [[C:%.*]] = dist.send %{{.*}} : tensor<4xf32, #dist.on<0, "send-next">> -> tensor<4xf32, #dist.on<1, "receive">>
// CHECK-NEXT: [[Y:%.*]] = dist.move [[B]] : tensor<4xf32, #dist.on<1, "receive-1">>
// CHECK-NEXT: "onnx.Relu"([[Y]])
func.func @main(%x: tensor<4xf32, #dist.on<0>>)
    -> (tensor<4xf32, #dist.on<1>>, tensor<4xf32, #dist.on<1>>, tensor<4xf32, #dist.on<1>>) {
  %a = "onnx.Relu"(%x) : (tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0>>
  %a1 = dist.send %a to 1 : tensor<4xf32, #dist.on<0>> -> tensor<4xf32, #dist.on<1>>
  %b = "onnx.Relu"(%a) : (tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0>>
  %b1 = dist.send %b to 1 : tensor<4xf32, #dist.on<0>> -> tensor<4xf32, #dist.on<1>>
  %y = "onnx.Relu"(%a1) : (tensor<4xf32, #dist.on<1>>) -> tensor<4xf32, #dist.on<1>>
  %c = "onnx.Relu"(%b) : (tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0>>
  %c1 = dist.send %c to 1 : tensor<4xf32, #dist.on<0>> -> tensor<4xf32, #dist.on<1>>
  %z = "onnx.Relu"(%b1) : (tensor<4xf32, #dist.on<1>>) -> tensor<4xf32, #dist.on<1>>
  %u = "onnx.Relu"(%c1) : (tensor<4xf32, #dist.on<1>>) -> tensor<4xf32, #dist.on<1>>
  func.return %y, %z, %u : tensor<4xf32, #dist.on<1>>, tensor<4xf32, #dist.on<1>>, tensor<4xf32, #dist.on<1>>
}
