// RUN: distir-opt %s -p 'dtp-parallelize{pp=2 microbatches=4 schedule="eager-1f1b"}' | filecheck %s

// The first stage goes forward twice before the second is done once.
// CHECK: dist.devices = 2
func.func @main(%x: tensor<8x4xf32> {dist.name = "x", dist.role = "input"}, %s: tensor<4xf32> {dist.name = "s", dist.role = "parameter"}, %w: tensor<4x4xf32> {dist.name = "w", dist.role = "parameter"}) -> tensor<8x4xf32> {
  %y = example.norm_matmul %x, %s, %w epsilon 1.000000e-05 : (tensor<8x4xf32>, tensor<4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  %z = example.norm_matmul %y, %s, %w epsilon 1.000000e-05 : (tensor<8x4xf32>, tensor<4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  func.return %z : tensor<8x4xf32>
}
