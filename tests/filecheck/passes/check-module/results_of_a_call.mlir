// RUN: DISTIR_DIAGNOSTICS

// A callee without placement is all on the one device.
func.func @main(%a: tensor<4xf32, #dist.on<4>>) {
  %r = dist.call @layer(%a) on [4] : (tensor<4xf32, #dist.on<4>>) -> tensor<5xf32, #dist.on<4>>
  func.return
}
func.func @layer(%x: tensor<4xf32>) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}
// CHECK: @layer: result 0: expected tensor<4xf32, #dist.on<4>>, got tensor<5xf32, #dist.on<4>>
