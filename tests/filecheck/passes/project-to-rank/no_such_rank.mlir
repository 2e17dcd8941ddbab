// RUN: distir-opt %s --verify-diagnostics -p 'project-to-rank{rank=2}' | filecheck %s

// A rank that the program does not have is refused.

// CHECK: rank 2 is outside the program's devices 0..1

func.func @main(%x: tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<1>> {
  %y = dist.send %x to 1 : tensor<4xf32, #dist.on<0>> -> tensor<4xf32, #dist.on<1>>
  func.return %y : tensor<4xf32, #dist.on<1>>
}
