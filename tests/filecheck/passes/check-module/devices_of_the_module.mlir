// RUN: DISTIR_DIAGNOSTICS

builtin.module attributes {dist.devices = 2 : i64} {
  func.func @main(%a: tensor<4xf32, #dist.on<2>>) {
    func.return
  }
}
// CHECK: @main: expected at most 2 devices (dist.devices), got 3
