// RUN: distir-opt %s -p 'fuse-kernels' | filecheck %s

// Operations on complex numbers are kernels of their own: torch.compile generates none.

// CHECK:      [[B:%.*]] = func.call @[[KERNEL:kernel_[0-9a-f]+]](%x)
// CHECK-NEXT: [[C:%.*]] = "aten.view_as_complex"([[B]])
// CHECK-NEXT: [[D:%.*]] = "aten.mul.Tensor"([[C]], %turns)
// CHECK-NEXT: [[E:%.*]] = "aten.view_as_real"([[D]])
// CHECK-NEXT: func.call @[[KERNEL]]([[E]])
func.func @main(%x: tensor<4x8x2xf32>, %turns: tensor<8xcomplex<f32>>) -> tensor<4x8x2xf32> {
  %a = "aten.exp"(%x) : (tensor<4x8x2xf32>) -> tensor<4x8x2xf32>
  %b = "aten.neg"(%a) : (tensor<4x8x2xf32>) -> tensor<4x8x2xf32>
  %c = "aten.view_as_complex"(%b) : (tensor<4x8x2xf32>) -> tensor<4x8xcomplex<f32>>
  %d = "aten.mul.Tensor"(%c, %turns) : (tensor<4x8xcomplex<f32>>, tensor<8xcomplex<f32>>) -> tensor<4x8xcomplex<f32>>
  %e = "aten.view_as_real"(%d) : (tensor<4x8xcomplex<f32>>) -> tensor<4x8x2xf32>
  %f = "aten.exp"(%e) : (tensor<4x8x2xf32>) -> tensor<4x8x2xf32>
  %g = "aten.neg"(%f) : (tensor<4x8x2xf32>) -> tensor<4x8x2xf32>
  func.return %g : tensor<4x8x2xf32>
}
