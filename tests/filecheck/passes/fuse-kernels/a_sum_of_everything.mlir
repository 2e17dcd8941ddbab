// RUN: distir-opt %s -p 'fuse-kernels{backend=inductor}' | filecheck %s

// What depends on a sum of everything does not run in the kernel that adds it.

// CHECK-LABEL: func.func @sum_of_all
// CHECK-NEXT: func.call @[[FIRST:kernel_[0-9a-f]+]]
// CHECK-NEXT: func.call @kernel_
func.func @sum_of_all(%x: tensor<256x64xf32>) -> tensor<256x64xf32> {
  %a = "aten.exp"(%x) : (tensor<256x64xf32>) -> tensor<256x64xf32>
  %b = "aten.sum"(%a) : (tensor<256x64xf32>) -> tensor<f32>
  %c = "aten.mul.Tensor"(%x, %b) : (tensor<256x64xf32>, tensor<f32>) -> tensor<256x64xf32>
  %d = "aten.neg"(%c) : (tensor<256x64xf32>) -> tensor<256x64xf32>
  func.return %d : tensor<256x64xf32>
}
