// RUN: distir-opt %s -p 'fuse-kernels{backend=rows}' | filecheck %s

// What the backend of the package runs as one kernel: a chain goes on after its reduction over rows.
// CHECK-LABEL: @main
// CHECK-NEXT: [[Y:%.*]] = func.call @[[KERNEL:.*]](%x)
// CHECK-NEXT: func.return [[Y]]
// CHECK: @[[KERNEL]](
// CHECK: aten.sum
// CHECK: aten.div
func.func @main(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %e = "aten.exp"(%x) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %s = "aten.sum.dim_IntList"(%e) <{dim = array<i64: 1>, keepdim = true}> : (tensor<8x16xf32>) -> tensor<8x1xf32>
  %y = "aten.div.Tensor"(%e, %s) : (tensor<8x16xf32>, tensor<8x1xf32>) -> tensor<8x16xf32>
  func.return %y : tensor<8x16xf32>
}
