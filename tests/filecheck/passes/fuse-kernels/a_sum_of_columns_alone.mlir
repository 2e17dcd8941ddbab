// RUN: distir-opt %s -p 'fuse-kernels{backend=inductor}' | filecheck %s

// A sum of columns whose operand nothing else needs is one kernel with what makes it.

// CHECK-LABEL: func.func @needed_here
// CHECK-NEXT: [[C:%.*]] = func.call @[[KERNEL:kernel_[0-9a-f]+]](%x)
// CHECK-NEXT: func.return [[C]]
// CHECK:      func.func private @[[KERNEL]](
// CHECK:      [[S:%.*]] = "aten.sum.dim_IntList"
// CHECK-NEXT: func.return [[S]]
func.func @needed_here(%x: tensor<8x4xf32>) -> tensor<4xf32> {
  %a = "aten.exp"(%x) : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %b = "aten.neg"(%a) : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %c = "aten.sum.dim_IntList"(%b) <{dim = array<i64: 0>}> : (tensor<8x4xf32>) -> tensor<4xf32>
  func.return %c : tensor<4xf32>
}
