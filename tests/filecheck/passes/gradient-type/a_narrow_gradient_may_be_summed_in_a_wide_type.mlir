// RUN: distir-opt %s -p 'shardcombine-annotate,gradient-type' | filecheck %s

// Of parameters in bf16, gradients are added up in f32, and the update has its own type again.

// CHECK:      [[DW:%.*]] = "onnx.MatMul"({{%.*}}, %x)
// CHECK-NEXT: [[F:%.*]] = dist.cast [[DW]] {{.*}} : tensor<6x6xbf16> -> tensor<6x6xf32>
// CHECK-NEXT: [[B:%.*]] = dist.cast [[F]] {{.*}} : tensor<6x6xf32> -> tensor<6x6xbf16>
// CHECK-NEXT: "onnx.Sub"(%w, [[B]])

func.func @main(%x: tensor<4x6xbf16>, %w: tensor<6x6xbf16> {dist.role = "parameter"}) -> (tensor<6x6xbf16> {dist.role = "parameter"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4x6xbf16>, tensor<6x6xbf16>) -> tensor<4x6xbf16>
  %yt = "onnx.Transpose"(%y) <{perm = [1, 0]}> : (tensor<4x6xbf16>) -> tensor<6x4xbf16>
  %dw = "onnx.MatMul"(%yt, %x) : (tensor<6x4xbf16>, tensor<4x6xbf16>) -> tensor<6x6xbf16>
  %new = "onnx.Sub"(%w, %dw) : (tensor<6x6xbf16>, tensor<6x6xbf16>) -> tensor<6x6xbf16>
  func.return %new : tensor<6x6xbf16>
}
