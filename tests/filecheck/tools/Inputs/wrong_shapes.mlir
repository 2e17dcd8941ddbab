func.func @main(%x: tensor<4x8xf32>, %w: tensor<6x6xf32>) -> tensor<4x6xf32> {
  %0 = func.call @layer(%x, %w) {dist.renamed = {"blocks.0" = "blocks.3"}} : (tensor<4x8xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  func.return %0 : tensor<4x6xf32>
}
func.func private @layer(%x: tensor<4x8xf32>, %w: tensor<6x6xf32>) -> tensor<4x6xf32> {
  %0 = "onnx.MatMul"(%x, %w) {dist.module = "blocks.0.up"} : (tensor<4x8xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  func.return %0 : tensor<4x6xf32>
}
