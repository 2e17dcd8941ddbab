// RUN: distir-opt %s -p 'fuse-kernels{modules="layers"}' | filecheck %s

// Only what belongs to the named modules is joined.

// CHECK:      func.call @kernel_
// CHECK-NEXT: "aten.exp"
// CHECK-NEXT: "aten.neg"
// CHECK-NEXT: "aten.mm"
func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %a = "aten.exp"(%x) {dist.module = "layers.0"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %b = "aten.neg"(%a) {dist.module = "layers.0"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %c = "aten.exp"(%b) {dist.module = "layers_of_another"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %d = "aten.neg"(%c) {dist.module = "layers_of_another"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %e = "aten.mm"(%d, %x) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %e : tensor<4x4xf32>
}
