// RUN: distir-opt %s --verify-diagnostics -p 'beam-shard{mesh="tp=2" width=0}' | filecheck %s --check-prefix=WIDTH
// RUN: distir-opt %s --verify-diagnostics -p 'beam-shard{mesh="tp=2" machine=dgx-3}' | filecheck %s --check-prefix=MACHINE

// Mistakes in options say what is expected.
// WIDTH: width: expected at least 1, got 0
// MACHINE: unknown machine dgx-3: expected {{.*}} (did you mean dgx-2?)
func.func @main(%x: tensor<64x64xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<64x64xf32> {dist.name = "w", dist.role = "parameter"}) -> (tensor<64x64xf32> {dist.name = "y", dist.role = "output"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  func.return %y : tensor<64x64xf32>
}
