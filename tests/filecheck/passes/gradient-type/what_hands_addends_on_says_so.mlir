// RUN: distir-opt %s -p 'shardcombine-annotate,gradient-type{type=bf16}' | filecheck %s

// Between the product that makes a gradient and the cast, addends stay addends (`dist.addends`): they are not reduced before they are cast, nor in the
// function that makes them.

// CHECK:      func.func @main
// CHECK-NEXT: [[DW:%.*]] = func.call @gradient(%x, %w)
// CHECK-NEXT: dist.cast [[DW]] {{.*}}dist.addends}
// CHECK:      func.func private @gradient
// CHECK:      [[D:%.*]] = "onnx.MatMul"({{%.*}}, %x) {{.*}}found = exact>} :
// CHECK-NEXT: "onnx.Transpose"([[D]]) {{.*}}dist.addends}

func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}) -> (tensor<6x6xf32> {dist.role = "parameter"}) {
  %dw = func.call @gradient(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  %new = "onnx.Sub"(%w, %dw) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %new : tensor<6x6xf32>
}
func.func private @gradient(%x: tensor<4x6xf32>, %w: tensor<6x6xf32>) -> tensor<6x6xf32> {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %yt = "onnx.Transpose"(%y) <{perm = [1, 0]}> : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %d = "onnx.MatMul"(%yt, %x) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %dw = "onnx.Transpose"(%d) <{perm = [1, 0]}> : (tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %dw : tensor<6x6xf32>
}
