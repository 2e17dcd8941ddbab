// RUN: distir-opt %s --verify-diagnostics -p 'ilp-shard{mesh="tp=2" machine=dgx-2 memory-limit=10kB}' | filecheck %s

// The error says the least memory that a plan needs.
// CHECK: memory-limit 10000 bytes: no sharding fits; the smallest that one needs is 32768 bytes per device, at onnx.MatMul in @main
func.func @main(%x: tensor<64x64xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<64x64xf32> {dist.name = "w", dist.role = "parameter"}) -> (tensor<64x64xf32> {dist.name = "y", dist.role = "output"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  func.return %y : tensor<64x64xf32>
}
