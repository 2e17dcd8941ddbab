// RUN: distir-opt %s -p 'shardcombine-annotate,sum-gradients' | filecheck %s

// What an update takes is a sum of one addend, and says so where it is made. The output, which has the batch's rows, is none.

// CHECK:      [[Y:%.*]] = "onnx.MatMul"(%x, %w)
// CHECK-NEXT: [[T:%.*]] = "onnx.Transpose"([[Y]])
// CHECK-NEXT: [[DW:%.*]] = "onnx.MatMul"([[T]], %x)
// CHECK-NEXT: [[S:%.*]] = dist.accumulate sum [[DW]] {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [sum: 0 -> 0], found = exact>} : (tensor<6x6xf32>) -> tensor<6x6xf32>
// CHECK-NEXT: [[NEW:%.*]] = "onnx.Sub"(%w, [[S]])
// CHECK-NEXT: func.return [[Y]], [[NEW]]

func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}) -> (tensor<4x6xf32>, tensor<6x6xf32> {dist.role = "parameter"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %yt = "onnx.Transpose"(%y) <{perm = [1, 0]}> : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %dw = "onnx.MatMul"(%yt, %x) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %new = "onnx.Sub"(%w, %dw) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %y, %new : tensor<4x6xf32>, tensor<6x6xf32>
}
