func.func @main(%x: tensor<4x8xf32>, %w: tensor<6x6xf32>) -> tensor<4x6xf32> {
  %0 = "onnx.MatMul"(%x, %w) {dist.module = "blocks.3.up"} : (tensor<4x8xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  func.return %0 : tensor<4x6xf32>
}
