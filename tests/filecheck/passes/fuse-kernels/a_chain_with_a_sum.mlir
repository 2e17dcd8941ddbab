// RUN: distir-opt %s -p 'fuse-kernels{backend=inductor}' | filecheck %s

// An elementwise chain with a reduction at its end is one kernel, which both devices call; the matmul is by itself.

// CHECK-LABEL: func.func @main
// CHECK-NEXT: %b, %c = dist.call @[[KERNEL:kernel_[0-9a-f]+]](%x) on [0] : (tensor<8x4xf32, #dist.on<0>>) -> (tensor<8x4xf32, #dist.on<0>>, tensor<8xf32, #dist.on<0>>)
// CHECK-NEXT: %d = "aten.mm"
// CHECK-NEXT: %f, %g = dist.call @[[KERNEL]](%y) on [1]
func.func @main(%x: tensor<8x4xf32, #dist.on<0>>, %y: tensor<8x4xf32, #dist.on<1>>, %w: tensor<4x8xf32, #dist.on<0>>) -> (tensor<8x8xf32, #dist.on<0>>, tensor<8xf32, #dist.on<0>>, tensor<8x4xf32, #dist.on<1>>, tensor<8xf32, #dist.on<1>>) {
  %a = "aten.exp"(%x) : (tensor<8x4xf32, #dist.on<0>>) -> tensor<8x4xf32, #dist.on<0>>
  %b = "aten.relu"(%a) : (tensor<8x4xf32, #dist.on<0>>) -> tensor<8x4xf32, #dist.on<0>>
  %c = "aten.sum.dim_IntList"(%b) <{dim = array<i64: 1>}> : (tensor<8x4xf32, #dist.on<0>>) -> tensor<8xf32, #dist.on<0>>
  %d = "aten.mm"(%b, %w) : (tensor<8x4xf32, #dist.on<0>>, tensor<4x8xf32, #dist.on<0>>) -> tensor<8x8xf32, #dist.on<0>>
  %e = "aten.exp"(%y) : (tensor<8x4xf32, #dist.on<1>>) -> tensor<8x4xf32, #dist.on<1>>
  %f = "aten.relu"(%e) : (tensor<8x4xf32, #dist.on<1>>) -> tensor<8x4xf32, #dist.on<1>>
  %g = "aten.sum.dim_IntList"(%f) <{dim = array<i64: 1>}> : (tensor<8x4xf32, #dist.on<1>>) -> tensor<8xf32, #dist.on<1>>
  func.return %d, %c, %f, %g : tensor<8x8xf32, #dist.on<0>>, tensor<8xf32, #dist.on<0>>, tensor<8x4xf32, #dist.on<1>>, tensor<8xf32, #dist.on<1>>
}
// CHECK: func.func private @[[KERNEL]](%0: tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8xf32>) attributes {dist.kernel} {
// CHECK-NEXT: "aten.exp"
// CHECK-NEXT: "aten.relu"
// CHECK-NEXT: "aten.sum.dim_IntList"
