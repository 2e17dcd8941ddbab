// RUN: distir-opt %s -p outline-repeats | filecheck %s

// A layer's call says what its operations are called where the body has the first layer's names.

// CHECK: [[X:%.*]] = func.call @layer(%x) : (
// CHECK-NEXT: func.call @layer([[X]]) {dist.renamed = {blocks.0 = "blocks.1"}}
// CHECK: func.func private @layer
// CHECK: dist.module = "blocks.0.act"
// CHECK: dist.module = "blocks.0"

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "aten.relu"(%x) {dist.module = "blocks.0.act"} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "aten.tanh"(%0) {dist.module = "blocks.0"} : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "aten.relu"(%1) {dist.module = "blocks.1.act"} : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "aten.tanh"(%2) {dist.module = "blocks.1"} : (tensor<4xf32>) -> tensor<4xf32>
  func.return %3 : tensor<4xf32>
}
