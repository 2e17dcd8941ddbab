// RUN: distir-opt %s -p 'shardcombine-annotate,gradient-type{type=bf16},sum-gradients' | filecheck %s

// After `gradient-type` a sum is of what was cast, and what is cast back is the sum.

// CHECK:      [[B:%.*]] = dist.cast {{.*}} -> tensor<6x6xbf16>
// CHECK-NEXT: [[S:%.*]] = dist.accumulate sum [[B]]
// CHECK-NEXT: [[F:%.*]] = dist.cast [[S]]
// CHECK-NEXT: "onnx.Sub"(%w, [[F]])

func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}) -> (tensor<6x6xf32> {dist.role = "parameter"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %yt = "onnx.Transpose"(%y) <{perm = [1, 0]}> : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %dw = "onnx.MatMul"(%yt, %x) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %new = "onnx.Sub"(%w, %dw) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %new : tensor<6x6xf32>
}
