// RUN: distir-opt %s -p 'fuse-kernels{backend=inductor}' | filecheck %s

// An operation that leaves out a result (the gradient of a norm without bias) joins what follows; the absent result has no elements.

// CHECK-LABEL: func.func @norm_without_bias
// CHECK: [[C:%.*]], [[E:%.*]] = func.call @kernel_
// CHECK-NEXT: func.return [[E]], [[C]]
// CHECK-LABEL: func.func private @kernel_
// CHECK: [[DX:%.*]], [[DW:%.*]], [[DB:%.*]] = "aten.native_layer_norm_backward"
// CHECK: -> (tensor<4x8xf32>, tensor<8xf32>, none)
// CHECK-NEXT: [[N:%.*]] = "aten.neg"([[DX]])
// CHECK-NEXT: func.return [[DW]], [[N]]
func.func @norm_without_bias(%g: tensor<4x8xf32>, %x: tensor<4x8xf32>, %m: tensor<4x1xf32>, %r: tensor<4x1xf32>, %w: tensor<8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>) {
  %a = "aten.neg"(%g) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %b, %c, %d = "aten.native_layer_norm_backward"(%a, %x, %m, %r, %w) <{normalized_shape = array<i64: 8>, output_mask = [true, true, false], operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0>}> : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x1xf32>, tensor<4x1xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>, none)
  %e = "aten.neg"(%b) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %e, %c : tensor<4x8xf32>, tensor<8xf32>
}
