// RUN: distir-opt %s --verify-diagnostics -p 'beam-shard{mesh="tp=2" machine=dgx-2 memory-limit=10kB}' | filecheck %s

// The beam found no plan: it does not say that there is none.
// CHECK: memory-limit 10000 bytes: a beam of width 16 found no plan that fits (without a limit, one of 32768 bytes); there may be one: widen the beam
func.func @main(%x: tensor<64x64xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<64x64xf32> {dist.name = "w", dist.role = "parameter"}) -> (tensor<64x64xf32> {dist.name = "y", dist.role = "output"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  func.return %y : tensor<64x64xf32>
}
