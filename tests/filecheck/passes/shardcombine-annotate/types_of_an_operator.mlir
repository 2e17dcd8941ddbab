// RUN: distir-opt %s -p shardcombine-annotate --split-input-file --verify-diagnostics | filecheck %s

func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x9xf32>) -> tensor<4x8xf32> {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4x8xf32>, tensor<8x9xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}
// CHECK: onnx.MatMul: result 0: expected tensor<4x9xf32>, got tensor<4x8xf32>
