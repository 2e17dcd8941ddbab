// RUN: distir-opt %s -p merge-functions | filecheck %s

// Functions that become one keep the first one's names; a call of another says what its operations are called, also through calls inside.

// CHECK: [[X:%.*]] = func.call @outer_0(%x) : (
// CHECK-NEXT: func.call @outer_0([[X]]) {dist.renamed = {blocks.0 = "blocks.2", blocks.1 = "blocks.3"}}
// CHECK: func.func private @outer_0
// CHECK: func.call @layer({{.*}}) {dist.renamed = {blocks.0 = "blocks.1"}}

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @outer_0(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = func.call @outer_1(%0) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %1 : tensor<4xf32>
}
func.func private @outer_0(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @layer(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = func.call @layer(%0) {dist.renamed = {"blocks.0" = "blocks.1"}} : (tensor<4xf32>) -> tensor<4xf32>
  func.return %1 : tensor<4xf32>
}
func.func private @outer_1(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @layer(%x) {dist.renamed = {"blocks.0" = "blocks.2"}} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = func.call @layer(%0) {dist.renamed = {"blocks.0" = "blocks.3"}} : (tensor<4xf32>) -> tensor<4xf32>
  func.return %1 : tensor<4xf32>
}
func.func private @layer(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "aten.relu"(%x) {dist.module = "blocks.0.act"} : (tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
