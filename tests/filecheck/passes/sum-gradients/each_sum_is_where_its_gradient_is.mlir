// RUN: distir-opt %s -p 'shardcombine-annotate,sum-gradients' | filecheck %s

// The second layer's gradient is summed before the first one's is made, though both updates are last: devices may reduce it meanwhile.

// CHECK:      [[DV:%.*]] = "onnx.MatMul"({{%.*}}, %z)
// CHECK-NEXT: [[SV:%.*]] = dist.accumulate sum [[DV]]
// CHECK:      [[DW:%.*]] = "onnx.MatMul"({{%.*}}, %x)
// CHECK-NEXT: [[SW:%.*]] = dist.accumulate sum [[DW]]
// CHECK-NEXT: "onnx.Sub"(%w, [[SW]])
// CHECK-NEXT: "onnx.Sub"(%v, [[SV]])

func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}, %v: tensor<6x6xf32> {dist.role = "parameter"}) -> (tensor<6x6xf32> {dist.role = "parameter"}, tensor<6x6xf32> {dist.role = "parameter"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %z = "onnx.MatMul"(%y, %v) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %yt = "onnx.Transpose"(%y) <{perm = [1, 0]}> : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %dv = "onnx.MatMul"(%yt, %z) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %zt = "onnx.Transpose"(%z) <{perm = [1, 0]}> : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %dw = "onnx.MatMul"(%zt, %x) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %w_new = "onnx.Sub"(%w, %dw) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  %v_new = "onnx.Sub"(%v, %dv) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %w_new, %v_new : tensor<6x6xf32>, tensor<6x6xf32>
}
