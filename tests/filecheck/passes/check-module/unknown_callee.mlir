// RUN: DISTIR_DIAGNOSTICS

func.func @main(%a: tensor<4xf32, #dist.on<0>>) {
  dist.call @layer(%a) on [0] : (tensor<4xf32, #dist.on<0>>) -> ()
  func.return
}
// CHECK: no function @layer in the module
