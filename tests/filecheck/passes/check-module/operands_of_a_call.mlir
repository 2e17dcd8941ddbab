// RUN: DISTIR_DIAGNOSTICS

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

func.func @main(%a: tensor<4xf32, #dist.on<4>>) {
  dist.call @layer(%a) on [4] : (tensor<4xf32, #dist.on<4>>) -> ()
  func.return
}
func.func @layer() {
  func.return
}
// CHECK: @layer: operands: expected 0, got 1
