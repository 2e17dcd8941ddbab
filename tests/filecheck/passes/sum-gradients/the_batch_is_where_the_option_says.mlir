// RUN: distir-opt %s -p 'shardcombine-annotate,sum-gradients{batch="x:1"}' | filecheck %s

// Sums are over the batch, here columns of the input.

// CHECK:      [[DW:%.*]] = "onnx.MatMul"(%x, {{%.*}})
// CHECK-NEXT: dist.accumulate sum [[DW]]

func.func @main(%x: tensor<6x4xf32> {dist.name = "x"}, %w: tensor<6x6xf32> {dist.role = "parameter"}) -> (tensor<6x6xf32> {dist.role = "parameter"}) {
  %xt = "onnx.Transpose"(%x) <{perm = [1, 0]}> : (tensor<6x4xf32>) -> tensor<4x6xf32>
  %y = "onnx.MatMul"(%xt, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %dw = "onnx.MatMul"(%x, %y) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %new = "onnx.Sub"(%w, %dw) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %new : tensor<6x6xf32>
}
