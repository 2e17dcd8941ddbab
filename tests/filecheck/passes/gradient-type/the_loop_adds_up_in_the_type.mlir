// RUN: distir-opt %s -p 'shardcombine-annotate,gradient-type{type=bf16},pipeline-stages{microbatches=2},microbatch{count=2}' | filecheck %s

// Each microbatch casts what it makes and adds it to a sum in the type, of which the update casts the whole back.

// CHECK:      func.func private @microbatch({{.*}}%dw: tensor<6x6xbf16>
// CHECK:      func.func private @update_0([[S:%.*]]: tensor<6x6xbf16>, %w
// CHECK-NEXT:   [[F:%.*]] = dist.cast [[S]]
// CHECK-NEXT:   "onnx.Sub"(%w, [[F]])
// CHECK:      func.func private @backward_0
// CHECK:        [[B:%.*]] = dist.cast {{.*}} : tensor<6x6xf32> -> tensor<6x6xbf16>
// CHECK-NEXT:   dist.accumulate sum %dw, [[B]] {

func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}) -> (tensor<4x6xf32>, tensor<6x6xf32> {dist.role = "parameter"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %yt = "onnx.Transpose"(%y) <{perm = [1, 0]}> : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %dw = "onnx.MatMul"(%yt, %x) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %new = "onnx.Sub"(%w, %dw) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %y, %new : tensor<4x6xf32>, tensor<6x6xf32>
}
