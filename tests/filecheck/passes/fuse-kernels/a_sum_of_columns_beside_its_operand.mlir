// RUN: distir-opt %s -p 'fuse-kernels{backend=inductor}' | filecheck %s

// A sum of columns goes over its operand in another order than what makes it: where the operand is needed elsewhere, they are two kernels.

// CHECK-LABEL: func.func @needed_elsewhere
// CHECK-NEXT: [[B:%.*]] = func.call @kernel_
// CHECK-NEXT: [[C:%.*]] = "aten.sum.dim_IntList"([[B]])
// CHECK-NEXT: func.return [[B]], [[C]]
func.func @needed_elsewhere(%x: tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<4xf32>) {
  %a = "aten.exp"(%x) : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %b = "aten.neg"(%a) : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %c = "aten.sum.dim_IntList"(%b) <{dim = array<i64: 0>}> : (tensor<8x4xf32>) -> tensor<4xf32>
  func.return %b, %c : tensor<8x4xf32>, tensor<4xf32>
}
