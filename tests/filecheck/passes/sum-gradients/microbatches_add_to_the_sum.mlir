// RUN: distir-opt %s -p 'shardcombine-annotate,sum-gradients,pipeline-stages{microbatches=2},microbatch{count=2}' | filecheck %s

// Of several microbatches each adds its own sum to the one of the loop.

// CHECK:      func.func private @backward_0
// CHECK:        [[DW:%.*]] = "onnx.MatMul"
// CHECK-NEXT:   [[S:%.*]] = dist.accumulate sum [[DW]]
// CHECK-NEXT:   [[ALL:%.*]] = dist.accumulate sum %dw, [[S]]
// CHECK-NEXT:   func.return [[ALL]]

func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}) -> (tensor<4x6xf32>, tensor<6x6xf32> {dist.role = "parameter"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %yt = "onnx.Transpose"(%y) <{perm = [1, 0]}> : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %dw = "onnx.MatMul"(%yt, %x) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %new = "onnx.Sub"(%w, %dw) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %y, %new : tensor<4x6xf32>, tensor<6x6xf32>
}
