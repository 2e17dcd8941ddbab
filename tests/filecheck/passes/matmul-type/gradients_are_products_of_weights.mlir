// RUN: distir-opt %s -p 'shardcombine-annotate,matmul-type' | filecheck %s

// Of a layer's three products, that of its weight's gradient has no weight: it is known by the update.

// CHECK:      [[Y:%.*]] = "onnx.MatMul"(%x, %w) {{.*}}dist.matmul_type = "f8E4M3FN", dist.rounded = array<i64: 0>} :
// CHECK:      [[DW:%.*]] = "onnx.MatMul"({{%.*}}, %x) {{.*}}dist.matmul_type = "f8E4M3FN"} :
// CHECK:      "onnx.MatMul"([[Y]], {{%.*}}) {{.*}}dist.matmul_type = "f8E4M3FN", dist.rounded = array<i64: 0>} :
// CHECK-NEXT: "onnx.Sub"(%w, [[DW]])

func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}) -> (tensor<4x6xf32>, tensor<6x6xf32> {dist.role = "parameter"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %yt = "onnx.Transpose"(%y) <{perm = [1, 0]}> : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %dw = "onnx.MatMul"(%yt, %x) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %wt = "onnx.Transpose"(%w) <{perm = [1, 0]}> : (tensor<6x6xf32>) -> tensor<6x6xf32>
  %dx = "onnx.MatMul"(%y, %wt) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %new = "onnx.Sub"(%w, %dw) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %dx, %new : tensor<4x6xf32>, tensor<6x6xf32>
}
