// RUN: DISTIR_DIAGNOSTICS

// A value is defined before it is used.
func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %c = dist.scale %b by 1/2 : tensor<4xf32>
  %b = dist.scale %a by 1/2 : tensor<4xf32>
  func.return %c : tensor<4xf32>
}
// CHECK: operand 0 (%b) is used before its definition

// -----

// A nested region sees the values before its op, and only those.
func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  "test.op"() ({
    %b = dist.scale %a by 1/2 : tensor<4xf32>
    "test.termop"(%b, %c) : (tensor<4xf32>, tensor<4xf32>) -> ()
  }) : () -> ()
  %c = dist.scale %a by 1/2 : tensor<4xf32>
  func.return %c : tensor<4xf32>
}
// CHECK: operand 1 (%c) is used before its definition

// -----

func.func @main(%a: tensor<4xf32, #dist.on<0>>) {
  dist.call @layer(%a) on [0] : (tensor<4xf32, #dist.on<0>>) -> ()
  func.return
}
// CHECK: no function @layer in the module

// -----

func.func @main() {
  dist.call @f() on [0] : () -> ()
  func.return
}
func.func @f() {
  func.call @g() : () -> ()
  func.return
}
func.func @g() {
  dist.call @f() on [0] : () -> ()
  func.return
}
// CHECK: recursive call: @f -> @g -> @f

// -----

func.func @main(%a: tensor<4xf32, #dist.on<0>>) {
  dist.call @layer(%a) on [0, 1, 2] : (tensor<4xf32, #dist.on<0>>) -> ()
  func.return
}
func.func @layer(%x: tensor<4xf32, #dist.on<0>>) {
  %y = dist.send %x to 1 : tensor<4xf32, #dist.on<0>> -> tensor<4xf32, #dist.on<1>>
  func.return
}
// CHECK: @layer: expected 2 devices, got 3

// -----

// The callee's device 0 is the caller's 5.
func.func @main(%a: tensor<4xf32, #dist.on<4>>) {
  %r = dist.call @layer(%a) on [5, 4] : (tensor<4xf32, #dist.on<4>>) -> tensor<4xf32, #dist.on<4>>
  func.return
}
func.func @layer(%x: tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<1>> {
  %y = dist.send %x to 1 : tensor<4xf32, #dist.on<0>> -> tensor<4xf32, #dist.on<1>>
  func.return %y : tensor<4xf32, #dist.on<1>>
}
// CHECK: @layer: operand 0: expected tensor<4xf32, #dist.on<5>>, got tensor<4xf32, #dist.on<4>>

// -----

// A callee without placement is all on the one device.
func.func @main(%a: tensor<4xf32, #dist.on<4>>) {
  %r = dist.call @layer(%a) on [4] : (tensor<4xf32, #dist.on<4>>) -> tensor<5xf32, #dist.on<4>>
  func.return
}
func.func @layer(%x: tensor<4xf32>) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}
// CHECK: @layer: result 0: expected tensor<4xf32, #dist.on<4>>, got tensor<5xf32, #dist.on<4>>

// -----

func.func @main(%a: tensor<4xf32, #dist.on<4>>) {
  dist.call @layer(%a) on [4] : (tensor<4xf32, #dist.on<4>>) -> ()
  func.return
}
func.func @layer() {
  func.return
}
// CHECK: @layer: operands: expected 0, got 1

// -----

func.func @main(%a: tensor<4xf32, #dist.on<0>>, %b: tensor<4xf32, #dist.on<1>>) {
  %c = "onnx.Add"(%a, %b) : (tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1>>) -> tensor<4xf32, #dist.on<0>>
  func.return
}
// CHECK: expected all values on #dist.on<0>, where operand 0 is, got operand 1 on #dist.on<1>

// -----

// Streams count: dist.move is the only way across.
func.func @main(%a: tensor<4xf32, #dist.on<0>>) {
  %c = "onnx.Relu"(%a) : (tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0, "comm">>
  func.return
}
// CHECK: expected all values on #dist.on<0>, where operand 0 is, got result 0 on #dist.on<0, "comm">

// -----

func.func @main(%a: tensor<4xf32, #dist.on<0>>) {
  %c = "onnx.Relu"(%a) : (tensor<4xf32, #dist.on<0>>) -> tensor<4xf32>
  func.return
}
// CHECK: expected all values on #dist.on<0>, where operand 0 is, got result 0 not placed

// -----

// Values on no device (constants) may be used on any.
func.func @constants(%a: tensor<4xf32, #dist.on<3>>) {
  %z = dist.zeros : tensor<4xf32>
  %c = "onnx.Add"(%a, %z) : (tensor<4xf32, #dist.on<3>>, tensor<4xf32>) -> tensor<4xf32, #dist.on<3>>
  func.return
}
// CHECK: func.func @constants

// -----

builtin.module attributes {dist.devices = 2 : i64} {
  func.func @main(%a: tensor<4xf32, #dist.on<2>>) {
    func.return
  }
}
// CHECK: @main: expected at most 2 devices (dist.devices), got 3

// -----

func.func @main(%a: tensor<4xf32> {dist.part = #dist.part<[0:2] of [4]>}) {
  func.return
}
// CHECK: argument 0: expected shape [2], that of its part, got [4]
