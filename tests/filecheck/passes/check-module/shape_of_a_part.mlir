// RUN: DISTIR_DIAGNOSTICS

func.func @main(%a: tensor<4xf32> {dist.part = #dist.part<[0:2] of [4]>}) {
  func.return
}
// CHECK: argument 0: expected shape [2], that of its part, got [4]
