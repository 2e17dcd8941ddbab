// RUN: distir-opt %s -p 'shardcombine-annotate,sum-gradients' | filecheck %s

// What several uses of a weight make is summed before it is added.

// CHECK:      [[D0:%.*]] = "onnx.MatMul"({{%.*}}, %x)
// CHECK-NEXT: [[S0:%.*]] = dist.accumulate sum [[D0]]
// CHECK:      [[D1:%.*]] = "onnx.MatMul"({{%.*}}, %y)
// CHECK-NEXT: [[S1:%.*]] = dist.accumulate sum [[D1]]
// CHECK-NEXT: [[DW:%.*]] = "onnx.Add"([[S0]], [[S1]])
// CHECK-NEXT: "onnx.Sub"(%w, [[DW]])

func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}) -> (tensor<6x6xf32> {dist.role = "parameter"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %yt = "onnx.Transpose"(%y) <{perm = [1, 0]}> : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %d0 = "onnx.MatMul"(%yt, %x) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %d1 = "onnx.MatMul"(%yt, %y) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %dw = "onnx.Add"(%d0, %d1) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  %new = "onnx.Sub"(%w, %dw) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %new : tensor<6x6xf32>
}
