// RUN: distir-opt %s --verify-diagnostics -p 'batch-shard{mesh="dp=3"}' | filecheck %s

// Rows that cannot be divided are refused.

// CHECK: the batch of 'x' (dim 0, 8 rows) is not divisible by 3 (data parallel replicas x microbatches): choose a batch, dp and microbatches that divide

func.func @main(%x: tensor<8x4xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<4x6xf32> {dist.name = "w", dist.role = "parameter"}) -> (tensor<8x6xf32> {dist.name = "y", dist.role = "output"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<8x4xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
  func.return %y : tensor<8x6xf32>
}
