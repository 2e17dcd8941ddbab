// RUN: distir-opt %s --split-input-file --verify-diagnostics

func.func @main(%x: tensor<8x16xf32>, %s: tensor<8xf32>, %w: tensor<16x4xf32>) -> tensor<8x4xf32> {
  // expected-error @+1 {{expected x [..., k], scale [k] and weight [k, n], got [8, 16] and [8] and [16, 4]}}
  %y = example.norm_matmul %x, %s, %w epsilon 1.000000e-05 : (tensor<8x16xf32>, tensor<8xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
  func.return %y : tensor<8x4xf32>
}
