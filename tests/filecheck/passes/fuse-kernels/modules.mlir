// RUN: distir-opt %s -p 'fuse-kernels{modules="layers"}' | filecheck %s

// Only what belongs to modules of that name is joined, wherever they are.

// CHECK:      [[B:%.*]] = func.call @[[KERNEL:kernel_[0-9a-f]+]](%x)
// CHECK-NEXT: [[C:%.*]] = "aten.exp"([[B]])
// CHECK-NEXT: [[D:%.*]] = "aten.neg"([[C]])
// CHECK-NEXT: [[E:%.*]] = "aten.mm"([[D]], %x)
// CHECK-NEXT: [[G:%.*]] = func.call @[[KERNEL]]([[E]])
// CHECK-NEXT: func.return [[G]]
func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %a = "aten.exp"(%x) {dist.module = "layers.0"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %b = "aten.neg"(%a) {dist.module = "layers.0"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %c = "aten.exp"(%b) {dist.module = "layers_of_another"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %d = "aten.neg"(%c) {dist.module = "layers_of_another"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %e = "aten.mm"(%d, %x) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %f = "aten.exp"(%e) {dist.module = "decoder.layers.0"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %g = "aten.neg"(%f) {dist.module = "decoder.layers.0"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %g : tensor<4x4xf32>
}
