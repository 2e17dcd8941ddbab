// RUN: distir-opt %s -p 'fuse-kernels{backend=foreach}' | filecheck %s

// PyTorch's eager mode updates many parameters at once, of whatever shapes, and joins nothing else.

// CHECK:      [[A:%.*]] = "aten.exp"(%x)
// CHECK-NEXT: [[B:%.*]] = "aten.neg"([[A]])
// CHECK-NEXT: [[DW:%.*]] = "aten.mm"([[B]], %w)
// CHECK-NEXT: [[W:%.*]], [[V:%.*]] = func.call @kernel_{{.*}}([[DW]], %w, %dv, %v)
// CHECK-SAME: -> (tensor<4x4xf32>, tensor<2x4xf32>)
// CHECK-NEXT: func.return [[W]], [[V]]
func.func @main(%x: tensor<4x4xf32>, %w: tensor<4x4xf32>, %dv: tensor<2x4xf32>, %v: tensor<2x4xf32>) -> (tensor<4x4xf32>, tensor<2x4xf32>) {
  %a = "aten.exp"(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %b = "aten.neg"(%a) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %dw = "aten.mm"(%b, %w) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %0 = "aten.neg"(%dw) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = "aten.add.Tensor"(%w, %0) <{alpha = 1.000000e-01 : f64}> : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = "aten.neg"(%dv) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %3 = "aten.add.Tensor"(%v, %2) <{alpha = 1.000000e-01 : f64}> : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  func.return %1, %3 : tensor<4x4xf32>, tensor<2x4xf32>
}
