// RUN: distir-opt %s -p 'fuse-kernels{backend=eager}' | filecheck %s

// Eager mode leaves operations alone.

// CHECK-NOT: dist.kernel
// CHECK:     aten.exp
func.func @main(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %a = "aten.exp"(%x) : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %b = "aten.neg"(%a) : (tensor<8x4xf32>) -> tensor<8x4xf32>
  func.return %b : tensor<8x4xf32>
}
// CHECK-NOT: dist.kernel
