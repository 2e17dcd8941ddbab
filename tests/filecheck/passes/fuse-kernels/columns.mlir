// RUN: distir-opt %s -p 'fuse-kernels{backend=inductor}' | filecheck %s

// A sum of columns goes over its operand in another order than what makes it: they are two kernels where the operand is needed elsewhere, else one.

// CHECK-LABEL: func.func @needed_elsewhere
// CHECK-NEXT: %b = func.call @kernel_
// CHECK-NEXT: %c = "aten.sum.dim_IntList"
func.func @needed_elsewhere(%x: tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<4xf32>) {
  %a = "aten.exp"(%x) : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %b = "aten.neg"(%a) : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %c = "aten.sum.dim_IntList"(%b) <{dim = array<i64: 0>}> : (tensor<8x4xf32>) -> tensor<4xf32>
  func.return %b, %c : tensor<8x4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @needed_here
// CHECK-NEXT: %c = func.call @kernel_
// CHECK-NEXT: func.return
func.func @needed_here(%x: tensor<8x4xf32>) -> tensor<4xf32> {
  %a = "aten.exp"(%x) : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %b = "aten.neg"(%a) : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %c = "aten.sum.dim_IntList"(%b) <{dim = array<i64: 0>}> : (tensor<8x4xf32>) -> tensor<4xf32>
  func.return %c : tensor<4xf32>
}

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
