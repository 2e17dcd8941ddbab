// RUN: distir-opt %s --verify-diagnostics -p pipeline-stages | filecheck %s
// RUN: distir-opt %s --verify-diagnostics -p dtp-parallelize | filecheck %s

func.func private @f(tensor<4xf32>) -> tensor<4xf32>
func.func @main(%x: tensor<4xf32> {dist.name = "x", dist.role = "input"}) -> tensor<4xf32> {
  %y = func.call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}
// CHECK: @f has no body: a program that is distributed defines every function it calls
