// RUN: DISTIR_DIAGNOSTICS

func.func @main(%a: tensor<4xf32, #dist.on<0>>) {
  dist.call @layer(%a) on [0, 1, 2] : (tensor<4xf32, #dist.on<0>>) -> ()
  func.return
}
func.func @layer(%x: tensor<4xf32, #dist.on<0>>) {
  %y = dist.send %x to 1 : tensor<4xf32, #dist.on<0>> -> tensor<4xf32, #dist.on<1>>
  func.return
}
// CHECK: @layer: expected 2 devices, got 3
